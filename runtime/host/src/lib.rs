//! Runs modules: the one crate that names wasmtime. [`Host`] implements the broker's seam,
//! [`ModuleHost`](levada_extension::ModuleHost), over Cranelift, with limits on all that a module can use.
//!
//! - Time: a call may use so much of the processor; a thread of the system asks running modules every few milliseconds.
//! - Memory: an instance's memories and tables together, and all instances together.
//! - Threads: modules run on threads of the host's own, where each has a lane with a bounded queue.
//! - Authority: a module may write to its log and count. WASI is answered harmlessly.
//! - Trust: an instance that trapped is never used again; every answer is checked (in `levada-extension`).
//!
//! Not here: names, versions and who uses them (the registry's), what is done about a fault (the caller's), the bytes that
//! cross and their checks (`levada-extension`).

mod artifact;
mod budget;
mod compiler;
mod contract;
mod engine;
mod host;
mod idle;
mod imports;
mod inspect;
mod instance;
mod journal;
mod schema;
mod state;
mod version;
mod wasi;
mod workers;

pub use compiler::{Compiler, run_compiler};
pub use host::{Host, HostError, HostOptions};
