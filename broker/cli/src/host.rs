//! The host of modules as this program runs it: it compiles in a process of its own, which is this program again.

use std::path::Path;
use std::sync::Arc;

use levada_host::{Compiler, Host, HostOptions};
use levada_model::SystemClock;
use levada_model::limits::MODULES_MEMORY_BYTES_MAX;
use levada_server::ModuleHost;

/// The hidden command that is the compiler.
pub(crate) const COMPILE_COMMAND: &str = "compile-module";
/// Where what was made of modules is kept, in the data directory.
const FOLDER: &str = "compiled-modules";

/// What modules may use all together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memory of all instances.
    pub(crate) memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: MODULES_MEMORY_BYTES_MAX }
    }
}

/// Opens the host of a data directory.
///
/// # Errors
/// In words, when its folder, wasmtime or this program cannot be had.
pub(crate) fn open(data_dir: &Path, limits: &Limits) -> Result<Arc<dyn ModuleHost>, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program does not find itself: {error}"))?;
    let compiler = Compiler::Process { program, arguments: vec![COMPILE_COMMAND.into()] };
    let options = HostOptions::new(data_dir.join(FOLDER), compiler, Arc::new(SystemClock));
    let options = HostOptions { memory_bytes_max: limits.memory_bytes, ..options };
    let host = Host::open(options).map_err(|error| format!("{error}; --modules=false serves without them"))?;
    Ok(Arc::new(host))
}
