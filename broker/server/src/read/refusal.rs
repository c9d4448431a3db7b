//! The engine's errors of a read as problems.

use levada_api::{ErrorCode, Problem};
use levada_engine::FetchError;
use levada_log::RecordsError;

use crate::refusal::{denied, module_fault};

/// A read that was refused or ended.
pub(crate) fn fetch(error: &FetchError) -> Problem {
    let problem = |code| Problem::new(code, error.to_string());
    match error {
        FetchError::Denied(error) => denied(error),
        FetchError::NotFound(_) => problem(ErrorCode::TopicNotFound),
        FetchError::NoPartition { .. } => problem(ErrorCode::PartitionNotFound),
        FetchError::BelowStart { log_start_offset, .. } => {
            problem(ErrorCode::OffsetOutOfRange).with(|m| m.log_start_offset = Some(log_start_offset.0))
        }
        FetchError::BeyondEnd { high_watermark, .. } => {
            problem(ErrorCode::OffsetBeyondEnd).with(|m| m.high_watermark = Some(high_watermark.0))
        }
        FetchError::Filter { fault, at, .. } => {
            let problem = module_fault(fault, error.to_string());
            match at {
                Some(at) => problem.with(|m| {
                    m.topic = Some(at.topic.to_string());
                    (m.partition, m.offset) = (Some(at.partition.0), Some(at.offset.0));
                }),
                None => problem,
            }
        }
        FetchError::OtherTopic { .. } => problem(ErrorCode::CursorGone),
        FetchError::Storage(_) => problem(ErrorCode::StorageFailed),
        FetchError::Closing => problem(ErrorCode::ShuttingDown),
    }
}

/// A stored batch whose checksum is right cannot be taken apart: it was stored by a bug.
pub(crate) fn records(error: &RecordsError) -> Problem {
    tracing::error!(%error, "a stored batch cannot be taken apart");
    Problem::new(ErrorCode::Internal, "a stored batch cannot be taken apart; the broker's log says more")
}
