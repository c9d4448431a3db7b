//! Modules, with a host that runs native ones.

mod assigning;
mod dry_runs;
mod filtering;
mod producing;
mod registry;
mod uploads;

use std::sync::Arc;

use bytes::Bytes;
use levada_engine::{Engine, EngineOptions, PutModule};
use levada_model::{ModuleName, ModuleRef};

pub(crate) use levada_doubles::{HostHandle, module};

use crate::support::{Bench, me};

/// An engine with a host.
pub(crate) fn open(bench: &Bench, host: &HostHandle) -> Engine {
    let options = EngineOptions { modules: Some(Arc::new(host.clone())), ..bench.options() };
    Engine::open(options).expect("the engine opens")
}

/// An engine on a simulated disk, with a host.
pub(crate) fn engine() -> (Engine, HostHandle) {
    let (bench, _) = Bench::sim();
    let host = HostHandle::default();
    (open(&bench, &host), host)
}

pub(crate) fn named(name: &str) -> ModuleName {
    ModuleName::new(name).expect("a module's name")
}

pub(crate) fn of(text: &str) -> ModuleRef {
    ModuleRef::new(text).expect("a module")
}

/// Puts a version that is active from then on.
pub(crate) async fn put(engine: &Engine, name: &str, wasm: Bytes) -> PutModule {
    engine.put_module(&me(), &named(name), wasm, true).await.expect("the module is taken")
}
