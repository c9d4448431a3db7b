//! What modules are given: their log and counters, and WASI as far as it does no harm.

use levada_extension::{LogLevel, ModuleRefusal};
use levada_model::limits::{MODULE_COUNTER_NAME_BYTES_MAX, MODULE_IMPORT_INSTRUCTIONS, MODULE_LOG_LINE_BYTES_MAX};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre, Linker, ResourceType, WasmStr};
use wasmtime::{StoreContextMut, Trap};

use crate::contract::{HOST, Level};
use crate::engine::Meter;
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
        let line = match store.data_mut().may_log() {
            true => Some(text(&mut store, &message, MODULE_LOG_LINE_BYTES_MAX)?),
            false => None,
        };
        charge(&mut store, line.as_ref().map_or(0, |(_, bytes)| *bytes))?;
        if let Some((line, _)) = line {
            store.data().journal.line(level.into(), line);
        }
        Ok(())
    })?;
    host.func_wrap("counter", |mut store: StoreContextMut<'_, State>, (name, delta): (WasmStr, u64)| {
        // One byte more than allowed, so that a long name is none of a shorter one's.
        let (name, bytes) = text(&mut store, &name, MODULE_COUNTER_NAME_BYTES_MAX + 1)?;
        charge(&mut store, bytes)?;
        store.data().journal.count(&name, delta);
        Ok(())
    })
}

/// What a call of the host costs where instructions are counted: else a module could have the host work for as long as it
/// likes, and have no instructions on its own account.
pub(crate) fn charge(store: &mut StoreContextMut<'_, State>, bytes: usize) -> wasmtime::Result<()> {
    if store.data().meter == Meter::Instructions {
        let left = store.get_fuel()?.checked_sub(MODULE_IMPORT_INSTRUCTIONS + bytes as u64);
        store.set_fuel(left.unwrap_or(0))?;
        left.ok_or(Trap::OutOfFuel)?;
    }
    Ok(())
}

/// The beginning of a text, and how long it is.
fn text(store: &mut StoreContextMut<'_, State>, text: &WasmStr, bytes_max: usize) -> wasmtime::Result<(String, usize)> {
    let text = text.to_str(&*store)?;
    Ok((text[..text.floor_char_boundary(bytes_max)].to_owned(), text.len()))
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
