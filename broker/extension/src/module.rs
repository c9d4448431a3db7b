//! What the broker asks of whatever runs modules: to compile one, to make extensions of it, and to tell how they fare. No
//! WebAssembly here: the host elsewhere implements these traits.
//!
//! Who may call what from where:
//!
//! - [`ModuleHost::compile`], [`ModuleHost::load`], [`ModuleVersion::dry_run`] and the makers of extensions
//!   ([`ModuleVersion::transform`] and its siblings) block, compiling for seconds; so do the calls of the extensions
//!   themselves. They must not be called on async threads nor by a partition's owner.
//! - [`ModuleVersion::run`] never blocks. It is how async code calls a module: the job runs on one of the host's own
//!   threads, where calls of extensions run in place, and hands its result back through a channel.
//! - Everything else answers at once, from anywhere.

mod description;
mod refusal;
mod report;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

pub use description::{ModuleDescription, ModuleDigest, ModuleDigestError, ModuleWorld};
pub use refusal::{ModuleBusy, ModuleConfigError, ModuleRefusal};
pub use report::{HostUsage, LogLevel, LogLine, LogPage, ModuleStats};

use crate::{Aggregator, Assignor, Partitioner, Transform};

/// Work for one of a host's threads.
pub type ModuleJob = Box<dyn FnOnce() + Send>;

/// Runs modules.
///
/// Duties: nothing that a module does costs more than the host's limits allow, and nothing of it reaches another module or
/// the caller but typed faults; modules run on the host's own threads alone.
pub trait ModuleHost: Send + Sync {
    /// Checks, compiles and describes a module: a component, or a core module with the section that `wit-bindgen` writes.
    /// Compiles one at a time, blocks for as long as that takes, and keeps what it made, so that [`load`](Self::load) finds
    /// it; also when versions of it are there and what was kept is gone. Equal bytes give versions with equal descriptions.
    ///
    /// # Errors
    /// What makes it no usable module; nothing is kept then.
    fn compile(&self, wasm: &Bytes) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal>;

    /// A module that was compiled before, by this process or an earlier one. `wasm` is asked for its bytes only if what was
    /// made of them is gone, damaged or made by another version of the host; then it is compiled anew. Blocks, shortly as a
    /// rule.
    ///
    /// # Errors
    /// As [`compile`](Self::compile); and when the bytes cannot be read, or are not those of `digest`.
    fn load(
        &self,
        digest: ModuleDigest,
        wasm: &dyn Fn() -> io::Result<Bytes>,
    ) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal>;

    /// Deletes what was made of a module, which nobody compiles meanwhile. Versions that are in use go on.
    fn forget(&self, digest: ModuleDigest);

    /// Deletes what was made of all modules but these, while nobody compiles: a stop between the compilation of a module and
    /// its registration leaves that behind.
    fn keep_only(&self, known: &BTreeSet<ModuleDigest>);

    /// What all modules together use now.
    fn usage(&self) -> HostUsage;
}

/// A compiled module. Its extensions outlive it, and share its log and its statistics.
///
/// A maker validates the config (JSON text, `{}` where none was given) against the module's schema and sets an instance up
/// with it; equal configs share instances, so making an extension again is cheap.
pub trait ModuleVersion: Send + Sync {
    /// What the module says of itself.
    fn describe(&self) -> &ModuleDescription;

    /// Runs `job` on one of the host's threads as soon as it is this module's turn, and returns at once. A module has few
    /// threads and a bounded queue, so that one which is slow makes only its own callers wait. On that thread, calls of any
    /// extension of this host run in place instead of being handed over. A job is dropped unrun when the host ends: who
    /// waits on its channel sees that closed.
    ///
    /// # Errors
    /// When too many jobs wait for this module already; nothing was queued.
    fn run(&self, job: ModuleJob) -> Result<(), ModuleBusy>;

    /// The module as partitioner. [`Partitioner::place`] gives it all that it declares, and its faults are typed; the
    /// answers of both are checked. Blocks.
    ///
    /// # Errors
    /// When the module is no partitioner, or refuses the config.
    fn partitioner(&self, config: &str) -> Result<Arc<dyn Partitioner>, ModuleConfigError>;

    /// The module as assignor, which members ask for by `name`. Its answers are checked. Blocks.
    ///
    /// # Errors
    /// When the module is no assignor, or refuses the config.
    fn assignor(&self, name: &str, config: &str) -> Result<Arc<dyn Assignor>, ModuleConfigError>;

    /// The module as transform. Its answers are checked. Blocks.
    ///
    /// # Errors
    /// When the module is no transform, or refuses the config.
    fn transform(&self, config: &str) -> Result<Arc<dyn Transform>, ModuleConfigError>;

    /// The module as aggregator. Its answers are checked. Blocks.
    ///
    /// # Errors
    /// When the module is no aggregator, or refuses the config.
    fn aggregator(&self, config: &str) -> Result<Arc<dyn Aggregator>, ModuleConfigError>;

    /// A twin of the module for one dry run: its own fresh instances, log and statistics, and instructions counted (and
    /// limited) instead of time. The same calls in the same order have the same answers, logs and counts, on any machine.
    /// Drop it afterwards. Compiles the module a second time the first time; blocks.
    ///
    /// # Errors
    /// When it cannot be compiled so; [`ModuleRefusal::Host`] also when what it is made of is gone, which
    /// [`ModuleHost::compile`] mends.
    fn dry_run(&self) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal>;

    /// Lines of the log from number `from` on, at most `lines_max`.
    fn logs(&self, from: u64, lines_max: usize) -> LogPage;

    /// How it fares.
    fn stats(&self) -> ModuleStats;
}
