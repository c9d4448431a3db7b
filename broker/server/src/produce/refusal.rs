//! The engine's errors of a produce as problems.

use levada_api::{ErrorCode, Problem, RecordsFault};
use levada_engine::{AppendFault, ProduceError, RecordFault};
use levada_log::AppendError;
use levada_model::limits::REQUEST_RECORDS_MAX;

use crate::refusal::{Refusal, denied, effect, module_fault};
use crate::transactions;

/// Where a record stands in the request, as a JSON pointer; nothing where the request has no such places.
pub(crate) type Place = fn(usize) -> Option<String>;

/// Places of a JSON produce.
pub(crate) fn in_records(index: usize) -> Option<String> {
    Some(format!("/records/{index}"))
}

/// Places of a body that is one record, or whose records have no pointers.
pub(super) fn in_no_place(_: usize) -> Option<String> {
    None
}

/// A body that is not what a produce takes.
pub(crate) fn body(fault: RecordsFault) -> Problem {
    let detail = fault.to_string();
    match fault {
        RecordsFault::Malformed { .. } => Problem::new(ErrorCode::InvalidJson, detail),
        RecordsFault::TooMany => too_many_records(detail),
        RecordsFault::Unacceptable { pointer, detail: at } => {
            let detail = if pointer.is_empty() { at.clone() } else { detail };
            Problem::new(ErrorCode::InvalidField, detail).at(pointer, at)
        }
    }
}

/// A line that is not what a produce takes. Its place in the stream is told beside the problem.
pub(super) fn line(fault: RecordsFault) -> Problem {
    match fault {
        RecordsFault::Malformed { detail, column, .. } => {
            Problem::new(ErrorCode::InvalidJson, format!("{detail} at column {column}"))
        }
        other @ (RecordsFault::Unacceptable { .. } | RecordsFault::TooMany) => body(other),
    }
}

/// A produce that was refused as a whole; nothing was stored.
pub(crate) fn produce(error: ProduceError, place: Place) -> Problem {
    let detail = error.to_string();
    match error {
        ProduceError::Transaction(error) => transactions::refuse(*error),
        ProduceError::TransactionAcks => Problem::new(ErrorCode::InvalidParameter, detail),
        ProduceError::Denied(error) => denied(&error),
        ProduceError::NotFound(_) => Problem::new(ErrorCode::TopicNotFound, detail),
        ProduceError::Internal(_) => Problem::new(ErrorCode::InternalTopic, detail),
        ProduceError::Records(faults) => records(&faults, place),
        ProduceError::Empty => Problem::new(ErrorCode::InvalidField, detail).at("/records", "at least one is needed"),
        ProduceError::TooManyRecords => too_many_records(detail),
        ProduceError::OnePartition(_) => Problem::new(ErrorCode::InvalidField, detail.clone()).at("", detail),
        ProduceError::NotEnoughReplicas { .. } => Problem::new(ErrorCode::NotEnoughReplicas, detail),
        ProduceError::Batch { .. } => Problem::new(ErrorCode::InvalidBatch, detail),
        ProduceError::NoKey { .. } => Problem::new(ErrorCode::KeyRequired, detail),
        ProduceError::Rejected { .. } => Problem::new(ErrorCode::RecordRejected, detail),
        ProduceError::PartitionerBusy { .. } => Problem::new(ErrorCode::Overloaded, detail),
        ProduceError::Partitioner { fault, .. } | ProduceError::Validator { fault, .. } => module_fault(&fault, detail),
        // No record was stored; the topic may be there all the same, which harms no retry.
        ProduceError::AutoCreate(error) => Problem { detail, ..Refusal::from(error).0 },
        ProduceError::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        ProduceError::Fenced(_) => Problem::new(ErrorCode::LogFenced, detail).effect(effect(false)),
        ProduceError::UnknownProducer(_) => Problem::new(ErrorCode::UnknownProducer, detail),
    }
}

/// Records that were wrong. The first decides the code; all are named.
fn records(faults: &[(usize, RecordFault)], place: Place) -> Problem {
    let (index, first) = faults.first().expect("the engine names the records that are wrong");
    let problem = record(first);
    let problem = match (place(*index), faults.len()) {
        (Some(at), 1) => Problem { detail: format!("{at}: {first}"), ..problem },
        (Some(at), count) => Problem { detail: format!("{at} and {} more: {first}", count - 1), ..problem },
        (None, _) => problem,
    };
    let named = |(index, fault): &(usize, RecordFault)| Some((place(*index)? + member(fault), fault.to_string()));
    if place(*index).is_none() {
        return problem;
    }
    problem.at_each(faults.iter().map(|fault| named(fault).expect("all have places or none has")))
}

fn too_many_records(detail: String) -> Problem {
    Problem::new(ErrorCode::BodyTooLarge, detail).limited("REQUEST_RECORDS_MAX", REQUEST_RECORDS_MAX as u64)
}

/// One line that was wrong; the pointer begins at its record.
pub(super) fn line_record(fault: &RecordFault) -> Problem {
    record(fault).at(member(fault), fault.to_string())
}

/// One record that was wrong.
fn record(fault: &RecordFault) -> Problem {
    let detail = fault.to_string();
    match fault {
        RecordFault::TooLarge { limit_bytes, .. } => {
            Problem::new(ErrorCode::RecordTooLarge, detail).limited("max.message.bytes", *limit_bytes as u64)
        }
        RecordFault::Retiring(_) => Problem::new(ErrorCode::PartitionRetiring, detail),
        RecordFault::NoKey => Problem::new(ErrorCode::KeyRequired, detail),
        RecordFault::Rejected { .. } => Problem::new(ErrorCode::RecordRejected, detail),
        RecordFault::TooManyHeaders { .. } | RecordFault::NoPartition(_) | RecordFault::Timestamp { .. } => {
            Problem::new(ErrorCode::InvalidRecord, detail)
        }
    }
}

/// Which member of the record is wrong.
fn member(fault: &RecordFault) -> &'static str {
    match fault {
        RecordFault::TooLarge { .. } | RecordFault::Rejected { .. } => "",
        RecordFault::TooManyHeaders { .. } => "/headers",
        RecordFault::NoKey => "/key",
        RecordFault::NoPartition(_) | RecordFault::Retiring(_) => "/partition",
        RecordFault::Timestamp { .. } => "/timestamp",
    }
}

/// A partition's owner did not store its part.
pub(crate) fn append(fault: &AppendFault) -> Problem {
    let detail = fault.to_string();
    match fault {
        AppendFault::Refused(error) => refused(error, detail),
        AppendFault::Transaction(error) => transactions::told(error),
        AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) | AppendFault::Keyless(_) => {
            Problem::new(ErrorCode::Overloaded, detail)
        }
        AppendFault::Fenced { possible, .. } => Problem::new(ErrorCode::LogFenced, detail).effect(effect(*possible)),
        AppendFault::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        AppendFault::TopicDeleted => Problem::new(ErrorCode::TopicNotFound, detail),
        AppendFault::Retiring(_) => Problem::new(ErrorCode::PartitionRetiring, detail),
    }
}

fn refused(error: &AppendError, detail: String) -> Problem {
    match error {
        AppendError::OutOfOrderSequence { expected, .. } => {
            Problem::new(ErrorCode::OutOfOrderSequence, detail).with(|m| m.expected_sequence = Some(expected.0))
        }
        AppendError::ProducerFenced { .. } => Problem::new(ErrorCode::ProducerFenced, detail),
        AppendError::KeyReused => Problem::new(ErrorCode::IdempotencyKeyReused, detail),
        AppendError::OffsetMismatch { next_offset } => {
            Problem::new(ErrorCode::OffsetMismatch, detail).with(|m| m.next_offset = Some(next_offset.0))
        }
        AppendError::TooLarge { limit_bytes, .. } => {
            // No setting moves this one, so it goes by the name that it has in the broker.
            Problem::new(ErrorCode::RecordTooLarge, detail).limited("BATCH_BYTES_MAX", *limit_bytes as u64)
        }
        AppendError::TransactionOpen { .. } => Problem::new(ErrorCode::TransactionOpen, detail),
        AppendError::TransactionEnded { .. } => Problem::new(ErrorCode::TransactionEnded, detail),
        // Only markers are fenced so, which nobody sends through this interface.
        AppendError::CoordinatorFenced { .. } => Problem::new(ErrorCode::CoordinatorLoading, detail),
        AppendError::TooManyTransactions { limit } => {
            Problem::new(ErrorCode::Overloaded, detail).limited("PRODUCERS_MAX", *limit as u64)
        }
        AppendError::Poisoned(_) => Problem::new(ErrorCode::LogFenced, detail),
    }
}
