//! The host of modules as this program runs it: it compiles in a process of its own, which is this program again.

use std::path::Path;
use std::sync::Arc;

use levada_host::{Compiler, Host, HostOptions};
use levada_model::SystemClock;
use levada_model::limits::{MODULE_MEMORY_BYTES, MODULE_MEMORY_BYTES_MAX, MODULES_MEMORY_BYTES_MAX};
use levada_server::ModuleHost;

use crate::failure::Usage;

/// The hidden command that is the compiler.
pub(crate) const COMPILE_COMMAND: &str = "compile-module";
/// Where what was made of modules is kept, in the data directory.
const FOLDER: &str = "compiled-modules";

/// What modules may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Memory of all instances.
    pub(crate) memory_bytes: usize,
    /// Memory of one instance.
    pub(crate) instance_memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: MODULES_MEMORY_BYTES_MAX, instance_memory_bytes: MODULE_MEMORY_BYTES_MAX }
    }
}

impl Limits {
    /// That the host can keep to them.
    ///
    /// # Errors
    /// [`Usage`] by the setting's name.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        let (least, most) = (MODULE_MEMORY_BYTES.start(), MODULE_MEMORY_BYTES.end());
        match MODULE_MEMORY_BYTES.contains(&self.instance_memory_bytes) {
            true => Ok(()),
            false => Err(Usage(format!("--module-memory-bytes is {least} to {most}"))),
        }
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
    let options = HostOptions {
        memory_bytes_max: limits.memory_bytes,
        instance_memory_bytes_max: limits.instance_memory_bytes,
        ..options
    };
    let host = Host::open(options).map_err(|error| format!("{error}; --modules=false serves without them"))?;
    Ok(Arc::new(host))
}
