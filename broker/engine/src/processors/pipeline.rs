//! The steps of a processor over a batch of records: in one job on a thread of the host if there is a module among them.
//!
//! They are pure, so what fails as a whole is asked again in parts. Not here: what becomes of records that fail (`task`).

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_extension::{
    CallBatch, CallRecord, CallSection, JsonFilter, JsonPointer, MalformedRecord, ModuleFault, ModuleVersion,
    OutputRoom, Transform, Verdict,
};
use levada_model::{ModuleRef, Offset, Record, Timestamp};

use super::terms::{ProcessorSpec, ProcessorStep};
use crate::heavy::{Work, compute};
use crate::modules::{Extension, Modules, judge, run};

/// The steps of a processor.
pub(super) struct Pipeline {
    steps: Vec<Step>,
    /// Where a record has its time, if not the record's own counts.
    pub(super) timestamp: Option<JsonPointer>,
}

enum Step {
    Filter(JsonFilter),
    Module(Arc<Extension<dyn Transform>>),
}

/// The versions of the modules of a pipeline, step by step, as they were meant at one moment.
pub(super) struct Versions(Vec<Arc<dyn ModuleVersion>>);

/// A record that comes out.
#[derive(Clone)]
pub(super) struct Output {
    /// Of the record that it comes from.
    pub(super) offset: Offset,
    pub(super) timestamp: Timestamp,
    pub(super) record: Record,
}

/// What became of a batch.
#[derive(Default)]
pub(super) struct Judged {
    /// In order.
    pub(super) outputs: Vec<Output>,
    /// Records that a module rejects, of which nothing comes out.
    pub(super) rejected: BTreeMap<Offset, Refused>,
}

/// Why a record or a batch failed.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    /// The module over which it failed, if it was one.
    pub(super) module: Option<ModuleRef>,
    pub(super) reason: String,
}

/// Why a batch was not judged.
pub(super) enum StepFault {
    /// No record is to blame; the same may succeed later.
    Busy(String),
    /// It failed, perhaps for one record alone.
    Failed(Refused),
}

impl Pipeline {
    /// # Errors
    /// When the pointer to the time is none.
    pub(super) fn new(spec: &ProcessorSpec) -> Result<Self, levada_extension::JsonPointerError> {
        let step = |step: &ProcessorStep| match step {
            ProcessorStep::Filter(filter) => Step::Filter(filter.clone()),
            ProcessorStep::Transform { module, config } => {
                Step::Module(Arc::new(Extension::new(module.clone(), config)))
            }
        };
        let timestamp = spec.timestamp.as_deref().map(str::parse).transpose()?;
        Ok(Self { steps: spec.steps.iter().map(step).collect(), timestamp })
    }

    /// The versions that are meant now.
    ///
    /// # Errors
    /// Why one cannot be used now.
    pub(super) async fn versions(&self, modules: &Arc<Modules>) -> Result<Arc<Versions>, String> {
        let mut versions = Vec::new();
        for module in self.modules() {
            let version = modules.version(module).await.map_err(|error| format!("module {module}: {error}"))?;
            versions.push(version);
        }
        Ok(Arc::new(Versions(versions)))
    }

    /// What becomes of a batch.
    pub(super) async fn ask(self: &Arc<Self>, versions: &Arc<Versions>, batch: CallBatch) -> Result<Judged, StepFault> {
        let bytes = batch.sections.iter().map(|section| section.records.len()).sum();
        let (this, given) = (self.clone(), versions.clone());
        let job = move || this.judge(&given, batch);
        match versions.0.first() {
            Some(version) => run(version, job).await.map_err(|busy| StepFault::Busy(busy.reason))?,
            None => compute(Work::Parse, bytes, job).await,
        }
    }

    fn modules(&self) -> impl Iterator<Item = &ModuleRef> {
        self.steps.iter().filter_map(|step| match step {
            Step::Module(extension) => Some(extension.module()),
            Step::Filter(_) => None,
        })
    }

    fn judge(&self, versions: &Versions, mut batch: CallBatch) -> Result<Judged, StepFault> {
        let (mut versions, mut rejected) = (versions.0.iter(), BTreeMap::new());
        // None: the batch as it is.
        let mut outputs: Option<Vec<Output>> = None;
        for step in &self.steps {
            if let Some(outputs) = outputs.take() {
                let Some(next) = again(&batch, outputs) else { return Ok(Judged { outputs: Vec::new(), rejected }) };
                batch = next;
            }
            let (verdicts, module) = match step {
                Step::Filter(filter) => (judge(filter, &batch), None),
                Step::Module(extension) => {
                    let version = versions.next().expect("one for each step that is a module");
                    let made = extension.make(&**version);
                    let made = made.map_err(|error| StepFault::Busy(format!("{}: {error}", extension.module())))?;
                    (judge(&*made, &batch), Some(extension.module()))
                }
            };
            let verdicts = verdicts.map_err(|fault| fault_of(fault, module))?;
            if !verdicts.iter().all(|verdict| *verdict == Verdict::Pass) {
                let applied = apply(&batch, verdicts, module, &mut rejected);
                outputs = Some(applied.map_err(|fault| fault_of(fault, module))?);
            }
        }
        let mut outputs = match outputs {
            Some(outputs) => outputs,
            None => passed(&batch).map_err(|error| fault_of(error.into(), None))?,
        };
        // Where one of a record's outputs is rejected the record is, with all of them.
        outputs.retain(|output| !rejected.contains_key(&output.offset));
        Ok(Judged { outputs, rejected })
    }
}

impl Versions {
    /// Twins for one dry run. Blocks.
    ///
    /// # Errors
    /// When one cannot be made.
    pub(super) fn twins(&self, modules: &Modules) -> Result<Arc<Self>, levada_extension::ModuleRefusal> {
        let twins = self.0.iter().map(|version| modules.twin(&**version));
        Ok(Arc::new(Self(twins.collect::<Result<_, _>>()?)))
    }
}

fn fault_of(fault: ModuleFault, module: Option<&ModuleRef>) -> StepFault {
    match fault {
        ModuleFault::Busy(busy) => StepFault::Busy(busy.reason),
        fault => StepFault::Failed(Refused { module: module.cloned(), reason: fault.to_string() }),
    }
}

/// What comes out of a step, as the batch of the next; none if nothing does.
fn again(batch: &CallBatch, outputs: Vec<Output>) -> Option<CallBatch> {
    let section = batch.sections.first().filter(|_| !outputs.is_empty())?;
    let at = |output: Output| (output.offset, output.timestamp, output.record);
    let records: Vec<_> = outputs.into_iter().map(at).collect();
    let section = CallSection::at_offsets(section.topic.clone(), section.partition, &records);
    Some(CallBatch { moment: batch.moment, sections: vec![section] })
}

fn passed(batch: &CallBatch) -> Result<Vec<Output>, MalformedRecord> {
    batch.records().map(|record| output(&record?)).collect()
}

fn output(record: &CallRecord<'_>) -> Result<Output, MalformedRecord> {
    Ok(Output { offset: record.offset, timestamp: record.timestamp, record: record.to_record()? })
}

/// What verdicts leave of a batch. What is rejected is noted.
fn apply(
    batch: &CallBatch,
    verdicts: Vec<Verdict>,
    module: Option<&ModuleRef>,
    rejected: &mut BTreeMap<Offset, Refused>,
) -> Result<Vec<Output>, ModuleFault> {
    let (mut outputs, mut room) = (Vec::new(), OutputRoom::default());
    for (place, (record, verdict)) in batch.records().zip(verdicts).enumerate() {
        let record = record?;
        let input = match verdict {
            Verdict::Drop | Verdict::Reject(_) => None,
            Verdict::Pass | Verdict::Emit(_) => {
                let input = output(&record)?;
                room.take(place, &input.record, &verdict)?;
                Some(input)
            }
        };
        match (verdict, input) {
            (Verdict::Emit(emitted), Some(Output { offset, timestamp, record })) => {
                let instead = emitted.into_iter().map(|emitted| emitted.in_place_of(timestamp, &record));
                outputs.extend(instead.map(|(timestamp, record)| Output { offset, timestamp, record }));
            }
            (Verdict::Reject(reason), _) => {
                rejected.entry(record.offset).or_insert(Refused { module: module.cloned(), reason });
            }
            (_, input) => outputs.extend(input),
        }
    }
    Ok(outputs)
}
