//! The compiler: all native work whose time and memory an uploaded text or binary decides, and that cannot be interrupted.
//! It makes components, compiles them, and checks schemas and configs against them, behind limits that can be held: as a
//! process of its own, whose CPU time and memory the system limits.
//!
//! The host starts its program anew for each task, writes one byte that says which and then what is given to its standard
//! input, and reads the answer from its standard output, of which it takes no more than the task may have. Not here: what
//! the program does (`compiler/program`), and the checks of sizes before (`inspect`), which keep most of what is hopeless
//! away.

mod program;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use levada_extension::{ModuleRefusal, StopCause};
use levada_model::limits::{
    MODULE_BYTES_MAX, MODULE_CODE_BYTES_MAX, MODULE_COMPILE_CPU_S_MAX, MODULE_COMPILE_MEMORY_BYTES_MAX,
    MODULE_CONFIG_CHECK_CPU_S_MAX, MODULE_REASON_BYTES_MAX,
};
use rustix::process::Signal;

use crate::engine::{Engines, Meter};

pub use program::run_compiler;

/// Exit code after which the standard output says what is wrong with what was given.
const REFUSED: u8 = 2;

/// Where modules are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// In this process. Nothing limits the time and the memory of it but the checks of sizes before: for tests and tools.
    InProcess,
    /// In a process of its own under limits.
    Process {
        /// A program that ends with [`run_compiler`] when it is given the arguments.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
}

/// What the compiler may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// To make a component of a core module.
    Encode {
        /// Whether it was compiled for WASI's first preview.
        wasi: bool,
    },
    /// For the machine code of a component.
    Compile(Meter),
    /// Whether a text is a JSON Schema.
    Schema,
    /// Whether a config is what a schema says: the schema's length in eight bytes, the schema, the config.
    Config,
}

/// Why a task is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// What was given is wrong.
    Refused(String),
    /// What was given took more than it may, or broke the compiler.
    Ended { cause: StopCause, reason: String },
    /// What comes of it is larger than it may be.
    TooLarge { what: &'static str, max: usize },
    /// The host is to blame.
    Host(String),
}

/// What a task may take and give.
#[derive(Clone, Copy, Debug)]
struct TaskLimits {
    cpu_s: u64,
    memory_bytes: u64,
    answer: &'static str,
    answer_bytes: usize,
    /// Whether somebody waits who asked for something else.
    is_background: bool,
}

impl Task {
    const ALL: [Self; 6] = [
        Self::Encode { wasi: false },
        Self::Encode { wasi: true },
        Self::Compile(Meter::Time),
        Self::Compile(Meter::Instructions),
        Self::Schema,
        Self::Config,
    ];

    /// As the program is told.
    fn code(self) -> u8 {
        match self {
            Self::Encode { wasi: false } => b'E',
            Self::Encode { wasi: true } => b'P',
            Self::Compile(Meter::Time) => b'T',
            Self::Compile(Meter::Instructions) => b'I',
            Self::Schema => b'S',
            Self::Config => b'C',
        }
    }

    /// The one of this code.
    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.code() == code)
    }

    fn limits(self) -> TaskLimits {
        let compilation = TaskLimits {
            cpu_s: MODULE_COMPILE_CPU_S_MAX,
            memory_bytes: MODULE_COMPILE_MEMORY_BYTES_MAX,
            answer: "bytes of machine code",
            answer_bytes: MODULE_CODE_BYTES_MAX,
            is_background: true,
        };
        match self {
            Self::Compile(_) => compilation,
            Self::Encode { .. } => TaskLimits { answer: "bytes", answer_bytes: MODULE_BYTES_MAX, ..compilation },
            Self::Schema | Self::Config => TaskLimits {
                cpu_s: MODULE_CONFIG_CHECK_CPU_S_MAX,
                answer: "bytes of what is wrong with it",
                answer_bytes: 16 * MODULE_REASON_BYTES_MAX,
                is_background: false,
                ..compilation
            },
        }
    }
}

impl Compiler {
    /// Does a task, and waits for it.
    pub(crate) fn ask(&self, engines: &Engines, task: Task, given: &[&[u8]]) -> Result<Vec<u8>, NotDone> {
        match self {
            Self::InProcess => program::answer(Some(engines), task, &given.concat()).map_err(NotDone::Refused),
            Self::Process { program, arguments } => ask(program, arguments, task, given),
        }
    }
}

fn ask(program: &Path, arguments: &[OsString], task: Task, given: &[&[u8]]) -> Result<Vec<u8>, NotDone> {
    let hosts = |error: io::Error| NotDone::Host(format!("the compiler does not run: {error}"));
    let TaskLimits { answer: what, answer_bytes: max, .. } = task.limits();
    let mut compiler = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(hosts)?;
    let mut input = compiler.stdin.take().expect("it is piped");
    // An early end of the compiler shows below.
    let _ = input.write_all(&[task.code()]).and_then(|()| given.iter().try_for_each(|part| input.write_all(part)));
    drop(input);
    let mut answer = Vec::new();
    let output = compiler.stdout.take().expect("it is piped");
    let read = output.take(max as u64 + 1).read_to_end(&mut answer);
    let is_too_large = answer.len() > max;
    if is_too_large || read.is_err() {
        // It may have ended by itself.
        let _ = compiler.kill();
    }
    let status = compiler.wait().map_err(hosts)?;
    read.map_err(hosts)?;
    if is_too_large {
        return Err(NotDone::TooLarge { what, max });
    }
    match status.code() {
        Some(0) => Ok(answer),
        Some(code) if code == i32::from(REFUSED) => {
            Err(NotDone::Refused(String::from_utf8_lossy(&answer).into_owned()))
        }
        _ => Err(ended(status, task)),
    }
}

/// What another end than its own means. What is given can bring about a few signals; whoever sends others, as an operator
/// or a system without memory, means the compiler.
fn ended(status: ExitStatus, task: Task) -> NotDone {
    let TaskLimits { cpu_s, memory_bytes, .. } = task.limits();
    let is = |signal: Signal| status.signal() == Some(signal.as_raw());
    let cause = if is(Signal::XCPU) {
        StopCause::Deadline
    } else if [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL].into_iter().any(is) {
        StopCause::Trap
    } else {
        return NotDone::Host(format!("the compiler was ended before it was done ({status})"));
    };
    let reason = format!(
        "the compiler ends over it ({status}); it may use {cpu_s} s of the processor and {memory_bytes} bytes of memory"
    );
    NotDone::Ended { cause, reason }
}

impl From<NotDone> for ModuleRefusal {
    fn from(not: NotDone) -> Self {
        match not {
            NotDone::Refused(detail) | NotDone::Ended { reason: detail, .. } => Self::Invalid { detail },
            NotDone::TooLarge { what, max } => Self::Limit { what, got: max as u64 + 1, max: max as u64 },
            NotDone::Host(reason) => Self::Host { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_has_a_code_of_its_own() {
        for task in Task::ALL {
            assert_eq!(Task::of_code(task.code()), Some(task));
        }
        assert_eq!(Task::of_code(b'?'), None);
    }
}
