//! The contract `levada:plugin@0.1.0` (`plugins/wit/0.1.0`) as wasmtime sees it: names, types and typed exports.

use levada_extension::{Fields, ModuleFault, ModuleRefusal, ModuleWorld};
use levada_model::limits::MODULE_REASON_BYTES_MAX;
use wasmtime::component::{Component, ComponentNamedList, ComponentType, Instance, Lift, Lower, TypedFunc, flags};
use wasmtime::{AsContextMut, Store};

/// What the names of the contract's interfaces begin with.
pub(crate) const PACKAGE: &str = "levada:plugin/";
/// What the host gives to modules.
pub(crate) const HOST: &str = "levada:plugin/host@0.1.0";
/// What core modules import that were compiled for WASI's first preview.
pub(crate) const WASI_PREVIEW_1: &str = "wasi_snapshot_preview1";
const MODULE: &str = "levada:plugin/module@0.1.0";
const TYPES: &str = "levada:plugin/types@0.1.0";
const PARTITIONER: &str = "levada:plugin/partitioner@0.1.0";
const ASSIGNOR: &str = "levada:plugin/assignor@0.1.0";
/// The interface of transforms.
pub(crate) const TRANSFORM: &str = "levada:plugin/transform@0.1.0";
/// The interface of transforms over JSON.
pub(crate) const TRANSFORM_JSON: &str = "levada:plugin/transform-json@0.1.0";
const AGGREGATOR: &str = "levada:plugin/aggregator@0.1.0";
/// The interfaces that make a module something.
const WORLDS: [(&str, ModuleWorld); 5] = [
    (PARTITIONER, ModuleWorld::Partitioner),
    (ASSIGNOR, ModuleWorld::Assignor),
    (TRANSFORM, ModuleWorld::Transform),
    (TRANSFORM_JSON, ModuleWorld::Transform),
    (AGGREGATOR, ModuleWorld::Aggregator),
];

/// What a guest answers that may be at fault.
pub(crate) type Answer<T> = Result<T, Fault>;
type Flat = Vec<u8>;
type Assigned = Vec<Vec<AssignedPartition>>;
/// A function with one result, as all of the contract have.
type Func<P, R> = TypedFunc<P, (R,)>;

/// What a module exports, found and of the right types.
pub(crate) struct Exports {
    pub(crate) describe: Func<(), Description>,
    pub(crate) init: Func<(String,), Result<(), String>>,
    pub(crate) partition: Option<Func<(Flat, u32), Vec<u32>>>,
    pub(crate) assign: Option<Func<(AssignInput,), Answer<Assigned>>>,
    pub(crate) transform: Option<Func<(Flat,), Answer<Judged>>>,
    pub(crate) transform_json: Option<Func<(String, i64, u64), Answer<JudgedJson>>>,
    pub(crate) aggregator: Option<AggregatorExports>,
}

/// The functions of an aggregator.
pub(crate) struct AggregatorExports {
    pub(crate) fold: Func<(Flat, Flat, bool), Answer<Flat>>,
    pub(crate) result: Func<(Flat,), Answer<Flat>>,
    pub(crate) merge: Func<(Flat,), Answer<Flat>>,
    pub(crate) subtract: Func<(Flat, Flat), Answer<Flat>>,
    pub(crate) close: Func<(Flat,), Answer<Flat>>,
    pub(crate) migrate: Func<(u32, Flat), Answer<Flat>>,
}

/// `module.description`.
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Description {
    #[component(name = "layout-version")]
    pub(crate) layout_version: u32,
    pub(crate) fields: DeclaredFields,
    #[component(name = "config-schema")]
    pub(crate) config_schema: Option<String>,
    #[component(name = "state-version")]
    pub(crate) state_version: u32,
}

flags! {
    DeclaredFields {
        #[component(name = "key")]
        const KEY;
        #[component(name = "value")]
        const VALUE;
        #[component(name = "headers")]
        const HEADERS;
        #[component(name = "timestamp")]
        const TIMESTAMP;
        #[component(name = "place")]
        const PLACE;
    }
}

/// `types.fault`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Fault {
    #[component(name = "unsupported")]
    Unsupported,
    #[component(name = "failed")]
    Failed(String),
}

/// `host.level`.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "guests make them, in their memory")]
pub(crate) enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

/// `transform.verdicts`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Judged {
    #[component(name = "keep")]
    Keep(Vec<u32>),
    #[component(name = "each")]
    Each(Vec<u8>),
}

/// `transform-json.json-verdicts`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum JudgedJson {
    #[component(name = "keep")]
    Keep(Vec<u32>),
    #[component(name = "each")]
    Each(String),
}

/// `assignor.topic-partition`.
#[derive(Clone, Copy, ComponentType, Lift, Lower)]
#[component(record)]
pub(crate) struct AssignedPartition {
    pub(crate) topic: u32,
    pub(crate) partition: u32,
}

/// `assignor.member`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct AssignMember {
    #[component(name = "member-id")]
    pub(crate) member_id: String,
    #[component(name = "instance-id")]
    pub(crate) instance_id: Option<String>,
    pub(crate) subscribed: Vec<u32>,
    pub(crate) owned: Vec<AssignedPartition>,
}

/// `assignor.partition`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct AssignPartition {
    pub(crate) partition: u32,
    pub(crate) lag: Option<u64>,
}

/// `assignor.topic`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct AssignTopic {
    #[component(name = "topic-id")]
    pub(crate) topic_id: String,
    pub(crate) name: String,
    pub(crate) partitions: Vec<AssignPartition>,
}

/// `assignor.input`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct AssignInput {
    pub(crate) members: Vec<AssignMember>,
    pub(crate) topics: Vec<AssignTopic>,
}

impl From<DeclaredFields> for Fields {
    fn from(declared: DeclaredFields) -> Self {
        let pairs = [
            (DeclaredFields::KEY, Self::KEY),
            (DeclaredFields::VALUE, Self::VALUE),
            (DeclaredFields::HEADERS, Self::HEADERS),
            (DeclaredFields::TIMESTAMP, Self::TIMESTAMP),
            (DeclaredFields::PLACE, Self::PLACE),
        ];
        let present = pairs.into_iter().filter(|(flag, _)| declared & *flag == *flag);
        present.fold(Self::none(), |fields, (_, field)| fields | field)
    }
}

impl From<Fault> for ModuleFault {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unsupported => Self::Unsupported,
            Fault::Failed(reason) => Self::Failed { reason: cut(reason, MODULE_REASON_BYTES_MAX) },
        }
    }
}

/// Whether modules may import this interface.
pub(crate) fn grants(interface: &str) -> bool {
    interface == HOST || interface == TYPES || interface.starts_with("wasi:")
}

/// Whether a component exports this interface.
pub(crate) fn exports(component: &Component, interface: &str) -> bool {
    component.get_export_index(None, interface).is_some()
}

/// That the instances which a component exports make it a module.
pub(crate) fn check_exports(exports: &[String]) -> Result<(), ModuleRefusal> {
    let has = |name: &str| exports.iter().any(|export| export == name);
    if !has(MODULE) {
        return Err(ModuleRefusal::MissingExport { export: MODULE.to_owned() });
    }
    match WORLDS.iter().any(|(name, _)| has(name)) {
        true => Ok(()),
        false => {
            let names: Vec<_> = WORLDS.iter().map(|(name, _)| *name).collect();
            Err(ModuleRefusal::MissingExport { export: format!("any of {}", names.join(", ")) })
        }
    }
}

impl Exports {
    /// Finds the exports of an instance.
    pub(crate) fn find<T: 'static>(store: &mut Store<T>, instance: &Instance) -> Result<Self, ModuleRefusal> {
        let mut exports = Finder { store, instance };
        Ok(Self {
            describe: exports.func(MODULE, "describe")?,
            init: exports.func(MODULE, "init")?,
            partition: exports.in_world(PARTITIONER, |exports| exports.func(PARTITIONER, "partition"))?,
            assign: exports.in_world(ASSIGNOR, |exports| exports.func(ASSIGNOR, "assign"))?,
            transform: exports.in_world(TRANSFORM, |exports| exports.func(TRANSFORM, "transform"))?,
            transform_json: {
                exports.in_world(TRANSFORM_JSON, |exports| exports.func(TRANSFORM_JSON, "transform-json"))?
            },
            aggregator: exports.in_world(AGGREGATOR, |exports| {
                Ok(AggregatorExports {
                    fold: exports.func(AGGREGATOR, "fold")?,
                    result: exports.func(AGGREGATOR, "result")?,
                    merge: exports.func(AGGREGATOR, "merge")?,
                    subtract: exports.func(AGGREGATOR, "subtract")?,
                    close: exports.func(AGGREGATOR, "close")?,
                    migrate: exports.func(AGGREGATOR, "migrate")?,
                })
            })?,
        })
    }

    /// What the module can be.
    pub(crate) fn worlds(&self) -> Vec<ModuleWorld> {
        let worlds = [
            (self.partition.is_some(), ModuleWorld::Partitioner),
            (self.assign.is_some(), ModuleWorld::Assignor),
            (self.transform.is_some() || self.transform_json.is_some(), ModuleWorld::Transform),
            (self.aggregator.is_some(), ModuleWorld::Aggregator),
        ];
        worlds.into_iter().filter_map(|(exported, world)| exported.then_some(world)).collect()
    }
}

struct Finder<'a, T: 'static> {
    store: &'a mut Store<T>,
    instance: &'a Instance,
}

impl<T> Finder<'_, T> {
    fn in_world<F>(
        &mut self,
        interface: &str,
        find: impl FnOnce(&mut Self) -> Result<F, ModuleRefusal>,
    ) -> Result<Option<F>, ModuleRefusal> {
        match self.instance.get_export_index(self.store.as_context_mut(), None, interface) {
            Some(_) => find(self).map(Some),
            None => Ok(None),
        }
    }

    fn func<P, R>(&mut self, interface: &str, name: &str) -> Result<TypedFunc<P, R>, ModuleRefusal>
    where
        P: ComponentNamedList + Lower,
        R: ComponentNamedList + Lift,
    {
        let export = || format!("{interface}#{name}");
        let missing = || ModuleRefusal::MissingExport { export: export() };
        let interface = self.instance.get_export_index(self.store.as_context_mut(), None, interface);
        let index = interface
            .and_then(|interface| self.instance.get_export_index(self.store.as_context_mut(), Some(&interface), name))
            .ok_or_else(missing)?;
        let func = self.instance.get_func(self.store.as_context_mut(), index).ok_or_else(missing)?;
        func.typed(&*self.store)
            .map_err(|error| ModuleRefusal::Signature { export: export(), detail: format!("{error:#}") })
    }
}

/// The beginning of a text that is too long, on a boundary between characters.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}
