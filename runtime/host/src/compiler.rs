//! The compiler, which cannot be interrupted, behind limits that can be held: as a process of its own, whose CPU time and
//! memory the system limits.
//!
//! The host starts its program anew for each module, writes one byte that says for which engine and then the component to
//! its standard input, and reads the machine code from its standard output. Not here: the checks of sizes before (`inspect`),
//! which keep most of what is hopeless away.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use levada_extension::ModuleRefusal;
use levada_model::limits::{MODULE_COMPILE_CPU_S_MAX, MODULE_COMPILE_MEMORY_BYTES_MAX};
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};

use crate::engine::{Engines, Meter};

/// Exit code after which the standard output says what is wrong with the component.
const REFUSED: u8 = 2;
/// How much the compiler stands back behind the broker's own work.
const NICE: i32 = 10;

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

impl Compiler {
    /// The machine code of a component.
    pub(crate) fn compile(&self, engines: &Engines, meter: Meter, component: &[u8]) -> Result<Vec<u8>, ModuleRefusal> {
        match self {
            Self::InProcess => {
                let code = engines.get(meter).precompile_component(component);
                code.map_err(|error| ModuleRefusal::Invalid { detail: format!("{error:#}") })
            }
            Self::Process { program, arguments } => ask(program, arguments, meter, component),
        }
    }
}

fn ask(program: &Path, arguments: &[OsString], meter: Meter, component: &[u8]) -> Result<Vec<u8>, ModuleRefusal> {
    let hosts = |error: io::Error| ModuleRefusal::Host { reason: format!("the compiler does not run: {error}") };
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
    let _ = input.write_all(&[meter.code()]).and_then(|()| input.write_all(component));
    drop(input);
    let mut answer = Vec::new();
    let read = compiler.stdout.take().expect("it is piped").read_to_end(&mut answer);
    let status = compiler.wait().map_err(hosts)?;
    read.map_err(hosts)?;
    match status.code() {
        Some(0) => Ok(answer),
        Some(code) if code == i32::from(REFUSED) => {
            Err(ModuleRefusal::Invalid { detail: String::from_utf8_lossy(&answer).into_owned() })
        }
        _ => Err(ModuleRefusal::Invalid {
            detail: format!(
                "the compiler ends over it ({status}); it may use {MODULE_COMPILE_CPU_S_MAX} s of the processor and \
                 {MODULE_COMPILE_MEMORY_BYTES_MAX} bytes of memory"
            ),
        }),
    }
}

/// What the compiler's process does: compiles one component from the standard input to the standard output.
#[must_use]
pub fn run_compiler() -> ExitCode {
    match compile_one() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(())) => ExitCode::from(REFUSED),
        Err(_) => ExitCode::FAILURE,
    }
}

fn compile_one() -> io::Result<Result<(), ()>> {
    let lower = |resource, most: u64| {
        // The system's own limit may be lower already.
        let maximum = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
        setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })
    };
    lower(Resource::Cpu, MODULE_COMPILE_CPU_S_MAX)?;
    // Memory that is reserved and not written to, as the engine's pool, does not count.
    lower(Resource::Data, MODULE_COMPILE_MEMORY_BYTES_MAX)?;
    setpriority_process(None, NICE)?;
    let mut given = Vec::new();
    io::stdin().read_to_end(&mut given)?;
    let unusable = || io::Error::from(io::ErrorKind::InvalidData);
    let (code, component) = given.split_first().ok_or_else(unusable)?;
    let meter = Meter::of_code(*code).ok_or_else(unusable)?;
    let engines = Engines::new().map_err(io::Error::other)?;
    let mut output = io::stdout().lock();
    let outcome = match engines.get(meter).precompile_component(component) {
        Ok(code) => output.write_all(&code).map(Ok),
        Err(error) => write!(output, "{error:#}").map(Err),
    };
    output.flush()?;
    outcome
}
