//! Trials of documents over stored records. Nothing is stored, and modules are twins of their own.

use std::sync::Arc;
use std::time::Duration;

use levada_extension::{CallBatch, Moment};
use levada_model::{Offset, PartitionIndex, Principal, Timestamp, TopicName, limits};

use super::input::Input;
use super::pipeline::{Judged, Output, Pipeline, StepFault, Versions};
use super::positions;
use super::terms::{ProcessorDryRun, ProcessorError, ProcessorSpec};
use crate::partition::blocking;
use crate::{Engine, FetchError, FetchRequest, From, Isolation};

impl Engine {
    /// Tries a document that was checked: the same share of each partition of its sources.
    pub(super) async fn try_processor(
        &self,
        who: &Principal,
        spec: &ProcessorSpec,
        from: From,
        max_records: usize,
    ) -> Result<ProcessorDryRun, ProcessorError> {
        let pipeline = Arc::new(Pipeline::new(spec).expect("documents are checked before"));
        let versions = pipeline.versions(&self.core.modules).await.map_err(ProcessorError::busy)?;
        let modules = self.core.modules.clone();
        let twins = blocking(move || versions.twins(&modules)).await;
        let versions = twins.map_err(ProcessorError::busy)?;
        let mut places = Vec::new();
        for source in &spec.sources {
            let topic = self.readable(who, &source.topic).map_err(refused)?;
            for partition in topic.state_full().partitions() {
                let from = positions::resolve(&self.core, &topic, partition, from).await.map_err(refused)?;
                places.push((source.topic.clone(), partition.index(), From::Offset(from)));
            }
        }
        let max_records = max_records.min(limits::DRY_RUN_RECORDS_MAX);
        let share = max_records.div_ceil(places.len().max(1));
        let bytes = limits::DRY_RUN_BYTES_MAX / places.len().max(1);
        let mut tried = Tried::default();
        for (topic, partition, from) in places {
            let before = usize::try_from(tried.report.records_in).unwrap_or(usize::MAX);
            let left = share.min(max_records.saturating_sub(before));
            let trial = Trial { who, pipeline: &pipeline, versions: &versions, place: (topic, partition) };
            trial.run(self, from, left, bytes, &mut tried).await?;
        }
        Ok(tried.report)
    }
}

/// What a trial gave so far.
#[derive(Default)]
struct Tried {
    report: ProcessorDryRun,
    bytes: usize,
}

impl Tried {
    /// Takes in what becomes of a part; whether there is room for more.
    fn note(&mut self, partition: PartitionIndex, judged: Judged) -> bool {
        for Output { offset, timestamp, record } in judged.outputs {
            if !self.fits(record.size_bytes()) {
                return false;
            }
            self.report.rows.push((partition, offset, timestamp, record));
        }
        for (offset, refused) in judged.rejected {
            if !self.fits(refused.reason.len()) {
                return false;
            }
            self.report.failed.push((partition, offset, refused.reason));
        }
        true
    }

    fn fits(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.report.truncated |= self.bytes > limits::DRY_RUN_OUTPUT_BYTES_MAX;
        !self.report.truncated
    }
}

/// A document over one partition.
struct Trial<'a> {
    who: &'a Principal,
    pipeline: &'a Arc<Pipeline>,
    versions: &'a Arc<Versions>,
    place: (TopicName, PartitionIndex),
}

impl Trial<'_> {
    async fn run(
        &self,
        engine: &Engine,
        mut from: From,
        mut left: usize,
        mut bytes_left: usize,
        tried: &mut Tried,
    ) -> Result<(), ProcessorError> {
        let (topic, partition) = &self.place;
        while left > 0 && bytes_left > 0 && !tried.report.truncated {
            let (wait, isolation) = (Duration::ZERO, Isolation::ReadCommitted);
            let request = FetchRequest {
                from,
                max_records: left,
                max_bytes: bytes_left,
                wait,
                isolation,
                filter: None,
                as_stored: false,
            };
            let fetched = engine.fetch(self.who, topic, *partition, request).await.map_err(refused)?;
            if from == From::Offset(fetched.next_offset) {
                return Ok(());
            }
            from = From::Offset(fetched.next_offset);
            // The same trial has the same outcome every time.
            let moment = Moment { time: Timestamp(0), seed: 0 };
            let input = Input::of(topic, fetched, None, moment, self.pipeline.timestamp.as_ref()).await;
            let count = input.batch.record_count() + input.timeless.len();
            left = left.saturating_sub(count);
            bytes_left = bytes_left.saturating_sub(input.batch.sections.iter().map(|it| it.records.len()).sum());
            tried.report.records_in += count as u64;
            self.judge(input.batch, tried).await?;
        }
        Ok(())
    }

    /// Runs the steps over a batch, in parts where it fails as a whole.
    async fn judge(&self, batch: CallBatch, tried: &mut Tried) -> Result<(), ProcessorError> {
        let mut parts = if batch.sections.is_empty() { Vec::new() } else { vec![batch] };
        while let Some(part) = parts.pop() {
            let judged = match self.pipeline.ask(self.versions, part.clone()).await {
                Ok(judged) => judged,
                Err(StepFault::Busy(reason)) => return Err(ProcessorError::busy(reason)),
                Err(StepFault::Failed(refused)) => match part.split_at(part.record_count() / 2) {
                    Ok((front, back)) if part.record_count() > 1 => {
                        parts.extend([back, front]);
                        continue;
                    }
                    _ => {
                        let at = part.records().find_map(Result::ok).map_or(Offset(0), |record| record.offset);
                        Judged { rejected: [(at, refused)].into(), ..Judged::default() }
                    }
                },
            };
            if !tried.note(self.place.1, judged) {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn refused(error: FetchError) -> ProcessorError {
    match error {
        FetchError::Denied(error) => ProcessorError::Denied(error),
        FetchError::Closing => ProcessorError::Closing,
        FetchError::Storage(error) => ProcessorError::Storage(error),
        error => ProcessorError::Document(vec![("/from".to_owned(), error.to_string())]),
    }
}
