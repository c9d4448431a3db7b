//! The engine's errors of transactions as problems.

use levada_api::{ErrorCode, Problem};
use levada_engine::{GroupError, ProduceError, TransactionError};
use levada_model::GroupName;

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

/// The refusal of a call whose request has no offsets.
pub(crate) fn refuse(error: TransactionError) -> Problem {
    refuse_with(error, None)
}

/// The refusal of a request with offsets.
pub(super) fn refuse_with(error: TransactionError, offsets: Option<&OfOffsets<'_>>) -> Problem {
    match error {
        TransactionError::Produce { topic, place, error } => {
            let is_of_topic =
                matches!(*error, ProduceError::NotFound(_) | ProduceError::Internal(_) | ProduceError::Denied(_));
            let problem = produce::produce(*error, produce::in_records);
            let detail = format!("topic {topic}: {}", problem.detail);
            let at = is_of_topic.then(|| (format!("/records/{place}/topic"), problem.detail.clone()));
            let problem = Problem { detail, ..problem };
            match at {
                Some((pointer, detail)) => problem.at(pointer, detail),
                None => problem,
            }
        }
        TransactionError::Group(error) => group(error, offsets),
        other => told(&other),
    }
}

/// The refusal of a transaction itself, not of what was to go into it.
///
/// # Panics
/// On the others.
pub(crate) fn told(error: &TransactionError) -> Problem {
    let detail = error.to_string();
    match error {
        TransactionError::Denied(error) => denied(error),
        TransactionError::InvalidTimeout { .. } => wrong("/timeout_ms", &detail),
        TransactionError::ReservedId => wrong("/transactional_id", &detail),
        TransactionError::TooManyIds { limit } => {
            Problem::new(ErrorCode::TransactionalIdsFull, detail).limited("TRANSACTIONAL_IDS_MAX", *limit as u64)
        }
        TransactionError::UnknownProducer(..) => Problem::new(ErrorCode::UnknownProducer, detail),
        TransactionError::ProducerFenced => Problem::new(ErrorCode::ProducerFenced, detail),
        TransactionError::ConcurrentTransactions => Problem::new(ErrorCode::ConcurrentTransactions, detail),
        TransactionError::NotFound => Problem::new(ErrorCode::TransactionNotFound, detail),
        TransactionError::Ended { .. } => Problem::new(ErrorCode::TransactionEnded, detail),
        TransactionError::TooManyPartitions { limit } => too_large(detail, "TRANSACTION_PARTITIONS_MAX", *limit),
        TransactionError::TooManyGroups { limit } => too_large(detail, "TRANSACTION_GROUPS_MAX", *limit),
        TransactionError::AnswerTooLarge { limit } => too_large(detail, "EXECUTE_ANSWER_BYTES_MAX", *limit),
        TransactionError::KeyReused => Problem::new(ErrorCode::IdempotencyKeyReused, detail),
        TransactionError::Empty => wrong("/records", &detail),
        TransactionError::Append { fault, .. } => Problem { detail, ..produce::append(fault) },
        // Whoever asks again learns what became of it.
        TransactionError::Loading => Problem::new(ErrorCode::CoordinatorLoading, detail).effect(effect(true)),
        // What it waited for, or is found there, decides the code; but something of it may stand.
        TransactionError::Unanswered(why) => Problem { detail, ..told(why) }.effect(effect(true)),
        TransactionError::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        TransactionError::Overloaded => Problem::new(ErrorCode::Overloaded, detail),
        TransactionError::Storage(_) => Problem::new(ErrorCode::StorageFailed, detail),
        TransactionError::Fenced { possible, .. } => {
            Problem::new(ErrorCode::LogFenced, detail).effect(effect(*possible))
        }
        TransactionError::Produce { .. } | TransactionError::Group(_) => {
            unreachable!("a transaction that takes records or ends asks for neither: {detail}")
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

#[cfg(test)]
mod tests {
    use levada_model::limits::TRANSACTIONAL_IDS_MAX;

    use super::*;

    #[test]
    fn that_there_are_too_many_ids_invites_no_retry_since_they_are_kept_for_days() {
        let problem = refuse(TransactionError::TooManyIds { limit: TRANSACTIONAL_IDS_MAX });
        assert_eq!((problem.code, problem.status), (ErrorCode::TransactionalIdsFull, 422));
        assert!(!problem.retryable && problem.effect == levada_api::Effect::None);
        assert_eq!(problem.members.limit.as_deref(), Some("TRANSACTIONAL_IDS_MAX"));
    }

    #[test]
    fn an_end_that_stands_and_is_not_answered_is_never_said_to_have_done_nothing() {
        let fenced = TransactionError::Fenced { reason: "full".into(), possible: false };
        for (why, code) in [
            (TransactionError::Closing, ErrorCode::ShuttingDown),
            (TransactionError::Overloaded, ErrorCode::Overloaded),
            (fenced, ErrorCode::LogFenced),
        ] {
            assert_eq!(told(&why).effect, levada_api::Effect::None, "{why}");
            let problem = refuse(TransactionError::Unanswered(Box::new(why)));
            assert_eq!((problem.code, problem.effect), (code, levada_api::Effect::Possible));
            assert!(problem.detail.starts_with("what was asked for was taken in"), "{}", problem.detail);
        }
    }

    #[test]
    fn a_topic_that_is_not_there_is_shown_where_a_whole_transaction_first_names_it() {
        let topic = levada_model::TopicName::new("t").expect("a name");
        let error = Box::new(ProduceError::NotFound(topic.clone()));
        let problem = refuse(TransactionError::Produce { topic: topic.clone(), place: 3, error });
        assert_eq!(problem.code, ErrorCode::TopicNotFound);
        assert_eq!(problem.errors.iter().map(|error| error.pointer.as_str()).collect::<Vec<_>>(), ["/records/3/topic"]);
        let error = Box::new(ProduceError::Closing);
        assert!(refuse(TransactionError::Produce { topic, place: 3, error }).errors.is_empty(), "it is not at fault");
    }
}
