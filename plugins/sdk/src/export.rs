//! What stands between the contract's functions and a module's traits, and the macro that exports a module.

/// Exports a module: `export!(MyModule: filter)`. After the colon stands what it is, one or several of `filter` or
/// `transform`, `partitioner`, `assignor` and `aggregator`; the module implements the traits of these names.
#[macro_export]
macro_rules! export {
    ($module:ty: $($world:ident),+ $(,)?) => {
        const _: () = {
            ::std::thread_local! {
                static INSTANCE: ::std::cell::OnceCell<$module> = const { ::std::cell::OnceCell::new() };
            }

            impl $crate::glue::Installed for $module {
                fn slot<R>(run: impl FnOnce(&::std::cell::OnceCell<Self>) -> R) -> R {
                    INSTANCE.with(run)
                }
            }

            struct Exported;

            impl $crate::bindings::base::exports::levada::plugin::module::Guest for Exported {
                fn describe() -> $crate::glue::Description {
                    $crate::glue::describe::<$module>()
                }

                fn init(config: ::std::string::String) -> ::core::result::Result<(), ::std::string::String> {
                    $crate::glue::init::<$module>(&config)
                }
            }

            // Natively nothing is exported: no system's linker takes the names, and a test needs none of them.
            #[cfg(target_arch = "wasm32")]
            $crate::bindings::base::export!(Exported with_types_in $crate::bindings::base);
            #[cfg(not(target_arch = "wasm32"))]
            const _: fn() -> $crate::glue::Description =
                <Exported as $crate::bindings::base::exports::levada::plugin::module::Guest>::describe;
            $($crate::__export_world!($world, $module, Exported);)+
        };
    };
}

/// Exports one interface of a module.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_world {
    (filter, $module:ty, $exported:ident) => {
        $crate::__export_world!(transform with filter, $module, $exported);
    };
    (transform, $module:ty, $exported:ident) => {
        $crate::__export_world!(transform with transform, $module, $exported);
    };
    (transform with $glue:ident, $module:ty, $exported:ident) => {
        impl $crate::bindings::transform::exports::levada::plugin::transform::Guest for $exported {
            fn transform(
                batch: ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<$crate::glue::Verdicts, $crate::Fault> {
                $crate::glue::with(|module: &$module| $crate::glue::$glue(module, &batch))
            }
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::transform::export!($exported with_types_in $crate::bindings::transform);
    };
    (partitioner, $module:ty, $exported:ident) => {
        impl $crate::bindings::partitioner::exports::levada::plugin::partitioner::Guest for $exported {
            fn partition(keys: ::std::vec::Vec<u8>, partition_count: u32) -> ::std::vec::Vec<u32> {
                $crate::glue::with(|module: &$module| $crate::glue::partition(module, &keys, partition_count))
                    .expect("the broker initialises a module first, and sends keys as the contract says")
            }
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::partitioner::export!($exported with_types_in $crate::bindings::partitioner);
    };
    (assignor, $module:ty, $exported:ident) => {
        impl $crate::bindings::assignor::exports::levada::plugin::assignor::Guest for $exported {
            fn assign(
                input: $crate::AssignorInput,
            ) -> ::core::result::Result<::std::vec::Vec<::std::vec::Vec<$crate::TopicPartition>>, $crate::Fault> {
                $crate::glue::with(|module: &$module| $crate::Assignor::assign(module, &input))
            }
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::assignor::export!($exported with_types_in $crate::bindings::assignor);
    };
    (aggregator, $module:ty, $exported:ident) => {
        impl $crate::bindings::aggregator::exports::levada::plugin::aggregator::Guest for $exported {
            fn fold(
                groups: ::std::vec::Vec<u8>,
                batch: ::std::vec::Vec<u8>,
                each_record: bool,
            ) -> $crate::glue::Answer {
                $crate::glue::with(|module: &$module| $crate::glue::fold(module, &groups, &batch, each_record))
            }

            fn result(groups: ::std::vec::Vec<u8>) -> $crate::glue::Answer {
                $crate::glue::with(|module: &$module| $crate::glue::result(module, &groups))
            }

            fn merge(groups: ::std::vec::Vec<u8>) -> $crate::glue::Answer {
                $crate::glue::with(|module: &$module| $crate::glue::merge(module, &groups))
            }

            fn subtract(groups: ::std::vec::Vec<u8>, batch: ::std::vec::Vec<u8>) -> $crate::glue::Answer {
                $crate::glue::with(|module: &$module| $crate::glue::subtract(module, &groups, &batch))
            }

            fn close(groups: ::std::vec::Vec<u8>) -> $crate::glue::Answer {
                $crate::glue::with(|module: &$module| $crate::glue::close(module, &groups))
            }

            fn migrate(from_version: u32, groups: ::std::vec::Vec<u8>) -> $crate::glue::Answer {
                $crate::glue::with(|module: &$module| $crate::glue::migrate(module, from_version, &groups))
            }
        }

        #[cfg(target_arch = "wasm32")]
        $crate::bindings::aggregator::export!($exported with_types_in $crate::bindings::aggregator);
    };
}

/// What [`export!`](crate::export) calls. Not for authors: it may change with any version.
pub mod glue {
    use std::cell::OnceCell;

    pub use crate::bindings::base::exports::levada::plugin::module::Description;
    pub use crate::bindings::transform::exports::levada::plugin::transform::Verdicts;
    use crate::layout::{Batch, GroupRef, Groups, Keys, LAYOUT_VERSION, LayoutError, VerdictWriter, encode_answers};
    use crate::{Aggregator, Fault, Filter, Module, Partitioner, Record, Transform};

    /// An answers layout.
    pub type Answer = Result<Vec<u8>, Fault>;

    /// A module whose instance has its place.
    pub trait Installed: Module {
        /// Shows the instance's place.
        fn slot<R>(run: impl FnOnce(&OnceCell<Self>) -> R) -> R;
    }

    /// Describes a module.
    pub fn describe<M: Module>() -> Description {
        Description {
            layout_version: LAYOUT_VERSION.into(),
            fields: M::FIELDS,
            config_schema: M::CONFIG_SCHEMA.map(str::to_owned),
            state_version: M::STATE_VERSION,
        }
    }

    /// Sets the instance up.
    pub fn init<M: Installed>(config: &str) -> Result<(), String> {
        #[cfg(target_arch = "wasm32")]
        crate::host::log_panics();
        let config = serde_json::from_str(config).map_err(|error| format!("the config is not right: {error}"))?;
        let module = M::new(config)?;
        M::slot(|slot| slot.set(module)).map_err(|_| "the module is initialised already".to_owned())
    }

    /// Calls the instance.
    pub fn with<M: Installed, R>(run: impl FnOnce(&M) -> Result<R, Fault>) -> Result<R, Fault> {
        M::slot(|slot| match slot.get() {
            Some(module) => run(module),
            None => Err(Fault::Failed("the module is not initialised".to_owned())),
        })
    }

    /// A filter's verdicts.
    pub fn filter<M: Filter>(module: &M, batch: &[u8]) -> Result<Verdicts, Fault> {
        let mut kept = Vec::new();
        let mut place = 0;
        Batch::parse(batch)?.each(|record| {
            if module.keep(record) {
                kept.push(place);
            }
            place += 1;
        })?;
        Ok(Verdicts::Keep(kept))
    }

    /// A transform's verdicts.
    pub fn transform<M: Transform>(module: &M, batch: &[u8]) -> Result<Verdicts, Fault> {
        let mut verdicts = VerdictWriter::new();
        Batch::parse(batch)?.each(|record| verdicts.put(&module.transform(record)))?;
        Ok(Verdicts::Each(verdicts.finish()))
    }

    /// A partitioner's placements.
    pub fn partition<M: Partitioner>(module: &M, keys: &[u8], partition_count: u32) -> Result<Vec<u32>, Fault> {
        let mut partitions = Vec::new();
        Keys::parse(keys)?.each(|record| partitions.push(module.partition(record, partition_count)))?;
        Ok(partitions)
    }

    /// An aggregator's `fold`.
    pub fn fold<M: Aggregator>(module: &M, groups: &[u8], batch: &[u8], each_record: bool) -> Answer {
        let records = Batch::parse(batch)?.records()?;
        let mut answers = Vec::new();
        for group in &Groups::parse(groups)?.groups {
            let mut accumulator = match &group.accumulators[..] {
                [] => M::Accumulator::default(),
                _ => only(module, group)?,
            };
            for place in &group.places {
                module.add(&mut accumulator, record_at(&records, *place)?, &group.group);
                if each_record {
                    answers.push(Some(module.write(&accumulator)));
                }
            }
            if !each_record {
                answers.push(Some(module.write(&accumulator)));
            }
        }
        Ok(encode_answers(&answers))
    }

    /// An aggregator's `result`.
    pub fn result<M: Aggregator>(module: &M, groups: &[u8]) -> Answer {
        values::<M>(groups, |group| Ok(module.value(&only(module, group)?, &group.group)))
    }

    /// An aggregator's `close`.
    pub fn close<M: Aggregator>(module: &M, groups: &[u8]) -> Answer {
        values::<M>(groups, |group| Ok(module.close(&only(module, group)?, &group.group)))
    }

    /// An aggregator's `merge`.
    pub fn merge<M: Aggregator>(module: &M, groups: &[u8]) -> Answer {
        accumulators(module, groups, |group| {
            let mut parts = group.accumulators.iter().map(|bytes| module.read(bytes).map_err(Fault::Failed));
            let mut merged = parts.next().ok_or_else(|| failed("a group has nothing to merge"))??;
            parts.try_for_each(|later| module.merge(&mut merged, later?))?;
            Ok(merged)
        })
    }

    /// An aggregator's `subtract`.
    pub fn subtract<M: Aggregator>(module: &M, groups: &[u8], batch: &[u8]) -> Answer {
        let records = Batch::parse(batch)?.records()?;
        accumulators(module, groups, |group| {
            let mut accumulator = only(module, group)?;
            for place in &group.places {
                module.remove(&mut accumulator, record_at(&records, *place)?, &group.group)?;
            }
            Ok(accumulator)
        })
    }

    /// An aggregator's `migrate`.
    pub fn migrate<M: Aggregator>(module: &M, from_version: u32, groups: &[u8]) -> Answer {
        accumulators(module, groups, |group| module.migrate(from_version, only_bytes(group)?))
    }

    fn accumulators<M: Aggregator>(
        module: &M,
        groups: &[u8],
        each: impl Fn(&GroupRef<'_>) -> Result<M::Accumulator, Fault>,
    ) -> Answer {
        let groups = Groups::parse(groups)?.groups;
        let answers = groups.iter().map(|group| Ok(Some(module.write(&each(group)?))));
        Ok(encode_answers(&answers.collect::<Result<Vec<_>, Fault>>()?))
    }

    fn values<M: Aggregator>(groups: &[u8], each: impl Fn(&GroupRef<'_>) -> Result<Option<M::Value>, Fault>) -> Answer {
        let json = |value| serde_json::to_vec(&value).map_err(|error| Fault::Failed(error.to_string()));
        let groups = Groups::parse(groups)?.groups;
        let answers = groups.iter().map(|group| each(group)?.map(json).transpose());
        Ok(encode_answers(&answers.collect::<Result<Vec<_>, Fault>>()?))
    }

    fn only<M: Aggregator>(module: &M, group: &GroupRef<'_>) -> Result<M::Accumulator, Fault> {
        module.read(only_bytes(group)?).map_err(Fault::Failed)
    }

    fn only_bytes<'a>(group: &GroupRef<'a>) -> Result<&'a [u8], Fault> {
        match group.accumulators[..] {
            [accumulator] => Ok(accumulator),
            _ => Err(failed("a group has not one accumulator")),
        }
    }

    fn record_at<'r, 'b>(records: &'r [Record<'b>], place: u32) -> Result<&'r Record<'b>, Fault> {
        records.get(place as usize).ok_or_else(|| failed("a group names a record that is not there"))
    }

    fn failed(reason: &str) -> Fault {
        Fault::Failed(reason.to_owned())
    }

    impl From<LayoutError> for Fault {
        fn from(error: LayoutError) -> Self {
            Self::Failed(format!("the broker sent what this module cannot read: {error}"))
        }
    }
}
