//! The engine's words about processors in those of the interface.

use levada_api::{Processor, ProcessorFailure, ProcessorState, ProcessorTask, RecordOut, Rendering, TaskWaiting};
use levada_engine::ProcessorInfo;
use levada_model::{Offset, PartitionIndex, Record, Timestamp, TimestampType};
use serde_json::value::RawValue;

use crate::modules::raw;

pub(super) fn processor(info: ProcessorInfo) -> Processor {
    let (state, failure) = match info.state {
        levada_engine::ProcessorState::Running => (ProcessorState::Running, None),
        levada_engine::ProcessorState::Paused => (ProcessorState::Paused, None),
        levada_engine::ProcessorState::Failed { reason, at } => {
            let failure = ProcessorFailure {
                reason,
                topic: at.as_ref().map(|at| at.topic.to_string()),
                partition: at.as_ref().map(|at| at.partition.0),
                offset: at.as_ref().map(|at| at.offset.0),
                record: at.as_ref().and_then(|at| {
                    let (timestamp, record) = at.record.as_ref()?;
                    Some(record_out(at.partition, at.offset, *timestamp, record))
                }),
            };
            (ProcessorState::Failed, Some(failure))
        }
    };
    Processor {
        name: info.name.into(),
        owner: info.owner.as_str().to_owned(),
        version: info.version,
        document: raw(info.document.into_bytes()),
        state,
        failure,
        tasks: info.tasks.into_iter().map(task).collect(),
    }
}

pub(super) fn task(task: levada_engine::ProcessorTask) -> ProcessorTask {
    ProcessorTask {
        topic: task.topic.into(),
        partition: task.partition.0,
        position: task.position.0,
        lag: task.lag,
        stream_time: task.stream_time.map(|time| time.0),
        // Without windows nothing is too late.
        dropped_late: 0,
        skipped: task.skipped,
        lost: task.lost,
        errors: task.errors,
        records_in: task.records_in,
        records_out: task.records_out,
        waiting: task.waiting.map(|waiting| TaskWaiting {
            reason: waiting.reason,
            offset: waiting.offset.map(|offset| offset.0),
            attempts: waiting.attempts,
        }),
    }
}

/// A record as a read shows it.
pub(super) fn record_out(
    partition: PartitionIndex,
    offset: Offset,
    timestamp: Timestamp,
    record: &Record,
) -> Box<RawValue> {
    let timestamp_type = TimestampType::CreateTime;
    let mut json = Vec::new();
    let out = RecordOut { topic: None, partition, offset, timestamp, timestamp_type, record };
    out.write_json(Rendering::default(), &mut json);
    raw(json)
}
