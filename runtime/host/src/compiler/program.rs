//! What the compiler's process does: one task from the standard input, its answer to the standard output.

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmtime::Engine;
use wit_component::ComponentEncoder;

use super::{REFUSED, Task, TaskLimits};
use crate::artifact::trusted;
use crate::engine::Engines;
use crate::schema;

/// How much the compiler stands back behind the broker's own work.
const NICE: i32 = 10;

/// What the compiler's process does: one task from the standard input to the standard output.
#[must_use]
pub fn run_compiler() -> ExitCode {
    match run() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(())) => ExitCode::from(REFUSED),
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<Result<(), ()>> {
    end_with_the_host()?;
    let unusable = || io::Error::from(io::ErrorKind::InvalidData);
    let mut code = [0];
    io::stdin().read_exact(&mut code)?;
    let task = Task::of_code(code[0]).ok_or_else(unusable)?;
    limit(task.limits())?;
    let mut given = Vec::new();
    io::stdin().read_to_end(&mut given)?;
    let engines = match task {
        Task::Compile(_) => Some(Engines::new().map_err(io::Error::other)?),
        Task::Encode { .. } | Task::Schema | Task::Config => None,
    };
    // A panic is the fault of what was given, as any other end over it.
    let answered = catch_unwind(AssertUnwindSafe(|| answer(engines.as_ref(), task, &given)));
    let answered = answered.unwrap_or_else(|_| Err("the compiler fails over it".to_owned()));
    let mut output = io::stdout().lock();
    let outcome = match answered {
        Ok(answer) => output.write_all(&answer).map(Ok),
        Err(wrong) => output.write_all(wrong.as_bytes()).map(Err),
    };
    output.flush()?;
    outcome
}

/// Where the system offers that, the process ends when the thread does that waits for it: else a host that was killed would
/// leave it behind.
fn end_with_the_host() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

fn limit(limits: TaskLimits) -> io::Result<()> {
    // The system's own limits may be lower already. Between the first and the last the process is told, so that its end says
    // what it ended for.
    let lower = |resource, most: u64| {
        let system = getrlimit(resource);
        let maximum = system.maximum.map_or(most + 1, |maximum| maximum.min(most + 1));
        let current = system.current.map_or(most, |current| current.min(most)).min(maximum);
        setrlimit(resource, Rlimit { current: Some(current), maximum: Some(maximum) })
    };
    lower(Resource::Cpu, limits.cpu_s)?;
    // Memory that is reserved and not written to, as the engine's pool, does not count.
    lower(Resource::Data, limits.memory_bytes)?;
    lower(Resource::Core, 0)?;
    if limits.is_background {
        setpriority_process(None, NICE)?;
    }
    Ok(())
}

/// The answer to a task, or what is wrong with what was given. The engines are there for a compilation.
pub(super) fn answer(engines: Option<&Engines>, task: Task, given: &[u8]) -> Result<Vec<u8>, String> {
    match task {
        Task::Encode { wasi } => encode(given, wasi),
        Task::Compile(meter) => {
            let engine = engines.expect("they are there for a compilation").get(meter);
            compile(engine, given).map_err(|error| format!("{error:#}"))
        }
        Task::Schema => schema::check_schema(text(given)?).map(|()| Vec::new()),
        Task::Config => {
            let (length, texts) = given.split_first_chunk().ok_or("it is cut off")?;
            let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| "it is cut off")?;
            let (schema, config) = texts.split_at_checked(length).ok_or("it is cut off")?;
            schema::check_config(text(schema)?, text(config)?).map(|()| Vec::new())
        }
    }
}

fn encode(module: &[u8], wasi: bool) -> Result<Vec<u8>, String> {
    let encode = || {
        let mut encoder = ComponentEncoder::default().validate(true).module(module)?;
        if wasi {
            encoder = encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?;
        }
        encoder.encode()
    };
    encode().map_err(|error| {
        format!("no component can be made of it (was it built with the SDK or wit-bindgen?): {error:#}")
    })
}

fn compile(engine: &Engine, component: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let code = engine.precompile_component(component)?;
    // Whether its instances fit the pool shows only as it is loaded. What is wrong then is wrong with the component: the code
    // is this engine's own.
    trusted(&code, engine)?;
    Ok(code)
}

fn text(given: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(given).map_err(|_| "it is no UTF-8".to_owned())
}
