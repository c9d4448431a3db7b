//! What modules are given: their log and counters, and WASI as far as it does no harm.

use levada_extension::{LogLevel, ModuleRefusal};
use levada_model::limits::{MODULE_COUNTER_NAME_BYTES_MAX, MODULE_LOG_LINE_BYTES_MAX};
use wasmtime::StoreContextMut;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker, ResourceType, WasmStr};

use crate::contract::{HOST, Level, cut};
use crate::state::State;
use crate::wasi::{Thing, WasiFunction};

/// A component with all that it imports.
pub(crate) fn link(component: &Component) -> Result<InstancePre<State>, ModuleRefusal> {
    let mut linker = Linker::new(component.engine());
    link_host(&mut linker).expect("the contract's own names are linked once");
    for (name, item) in component.component_type().imports(component.engine()) {
        let ComponentItem::ComponentInstance(instance) = item.ty else {
            return Err(ModuleRefusal::Import { import: name.to_owned() });
        };
        if !name.starts_with("wasi:") {
            continue;
        }
        let refused = |error: wasmtime::Error| ModuleRefusal::Import { import: format!("{name} ({error:#})") };
        let mut linked = linker.instance(name).map_err(refused)?;
        for (export, item) in instance.exports(component.engine()) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    let function = WasiFunction::named(name, export);
                    linked.func_new(export, move |store, ty, given, answer| function.answer(store, &ty, given, answer))
                }
                ComponentItem::Resource(_) => linked.resource(export, ResourceType::host::<Thing>(), |_, _| Ok(())),
                ComponentItem::Type(_) => Ok(()),
                _ => return Err(ModuleRefusal::Import { import: format!("{name}#{export}") }),
            }
            .map_err(refused)?;
        }
    }
    linker.instantiate_pre(component).map_err(|error| ModuleRefusal::Import { import: format!("{error:#}") })
}

fn link_host(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut host = linker.instance(HOST)?;
    host.func_wrap("log", |mut store: StoreContextMut<'_, State>, (level, message): (Level, WasmStr)| {
        if store.data_mut().may_log() {
            let message = message.to_str(&store)?;
            let line = message[..message.floor_char_boundary(MODULE_LOG_LINE_BYTES_MAX)].to_owned();
            store.data().journal.line(level.into(), line);
        }
        Ok(())
    })?;
    host.func_wrap("counter", |store: StoreContextMut<'_, State>, (name, delta): (WasmStr, u64)| {
        // One byte more than allowed, so that a long name is none of a shorter one's.
        let name = cut(name.to_str(&store)?.into_owned(), MODULE_COUNTER_NAME_BYTES_MAX + 1);
        store.data().journal.count(&name, delta);
        Ok(())
    })
}

impl From<Level> for LogLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warn => Self::Warn,
            Level::Error => Self::Error,
        }
    }
}
