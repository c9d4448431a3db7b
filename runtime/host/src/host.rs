//! The host: compiles modules one at a time, keeps what it made of them, and hands out their versions.
//!
//! What bounds a compilation: the bytes are checked for sizes before (`inspect`), only one runs at a time, and its process
//! has limits (`compiler`). All that comes before and after it runs on a thread with a large stack.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use bytes::Bytes;
use levada_extension::{
    Fields, HostUsage, LAYOUT_VERSION, ModuleDescription, ModuleDigest, ModuleHost, ModuleRefusal, ModuleVersion,
};
use levada_model::Clock;
use levada_model::limits::{
    MODULE_MEMORY_BYTES, MODULE_MEMORY_BYTES_MAX, MODULE_SCHEMA_BYTES_MAX, MODULES_INSTANCES_MAX,
    MODULES_MEMORY_BYTES_MAX,
};
use parking_lot::Mutex;
use thiserror::Error;
use wasmtime::component::InstancePre;

use crate::artifact::{Artifacts, trusted};
use crate::budget::Budget;
use crate::compiler::{Compiler, NotDone, Task};
use crate::contract::Description;
use crate::engine::{Engines, Meter};
use crate::idle::Idle;
use crate::imports::link;
use crate::inspect::{Form, inspect};
use crate::instance::{Allowance, Halt, Instance, NoInstance, Template};
use crate::journal::Journal;
use crate::schema::{Schema, check_uploaded};
use crate::state::State;
use crate::version::Version;
use crate::workers::{Lane, Workers};

/// The compiler's thread goes deep into what is nested.
const COMPILER_STACK_BYTES: usize = 64 << 20;

/// What a host is set up with.
#[derive(Clone)]
pub struct HostOptions {
    /// Where it keeps what it made of modules. Made if it is not there; nobody else may write there.
    pub directory: PathBuf,
    /// Where it compiles.
    pub compiler: Compiler,
    /// The time of log lines.
    pub clock: Arc<dyn Clock>,
    /// Most memory of all instances together.
    pub memory_bytes_max: usize,
    /// Most memory of one instance, its memories and tables together; the nearest of
    /// [`MODULE_MEMORY_BYTES`](levada_model::limits::MODULE_MEMORY_BYTES) is taken.
    pub instance_memory_bytes_max: usize,
    /// Most instances.
    pub instances_max: usize,
}

/// Runs modules under wasmtime.
pub struct Host {
    inner: Arc<Inner>,
}

/// Why there is no host.
#[derive(Debug, Error)]
pub enum HostError {
    /// Its directory cannot be used.
    #[error("the directory of compiled modules cannot be used: {0}")]
    Directory(#[from] io::Error),
    /// wasmtime does not run here.
    #[error("wasmtime does not start: {0}")]
    Engine(String),
}

/// What versions share.
pub(crate) struct Inner {
    pub(crate) engines: Engines,
    pub(crate) workers: Workers,
    /// Where all dry runs are, so that they take none of the threads of the modules at work.
    pub(crate) trials: Arc<Lane>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) idle: Arc<Idle>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Most memory of one instance.
    instance_memory_bytes_max: usize,
    artifacts: Artifacts,
    compiler: Compiler,
    /// Held by the one compilation.
    compiling: Mutex<()>,
    versions: Mutex<HashMap<ModuleDigest, Weak<Version>>>,
    next_version: AtomicU64,
}

impl HostOptions {
    /// The usual limits.
    #[must_use]
    pub fn new(directory: PathBuf, compiler: Compiler, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory,
            compiler,
            clock,
            memory_bytes_max: MODULES_MEMORY_BYTES_MAX,
            instance_memory_bytes_max: MODULE_MEMORY_BYTES_MAX,
            instances_max: MODULES_INSTANCES_MAX,
        }
    }
}

impl Host {
    /// A host with its threads and its directory.
    ///
    /// # Errors
    /// When the directory or wasmtime's engine cannot be had.
    pub fn open(options: HostOptions) -> Result<Self, HostError> {
        let artifacts = Artifacts::open(&options.directory)?;
        let engines = Engines::new().map_err(|error| HostError::Engine(format!("{error:#}")))?;
        let workers = Workers::new();
        let instances_max = options.instances_max.min(engines.instances_max());
        let (least, most) = (*MODULE_MEMORY_BYTES.start(), *MODULE_MEMORY_BYTES.end());
        let inner = Inner {
            engines,
            trials: Arc::new(workers.lane()),
            workers,
            budget: Arc::new(Budget::new(options.memory_bytes_max, instances_max)),
            instance_memory_bytes_max: options.instance_memory_bytes_max.clamp(least, most),
            idle: Arc::default(),
            clock: options.clock,
            artifacts,
            compiler: options.compiler,
            compiling: Mutex::default(),
            versions: Mutex::default(),
            next_version: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl ModuleHost for Host {
    fn compile(&self, wasm: &Bytes) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        let digest = ModuleDigest::of(wasm);
        if let Some(whole) = self.inner.whole(digest) {
            return Ok(whole);
        }
        if self.inner.artifacts.component(digest).is_some()
            && let Some(kept) = self.inner.kept(digest)?
        {
            return Ok(kept);
        }
        Ok(self.inner.compile(digest, wasm)?)
    }

    fn load(
        &self,
        digest: ModuleDigest,
        wasm: &dyn Fn() -> io::Result<Bytes>,
    ) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        if let Some(known) = self.inner.known(digest) {
            return Ok(known);
        }
        if let Some(kept) = self.inner.kept(digest)? {
            return Ok(kept);
        }
        let bytes = wasm().map_err(|error| hosts(&error))?;
        match ModuleDigest::of(&bytes) == digest {
            true => Ok(self.inner.compile(digest, &bytes)?),
            false => Err(ModuleRefusal::Host { reason: format!("its bytes are not those of {digest}") }),
        }
    }

    fn forget(&self, digest: ModuleDigest) {
        if let Err(error) = self.inner.artifacts.forget(digest) {
            tracing::warn!(%digest, "what was made of a module is not deleted: {error}");
        }
    }

    fn keep_only(&self, known: &BTreeSet<ModuleDigest>) {
        if let Err(error) = self.inner.artifacts.keep_only(known) {
            tracing::warn!("what was made of modules that are not there is not deleted: {error}");
        }
    }

    fn usage(&self) -> HostUsage {
        let (running, waiting) = self.inner.workers.usage();
        HostUsage {
            instances: self.inner.budget.instances() as u64,
            memory_bytes: self.inner.budget.bytes() as u64,
            memory_bytes_max: self.inner.budget.bytes_max() as u64,
            running: running as u64,
            waiting: waiting as u64,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.inner.workers.stop();
        self.inner.idle.clear();
    }
}

impl Inner {
    /// A number that no other version of this host has.
    pub(crate) fn version_number(&self) -> u64 {
        self.next_version.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn template(&self, pre: InstancePre<State>, meter: Meter) -> Template {
        Template {
            pre,
            meter,
            journal: Arc::new(Journal::new(Arc::clone(&self.clock))),
            budget: Arc::clone(&self.budget),
            idle: Arc::downgrade(&self.idle),
            pulse: Arc::clone(self.engines.pulse()),
            memory_bytes_max: self.instance_memory_bytes_max,
        }
    }

    /// Has the compiler do a task.
    pub(crate) fn ask_compiler(&self, task: Task, given: &[&[u8]]) -> Result<Vec<u8>, NotDone> {
        self.compiler.ask(&self.engines, task, given)
    }

    /// A module for the engine that counts instructions.
    pub(crate) fn metered(&self, digest: ModuleDigest) -> Result<InstancePre<State>, ModuleRefusal> {
        let engine = self.engines.get(Meter::Instructions);
        let kept = || self.artifacts.code(digest, Meter::Instructions, engine);
        if let Some(component) = kept() {
            return link(&component);
        }
        let _compiling = self.compiling.lock();
        if let Some(component) = kept() {
            return link(&component);
        }
        let gone = || ModuleRefusal::Host { reason: "what was made of the module is gone; upload it again".to_owned() };
        let component = self.artifacts.component(digest).ok_or_else(gone)?;
        on_compilers_thread(|| {
            let code = self.ask_compiler(Task::Compile(Meter::Instructions), &[&component])?;
            self.artifacts.add_code(digest, Meter::Instructions, &code, engine).map_err(|error| hosts(&error))?;
            let unreadable = || hosts(&io::Error::other("what was just written cannot be read"));
            link(&kept().ok_or_else(unreadable)?)
        })
    }

    /// A version that is loaded already.
    fn known(&self, digest: ModuleDigest) -> Option<Arc<Version>> {
        self.versions.lock().get(&digest).and_then(Weak::upgrade)
    }

    /// The same, if what twins for dry runs are made of is there too.
    fn whole(&self, digest: ModuleDigest) -> Option<Arc<Version>> {
        self.known(digest).filter(|_| self.artifacts.component(digest).is_some())
    }

    /// A version out of what was kept. It does not wait for a compilation: what is half written is not whole.
    fn kept(self: &Arc<Self>, digest: ModuleDigest) -> Result<Option<Arc<Version>>, ModuleRefusal> {
        let engine = self.engines.get(Meter::Time);
        let Some(description) = self.artifacts.description(digest) else { return Ok(None) };
        let Some(component) = self.artifacts.code(digest, Meter::Time, engine) else { return Ok(None) };
        Ok(Some(self.version(description, link(&component)?)))
    }

    fn compile(self: &Arc<Self>, digest: ModuleDigest, wasm: &[u8]) -> Result<Arc<Version>, ModuleRefusal> {
        let _compiling = self.compiling.lock();
        // While this one waited.
        if let Some(whole) = self.whole(digest) {
            return Ok(whole);
        }
        let engine = self.engines.get(Meter::Time);
        let (description, pre) = on_compilers_thread(|| {
            let encoded = self.component_of(wasm)?;
            let component = encoded.as_deref().unwrap_or(wasm);
            let code = self.ask_compiler(Task::Compile(Meter::Time), &[component])?;
            let pre = link(&trusted(&code, engine).map_err(|error| hosts(&io::Error::other(error)))?)?;
            let template = self.template(pre.clone(), Meter::Time);
            let description = describe(&template, digest, wasm.len())?;
            if let Some(schema) = &description.config_schema {
                check_uploaded(self, schema)?;
            }
            self.artifacts.keep(&description, component, &code, engine).map_err(|error| hosts(&error))?;
            Ok((description, pre))
        })?;
        Ok(self.version(description, pre))
    }

    /// Checks a module, and makes a component of it if it is none.
    fn component_of(&self, wasm: &[u8]) -> Result<Option<Vec<u8>>, ModuleRefusal> {
        let Form::Core { wasi } = inspect(wasm, self.instance_memory_bytes_max)? else { return Ok(None) };
        let component = self.ask_compiler(Task::Encode { wasi }, &[wasm])?;
        match inspect(&component, self.instance_memory_bytes_max)? {
            Form::Component => Ok(Some(component)),
            Form::Core { .. } => Err(ModuleRefusal::Host { reason: "the compiler gave no component".to_owned() }),
        }
    }

    /// The one version of a digest.
    fn version(self: &Arc<Self>, description: ModuleDescription, pre: InstancePre<State>) -> Arc<Version> {
        let digest = description.digest;
        let schema = Schema::new(description.config_schema.clone());
        let mut versions = self.versions.lock();
        versions.retain(|_, version| version.strong_count() > 0);
        if let Some(known) = versions.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        let template = self.template(pre, Meter::Time);
        let lane = Arc::new(self.workers.lane());
        let version = Version::new(Arc::clone(self), description, Arc::new(schema), template, lane);
        versions.insert(digest, Arc::downgrade(&version));
        version
    }
}

/// Runs the compiler, or whatever is as little to be trusted with the stack, on a thread with much of it.
fn on_compilers_thread<R: Send>(compile: impl FnOnce() -> Result<R, ModuleRefusal> + Send) -> Result<R, ModuleRefusal> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("levada-compiler".to_owned()).stack_size(COMPILER_STACK_BYTES);
        let compiler = builder.spawn_scoped(scope, compile).map_err(|error| hosts(&error))?;
        compiler
            .join()
            .unwrap_or_else(|_| Err(ModuleRefusal::Invalid { detail: "the compiler fails over it".to_owned() }))
    })
}

/// Starts an instance and asks what it is.
fn describe(template: &Template, digest: ModuleDigest, size_bytes: usize) -> Result<ModuleDescription, ModuleRefusal> {
    let refused = |during, halt| match halt {
        Halt::Stopped { cause, reason } => ModuleRefusal::Stopped { during, cause, reason },
        Halt::Busy(busy) => ModuleRefusal::Host { reason: busy.reason },
    };
    let (mut instance, _) = Instance::start(template).map_err(|none| match none {
        NoInstance::Halted(halt, _) => refused("started", halt),
        NoInstance::Refused(refusal) => refusal,
    })?;
    let (answer, _) = instance.call(Allowance::beginning(), |store, exports| exports.describe.call(store, ()));
    let (Description { layout_version, fields, config_schema, state_version },) =
        answer.map_err(|halt| refused("described itself", halt))?;
    if layout_version != u32::from(LAYOUT_VERSION) {
        let detail = format!("it reads and writes layouts of version {layout_version}, and there is {LAYOUT_VERSION}");
        return Err(ModuleRefusal::Description { detail });
    }
    let schema_bytes = config_schema.as_ref().map_or(0, String::len);
    if schema_bytes > MODULE_SCHEMA_BYTES_MAX {
        let (got, max) = (schema_bytes as u64, MODULE_SCHEMA_BYTES_MAX as u64);
        return Err(ModuleRefusal::Limit { what: "bytes in the schema of its config", got, max });
    }
    let worlds = instance.exports().worlds();
    let (size_bytes, fields) = (size_bytes as u64, Fields::from(fields));
    Ok(ModuleDescription { digest, size_bytes, worlds, fields, config_schema, state_version })
}

fn hosts(error: &io::Error) -> ModuleRefusal {
    ModuleRefusal::Host { reason: error.to_string() }
}
