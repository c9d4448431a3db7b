//! WASI as ordinary toolchains import it, answered without harm and without a list of its hundreds of functions: what a
//! function answers is made from its type, and means "there is nothing". Only a few have a meaning: what is written to
//! standard output and error goes to the module's log, clocks and randomness are those of the call.
//!
//! Not here: what else modules import (`imports`).

use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::bail;
use wasmtime::component::types::{ComponentFunc, Type};
use wasmtime::component::{Resource, ResourceAny, Val};

use crate::imports::charge;
use crate::state::{Output, State};

/// Most bytes of randomness that one call of a function gives.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// Most values of an answer that is made from its type. The largest of WASI's have a dozen.
const NOTHINGS_MAX: usize = 1_000;
/// What an output takes at once.
const WRITE_BYTES_MAX: u64 = 64 << 10;
/// What stands for standard output and error; all other things are nothing.
const STANDARD_OUTPUT: u32 = 1;
const STANDARD_ERROR: u32 = 2;

/// Whatever resource WASI has: its number says what it is.
pub(crate) struct Thing;

/// A function of WASI.
#[derive(Clone, Debug)]
pub(crate) struct WasiFunction {
    /// Its interface without the version.
    interface: Arc<str>,
    name: Arc<str>,
}

impl WasiFunction {
    pub(crate) fn named(interface: &str, name: &str) -> Self {
        let interface = interface.split('@').next().unwrap_or(interface);
        Self { interface: interface.into(), name: name.into() }
    }

    pub(crate) fn answer(
        &self,
        mut store: StoreContextMut<'_, State>,
        ty: &ComponentFunc,
        given: &[Val],
        answer: &mut [Val],
    ) -> wasmtime::Result<()> {
        if &*self.interface == "wasi:cli/exit" {
            bail!("the module exits");
        }
        charge(&mut store, given.iter().map(handed).sum())?;
        let meant = self.meant(&mut store, given)?;
        if !self.writes() {
            given.iter().try_for_each(|value| release(value, &mut store))?;
        }
        let mut left = NOTHINGS_MAX;
        for (answer, ty) in answer.iter_mut().zip(ty.results()) {
            let value = match &meant {
                Some(meant) => Some(meant.clone()),
                None => nothing(&ty, &mut store, &mut left)?,
            };
            *answer = match value {
                Some(value) => value,
                None => bail!("{}#{} is not given to modules", self.interface, self.name),
            };
        }
        Ok(())
    }

    fn writes(&self) -> bool {
        let names = ["[method]output-stream.write", "[method]output-stream.blocking-write-and-flush"];
        &*self.interface == "wasi:io/streams" && names.contains(&&*self.name)
    }

    /// The answer of a function that has a meaning.
    fn meant(&self, store: &mut StoreContextMut<'_, State>, given: &[Val]) -> wasmtime::Result<Option<Val>> {
        let well = |value: Option<Val>| Val::Result(Ok(value.map(Box::new)));
        let nanos = store.data().moment.time.0.max(0).cast_unsigned().saturating_mul(1_000_000);
        Ok(Some(match (&*self.interface, &*self.name) {
            ("wasi:cli/stdout", "get-stdout") => thing(STANDARD_OUTPUT, store)?,
            ("wasi:cli/stderr", "get-stderr") => thing(STANDARD_ERROR, store)?,
            ("wasi:io/streams", "[method]output-stream.check-write") => well(Some(Val::U64(WRITE_BYTES_MAX))),
            _ if self.writes() => {
                write(store, given)?;
                well(None)
            }
            ("wasi:io/streams", "[method]output-stream.flush" | "[method]output-stream.blocking-flush") => well(None),
            ("wasi:io/poll", "[method]pollable.ready") => Val::Bool(true),
            ("wasi:io/poll", "poll") => match given {
                [Val::List(pollables)] => Val::List((0..).take(pollables.len()).map(Val::U32).collect()),
                _ => return Ok(None),
            },
            ("wasi:clocks/monotonic-clock", "now") => Val::U64(nanos),
            ("wasi:clocks/wall-clock", "now") => Val::Record(vec![
                ("seconds".to_owned(), Val::U64(nanos / 1_000_000_000)),
                ("nanoseconds".to_owned(), Val::U32(u32::try_from(nanos % 1_000_000_000).expect("less than a second"))),
            ]),
            ("wasi:random/random" | "wasi:random/insecure", name) if name.ends_with("-u64") => {
                Val::U64(store.data_mut().draw())
            }
            ("wasi:random/random" | "wasi:random/insecure", name) if name.ends_with("-bytes") => match given {
                [Val::U64(wanted)] if *wanted <= RANDOM_BYTES_MAX => {
                    charge(store, usize::try_from(*wanted).expect("within the cap"))?;
                    Val::List((0..*wanted).map(|_| Val::U8(store.data_mut().draw().to_le_bytes()[0])).collect())
                }
                _ => bail!("no call gives so many random bytes"),
            },
            ("wasi:random/insecure-seed", _) => {
                Val::Tuple(vec![Val::U64(store.data_mut().draw()), Val::U64(store.data_mut().draw())])
            }
            _ => return Ok(None),
        }))
    }
}

/// Bytes, or items, that a value hands over.
fn handed(value: &Val) -> usize {
    match value {
        Val::List(items) => items.len(),
        Val::String(text) => text.len(),
        _ => 0,
    }
}

/// Takes what is written to an output.
fn write(store: &mut StoreContextMut<'_, State>, given: &[Val]) -> wasmtime::Result<()> {
    if let [Val::Resource(output), Val::List(bytes)] = given {
        let output = match Resource::<Thing>::try_from_resource_any(*output, &mut *store)?.rep() {
            STANDARD_OUTPUT => Output::Standard,
            STANDARD_ERROR => Output::Error,
            _ => return Ok(()),
        };
        let byte = |value: &Val| if let Val::U8(byte) = value { Some(*byte) } else { None };
        let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
        store.data_mut().write(output, &bytes);
    }
    Ok(())
}

/// Ends the loan of what was lent for a call.
fn release(value: &Val, store: &mut StoreContextMut<'_, State>) -> wasmtime::Result<()> {
    let parts: Vec<&Val> = match value {
        Val::Resource(thing) => return thing.resource_drop(&mut *store),
        Val::List(values) | Val::Tuple(values) | Val::FixedLengthList(values) => values.iter().collect(),
        Val::Record(fields) => fields.iter().map(|(_, value)| value).collect(),
        Val::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
        Val::Option(value) | Val::Variant(_, value) | Val::Result(Ok(value) | Err(value)) => {
            value.iter().map(|value| &**value).collect()
        }
        _ => Vec::new(),
    };
    parts.into_iter().try_for_each(|value| release(value, store))
}

/// The value of a type that means the least: zero, empty, none, an error; none if there is no such value, or
/// if it has more than so many others in it.
fn nothing(ty: &Type, store: &mut StoreContextMut<'_, State>, left: &mut usize) -> wasmtime::Result<Option<Val>> {
    let Some(after) = left.checked_sub(1) else { return Ok(None) };
    *left = after;
    Ok(Some(match ty {
        Type::Bool => Val::Bool(false),
        Type::S8 => Val::S8(0),
        Type::U8 => Val::U8(0),
        Type::S16 => Val::S16(0),
        Type::U16 => Val::U16(0),
        Type::S32 => Val::S32(0),
        Type::U32 => Val::U32(0),
        Type::S64 => Val::S64(0),
        Type::U64 => Val::U64(0),
        Type::Float32 => Val::Float32(0.0),
        Type::Float64 => Val::Float64(0.0),
        Type::Char => Val::Char('\0'),
        Type::String => Val::String(String::new()),
        Type::List(_) => Val::List(Vec::new()),
        Type::Map(_) => Val::Map(Vec::new()),
        Type::Option(_) => Val::Option(None),
        Type::Flags(_) => Val::Flags(Vec::new()),
        Type::Enum(cases) => match cases.names().next() {
            Some(name) => Val::Enum(name.to_owned()),
            None => return Ok(None),
        },
        Type::Own(_) => thing(0, store)?,
        Type::Result(result) => match result.err() {
            None => Val::Result(Err(None)),
            Some(error) => match nothing(&error, store, left)? {
                Some(error) => Val::Result(Err(Some(Box::new(error)))),
                None => return Ok(None),
            },
        },
        Type::Variant(variant) => {
            // A case that says nothing further, such as `closed`, before one that does.
            let cases: Vec<_> = variant.cases().collect();
            let plain = cases.iter().find(|case| case.ty.is_none());
            let Some(case) = plain.or(cases.first()) else { return Ok(None) };
            let further = match &case.ty {
                None => None,
                Some(ty) => match nothing(ty, store, left)? {
                    Some(value) => Some(Box::new(value)),
                    None => return Ok(None),
                },
            };
            Val::Variant(case.name.to_owned(), further)
        }
        Type::Record(record) => {
            let mut fields = Vec::new();
            for field in record.fields() {
                let Some(value) = nothing(&field.ty, store, left)? else { return Ok(None) };
                fields.push((field.name.to_owned(), value));
            }
            Val::Record(fields)
        }
        Type::Tuple(tuple) => {
            let mut values = Vec::new();
            for ty in tuple.types() {
                let Some(value) = nothing(&ty, store, left)? else { return Ok(None) };
                values.push(value);
            }
            Val::Tuple(values)
        }
        _ => return Ok(None),
    }))
}

fn thing(number: u32, store: &mut StoreContextMut<'_, State>) -> wasmtime::Result<Val> {
    let any: ResourceAny = Resource::<Thing>::new_own(number).try_into_resource_any(&mut *store)?;
    Ok(Val::Resource(any))
}
