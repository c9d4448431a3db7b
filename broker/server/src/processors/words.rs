//! The engine's words about processors in those of the interface.

use levada_api::{Processor, ProcessorFailure, ProcessorState, ProcessorTask};
use levada_engine::ProcessorInfo;

pub(super) fn processor(info: ProcessorInfo) -> Processor {
    let (state, failure) = match info.state {
        levada_engine::ProcessorState::Running => (ProcessorState::Running, None),
        levada_engine::ProcessorState::Paused => (ProcessorState::Paused, None),
        levada_engine::ProcessorState::Failed { reason, at } => {
            let failure = ProcessorFailure {
                reason,
                topic: at.as_ref().map(|(topic, ..)| topic.to_string()),
                partition: at.as_ref().map(|(_, partition, _)| partition.0),
                offset: at.as_ref().map(|(.., offset)| offset.0),
            };
            (ProcessorState::Failed, Some(failure))
        }
    };
    Processor {
        name: info.name.into(),
        owner: info.owner.as_str().to_owned(),
        version: info.version,
        document: info.document,
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
        errors: task.errors,
        records_in: task.records_in,
        records_out: task.records_out,
    }
}
