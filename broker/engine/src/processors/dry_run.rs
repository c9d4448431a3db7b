//! Trials of documents over stored records. Nothing is stored, and modules are twins of their own.

use std::sync::Arc;
use std::time::Duration;

use levada_extension::{CallBatch, Moment};
use levada_model::{Offset, PartitionIndex, Principal, Timestamp, TopicName, limits};

use super::input::Input;
use super::pipeline::{Judged, Pipeline, StepFault, Versions};
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
        let versions = pipeline.versions(&self.core.modules).await.map_err(ProcessorError::Busy)?;
        let modules = self.core.modules.clone();
        let twins = blocking(move || versions.twins(&modules)).await;
        let versions = twins.map_err(|error| ProcessorError::Busy(error.to_string()))?;
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
        let mut tried = ProcessorDryRun::default();
        for (topic, partition, from) in places {
            let left = share.min(max_records.saturating_sub(usize::try_from(tried.records_in).unwrap_or(usize::MAX)));
            let trial = Trial { who, pipeline: &pipeline, versions: &versions, place: (topic, partition) };
            trial.run(self, from, left, bytes, &mut tried).await?;
        }
        Ok(tried)
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
        tried: &mut ProcessorDryRun,
    ) -> Result<(), ProcessorError> {
        let (topic, partition) = &self.place;
        while left > 0 && bytes_left > 0 {
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
            let input = Input::of(topic, fetched, moment, self.pipeline.timestamp.as_ref()).await;
            let count = input.batch.record_count() + usize::try_from(input.skipped).unwrap_or(usize::MAX);
            if count == 0 {
                return Ok(());
            }
            left = left.saturating_sub(count);
            bytes_left = bytes_left.saturating_sub(input.batch.sections.iter().map(|it| it.records.len()).sum());
            tried.records_in += count as u64;
            self.judge(input.batch, tried).await?;
        }
        Ok(())
    }

    /// Runs the steps over a batch, in parts where it fails as a whole.
    async fn judge(&self, batch: CallBatch, tried: &mut ProcessorDryRun) -> Result<(), ProcessorError> {
        let mut parts = if batch.sections.is_empty() { Vec::new() } else { vec![batch] };
        while let Some(part) = parts.pop() {
            match self.pipeline.ask(self.versions, part.clone()).await {
                Ok(judged) => self.note(judged, tried),
                Err(StepFault::Busy(reason)) => return Err(ProcessorError::Busy(reason)),
                Err(StepFault::Failed(refused)) => match part.split_at(part.record_count() / 2) {
                    Ok((front, back)) if part.record_count() > 1 => parts.extend([back, front]),
                    _ => {
                        let at = Input::first_offset(&part).unwrap_or(Offset(0));
                        tried.failed.push((self.place.1, at, refused.reason));
                    }
                },
            }
        }
        Ok(())
    }

    fn note(&self, judged: Judged, tried: &mut ProcessorDryRun) {
        let partition = self.place.1;
        let rows = judged.outputs.into_iter().map(|out| (partition, out.offset, out.timestamp, out.record));
        tried.rows.extend(rows);
        tried.failed.extend(judged.rejected.into_iter().map(|(at, refused)| (partition, at, refused.reason)));
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
