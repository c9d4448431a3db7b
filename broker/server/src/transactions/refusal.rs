//! The engine's errors of transactions as problems.

use std::collections::BTreeMap;

use levada_api::{ErrorCode, Problem};
use levada_engine::{GroupError, TransactionError};
use levada_model::{GroupName, TopicName};

use crate::groups::refuse_member;
use crate::produce::refusal as produce;
use crate::refusal::{denied, effect};

/// Where the offsets of a request are.
pub(super) struct OfOffsets<'r> {
    /// Whose they are.
    pub(super) group: &'r GroupName,
    /// JSON pointer to their object.
    pub(super) at: &'static str,
}

/// Places of the records of each topic in the request's list.
pub(super) type Places = BTreeMap<TopicName, Vec<usize>>;

/// The refusal of a call whose request has no list.
pub(crate) fn refuse(error: TransactionError) -> Problem {
    problem(error, &Places::new(), None)
}

/// The refusal of offsets.
pub(super) fn refuse_offsets(error: TransactionError, offsets: &OfOffsets<'_>) -> Problem {
    problem(error, &Places::new(), Some(offsets))
}

/// The refusal of a whole transaction.
pub(super) fn refuse_execute(error: TransactionError, places: &Places, offsets: Option<&OfOffsets<'_>>) -> Problem {
    problem(error, places, offsets)
}

fn problem(error: TransactionError, places: &Places, offsets: Option<&OfOffsets<'_>>) -> Problem {
    let detail = error.to_string();
    match error {
        TransactionError::Denied(error) => denied(&error),
        TransactionError::InvalidTimeout { .. } => wrong("/timeout_ms", &detail),
        TransactionError::ReservedId => wrong("/transactional_id", &detail),
        TransactionError::TooManyIds { limit } => {
            Problem::new(ErrorCode::Overloaded, detail).limited("TRANSACTIONAL_IDS_MAX", limit as u64)
        }
        TransactionError::UnknownProducer(..) => Problem::new(ErrorCode::UnknownProducer, detail),
        TransactionError::ProducerFenced => Problem::new(ErrorCode::ProducerFenced, detail),
        TransactionError::ConcurrentTransactions => Problem::new(ErrorCode::ConcurrentTransactions, detail),
        TransactionError::NotFound => Problem::new(ErrorCode::TransactionNotFound, detail),
        TransactionError::Ended { .. } => Problem::new(ErrorCode::TransactionEnded, detail),
        TransactionError::TooManyPartitions { limit } => too_large(detail, "TRANSACTION_PARTITIONS_MAX", limit),
        TransactionError::TooManyGroups { limit } => too_large(detail, "TRANSACTION_GROUPS_MAX", limit),
        TransactionError::AnswerTooLarge { limit } => too_large(detail, "EXECUTE_ANSWER_BYTES_MAX", limit),
        TransactionError::KeyReused => Problem::new(ErrorCode::IdempotencyKeyReused, detail),
        TransactionError::Empty => wrong("/records", &detail),
        TransactionError::Produce { topic, error } => {
            let of_topic = places.get(&topic);
            let place = |index: usize| of_topic?.get(index).map(|place| format!("/records/{place}"));
            Problem { detail, ..produce::produce(*error, &place) }
        }
        TransactionError::Append { fault, .. } => Problem { detail, ..produce::append(&fault) },
        TransactionError::Group(error) => group(error, offsets),
        // Whoever asks again learns what became of it.
        TransactionError::Loading => Problem::new(ErrorCode::CoordinatorLoading, detail).effect(effect(true)),
        TransactionError::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        TransactionError::Overloaded => Problem::new(ErrorCode::Overloaded, detail),
        TransactionError::Storage(_) => Problem::new(ErrorCode::StorageFailed, detail),
        TransactionError::Fenced { possible, .. } => {
            Problem::new(ErrorCode::LogFenced, detail).effect(effect(possible))
        }
    }
}

/// A group's refusal, at the place in the request that names what is refused.
fn group(error: GroupError, offsets: Option<&OfOffsets<'_>>) -> Problem {
    let Some(OfOffsets { group, at }) = offsets else { return crate::refusal::Refusal::from(error).0 };
    let of_member = matches!(error, GroupError::UnknownMember(_) | GroupError::FencedInstance { .. });
    let problem = refuse_member(group, error, |index| format!("{at}/offsets/{index}")).0;
    if !of_member {
        return problem;
    }
    let detail = problem.detail.clone();
    problem.at(format!("{at}/member_id"), detail)
}

fn wrong(pointer: &str, detail: &str) -> Problem {
    Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}")).at(pointer, detail)
}

fn too_large(detail: String, name: &str, limit: usize) -> Problem {
    Problem::new(ErrorCode::TransactionTooLarge, detail).limited(name, limit as u64)
}
