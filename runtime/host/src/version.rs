//! A module version: its instances, one for each call that runs and each config, and the extensions that are made of it.

mod aggregator;
mod assignor;
mod partitioner;
mod transform;

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_extension::{
    Aggregator, AnswerError, Assignor, CallBatch, LogPage, ModuleBusy, ModuleConfigError, ModuleDescription,
    ModuleFault, ModuleJob, ModuleRefusal, ModuleStats, ModuleVersion, ModuleWorld, Moment, Partitioner, StopCause,
    Transform,
};
use levada_model::limits::{
    MODULE_CALL_BYTES_MAX, MODULE_CALL_MS_MAX, MODULE_CALL_RECORD_US_MAX, MODULE_CALL_RECORDS_MS_MAX,
    MODULE_REASON_BYTES_MAX,
};
use wasmtime::Store;

use crate::contract::{Exports, TRANSFORM, TRANSFORM_JSON, cut, exports};
use crate::engine::Meter;
use crate::host::Inner;
use crate::idle::IdleKey;
use crate::instance::{Allowance, Halt, Instance, NoInstance, Spent, Template};
use crate::journal::Ending;
use crate::schema::Schema;
use crate::state::State;
use crate::workers::Lane;

/// A module version.
pub(crate) struct Version {
    this: Weak<Self>,
    host: Arc<Inner>,
    number: u64,
    description: ModuleDescription,
    schema: Arc<Schema>,
    template: Template,
    lane: Arc<Lane>,
    transforms: Transforms,
}

/// By which exports a module is a transform.
#[derive(Clone, Copy, Debug)]
struct Transforms {
    flat: bool,
    json: bool,
}

/// What all extensions of a version have: the version and the config.
#[derive(Clone)]
struct Extension {
    version: Arc<Version>,
    key: IdleKey,
}

/// What one call takes and costs.
#[derive(Clone, Copy, Debug)]
struct Call {
    moment: Moment,
    records: u64,
    cpu: Duration,
}

impl Version {
    pub(crate) fn new(
        host: Arc<Inner>,
        description: ModuleDescription,
        schema: Arc<Schema>,
        template: Template,
        lane: Arc<Lane>,
    ) -> Arc<Self> {
        let number = host.version_number();
        let component = template.pre.component();
        let transforms = Transforms { flat: exports(component, TRANSFORM), json: exports(component, TRANSFORM_JSON) };
        Arc::new_cyclic(|this| {
            let this = this.clone();
            Self { this, host, number, description, schema, template, lane, transforms }
        })
    }

    /// An extension with a config that the module takes.
    fn extension(&self, world: ModuleWorld, config: &str) -> Result<Extension, ModuleConfigError> {
        if !self.description.worlds.contains(&world) {
            return Err(ModuleConfigError::World { world });
        }
        let version = self.this.upgrade().expect("who calls this holds the version");
        let extension = Extension { version, key: IdleKey { version: self.number, config: config.into() } };
        let first = extension.clone();
        // The check too, since the schema is the module's.
        self.lane.call(move || {
            let checked = first.version.schema.check(&first.version.host, &first.key.config);
            if let Err(ModuleConfigError::Stopped { cause: StopCause::Deadline, .. }) = checked {
                first.version.kept_time(false);
            }
            checked?;
            let instance = first.instance()?;
            first.version.host.idle.put(first.key, instance);
            Ok::<_, ModuleConfigError>(())
        })??;
        Ok(extension)
    }

    /// Counts an answer that is refused.
    fn refused_answer(&self, error: impl Into<ModuleFault>) -> ModuleFault {
        self.template.journal.refused_answer();
        error.into()
    }

    /// Tells the lane whether the module keeps to its time. That of dry runs is not the module's.
    fn kept_time(&self, kept: bool) {
        match self.template.meter {
            Meter::Time => self.lane.kept_time(kept),
            Meter::Instructions => (),
        }
    }

    /// Books a start or an `init`. What is wrong in them costs as much as what is wrong in a call.
    fn began(&self, ending: Ending, spent: Spent) {
        self.template.journal.began(ending, spent);
        if ending == Ending::TookTooLong {
            self.kept_time(false);
        }
    }
}

impl ModuleVersion for Version {
    fn describe(&self) -> &ModuleDescription {
        &self.description
    }

    fn run(&self, job: ModuleJob) -> Result<(), ModuleBusy> {
        self.lane.run(job)
    }

    fn partitioner(&self, config: &str) -> Result<Arc<dyn Partitioner>, ModuleConfigError> {
        self.extension(ModuleWorld::Partitioner, config).map(partitioner::partitioner)
    }

    fn assignor(&self, name: &str, config: &str) -> Result<Arc<dyn Assignor>, ModuleConfigError> {
        self.extension(ModuleWorld::Assignor, config).map(|extension| assignor::assignor(extension, name))
    }

    fn transform(&self, config: &str) -> Result<Arc<dyn Transform>, ModuleConfigError> {
        self.extension(ModuleWorld::Transform, config).map(transform::transform)
    }

    fn aggregator(&self, config: &str) -> Result<Arc<dyn Aggregator>, ModuleConfigError> {
        self.extension(ModuleWorld::Aggregator, config).map(aggregator::aggregator)
    }

    fn dry_run(&self) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        let pre = self.host.metered(self.description.digest)?;
        let template = self.host.template(pre, Meter::Instructions);
        let (schema, lane) = (Arc::clone(&self.schema), Arc::clone(&self.host.trials));
        Ok(Self::new(Arc::clone(&self.host), self.description.clone(), schema, template, lane))
    }

    fn logs(&self, from: u64, lines_max: usize) -> LogPage {
        self.template.journal.page(from, lines_max)
    }

    fn stats(&self) -> ModuleStats {
        self.template.journal.stats()
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        self.host.idle.forget(self.number);
    }
}

impl Extension {
    /// Calls the module on one of the host's threads, and waits.
    fn ask<R: Send + 'static>(
        &self,
        call: Call,
        ask: impl FnOnce(&mut Store<State>, &Exports) -> wasmtime::Result<R> + Send + 'static,
    ) -> Result<R, ModuleFault> {
        let extension = self.clone();
        self.version.lane.call(move || extension.ask_here(call, ask))?
    }

    /// Calls the module on this thread.
    fn ask_here<R>(
        &self,
        call: Call,
        ask: impl FnOnce(&mut Store<State>, &Exports) -> wasmtime::Result<R>,
    ) -> Result<R, ModuleFault> {
        let mut instance = self.instance()?;
        let (answer, spent) = instance.call(Allowance { cpu: call.cpu, moment: call.moment }, ask);
        let ending = answer.as_ref().map_or_else(Halt::ending, |_| Ending::OfItself);
        self.version.template.journal.called(call.records, ending, spent);
        self.version.kept_time(ending != Ending::TookTooLong);
        // A stopped instance is never used again; a full one would soon be stopped.
        if answer.is_ok() && !instance.is_full() {
            self.version.host.idle.put(self.key.clone(), instance);
        }
        Ok(answer?)
    }

    /// An instance that has its config.
    fn instance(&self) -> Result<Instance, ModuleConfigError> {
        let Version { host, template, .. } = &*self.version;
        if let Some(waiting) = host.idle.take(&self.key) {
            return Ok(waiting);
        }
        let mut instance = match Instance::start(template) {
            Ok((instance, spent)) => {
                self.version.began(Ending::OfItself, spent);
                instance
            }
            Err(NoInstance::Halted(halt, spent)) => {
                self.version.began(halt.ending(), spent);
                return Err(halt.into());
            }
            // Its exports were found at its compilation.
            Err(NoInstance::Refused(refusal)) => {
                return Err(ModuleConfigError::Refused { reason: refusal.to_string() });
            }
        };
        let config = self.key.config.to_string();
        let (answer, spent) =
            instance.call(Allowance::beginning(), |store, exports| exports.init.call(store, (config,)));
        template.journal.set_up();
        self.version.began(answer.as_ref().map_or_else(Halt::ending, |_| Ending::OfItself), spent);
        match answer {
            Ok((Ok(()),)) => Ok(instance),
            Ok((Err(reason),)) => Err(ModuleConfigError::Refused { reason: cut(reason, MODULE_REASON_BYTES_MAX) }),
            Err(halt) => Err(halt.into()),
        }
    }

    /// Reads a checked answer, and counts one that is refused.
    fn checked<T>(&self, answer: Result<T, AnswerError>) -> Result<T, ModuleFault> {
        answer.map_err(|error| self.version.refused_answer(error))
    }

    /// A batch as the module is given it, and the call for it.
    fn encoded(&self, batch: &CallBatch) -> Result<(Vec<u8>, Call), ModuleFault> {
        fits(batch.sections.iter().map(|section| section.records.len()).sum())?;
        let bytes = batch.encode(self.version.description.fields)?;
        fits(bytes.len())?;
        Ok((bytes, Call::of_records(batch.moment, batch.record_count())))
    }
}

impl Call {
    /// A call whose time grows with its records.
    fn of_records(moment: Moment, records: usize) -> Self {
        let records = records as u64;
        let theirs = Duration::from_micros(records.saturating_mul(MODULE_CALL_RECORD_US_MAX));
        let theirs = theirs.min(Duration::from_millis(MODULE_CALL_RECORDS_MS_MAX));
        Self { moment, records, cpu: Duration::from_millis(MODULE_CALL_MS_MAX) + theirs }
    }
}

/// That a call is not too large.
fn fits(bytes: usize) -> Result<(), ModuleFault> {
    match bytes > MODULE_CALL_BYTES_MAX {
        true => Err(ModuleFault::TooLarge { bytes, bytes_max: MODULE_CALL_BYTES_MAX }),
        false => Ok(()),
    }
}

impl From<Halt> for ModuleConfigError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Stopped { cause, reason } => Self::Stopped { cause, reason },
            Halt::Busy(busy) => Self::Busy(busy),
        }
    }
}
