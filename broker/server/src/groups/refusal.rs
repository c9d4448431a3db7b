//! The engine's errors of groups as problems.

use levada_api::{Effect, ErrorCode, Problem};
use levada_engine::GroupError;
use levada_model::GroupName;

use super::words::refused;
use crate::refusal::{Refusal, denied, effect, unknown_member};

impl From<GroupError> for Refusal {
    fn from(error: GroupError) -> Self {
        Self(problem(error, |index| format!("/offsets/{index}")))
    }
}

/// The refusal of a member's call; its records or offsets are at these pointers.
pub(crate) fn member(group: &GroupName, error: GroupError, pointer: impl Fn(usize) -> String) -> Refusal {
    Refusal(match error {
        GroupError::UnknownMember(member) => unknown_member(group, member.as_str()),
        other => problem(other, pointer),
    })
}

fn problem(error: GroupError, pointer: impl Fn(usize) -> String) -> Problem {
    let detail = error.to_string();
    match error {
        GroupError::Denied(error) => denied(&error),
        GroupError::NotFound(_) => Problem::new(ErrorCode::GroupNotFound, detail),
        GroupError::UnknownMember(_) => Problem::new(ErrorCode::UnknownMember, detail),
        GroupError::Offsets(wrong) => {
            let places = wrong.into_iter().map(|(index, detail)| (pointer(index), detail));
            Problem::new(ErrorCode::InvalidOffset, detail).at_each(places)
        }
        GroupError::UnknownTopics(topics) => {
            let place = |(index, topic)| (format!("/topics/{index}"), format!("there is no topic {topic}"));
            Problem::new(ErrorCode::TopicNotFound, detail).at_each(topics.into_iter().map(place))
        }
        GroupError::NoAssignor(_) => Problem::new(ErrorCode::InvalidField, detail.clone()).at("/assignor", detail),
        GroupError::AssignorConfig { .. } => {
            Problem::new(ErrorCode::InvalidModuleConfig, detail.clone()).at("/assignor_config", detail)
        }
        GroupError::FencedInstance { .. } => Problem::new(ErrorCode::FencedInstance, detail),
        GroupError::IllegalGeneration(committed) => {
            Problem::new(ErrorCode::IllegalGeneration, detail).with(|m| m.refused = refused(committed.refused))
        }
        GroupError::OtherGroup => Problem::new(ErrorCode::CursorGone, detail),
        GroupError::Internal(_) => Problem::new(ErrorCode::InternalGroup, detail),
        GroupError::Active(_) => Problem::new(ErrorCode::GroupNotEmpty, detail),
        GroupError::GroupFull { .. } | GroupError::SubscriptionsFull { .. } => {
            Problem::new(ErrorCode::GroupFull, detail)
        }
        GroupError::InconsistentProtocol => Problem::new(ErrorCode::InconsistentProtocol, detail),
        GroupError::DeadLetters { .. } => Problem::new(ErrorCode::NoDeadLetters, detail),
        GroupError::DeadLettersBusy { .. } => Problem::new(ErrorCode::Overloaded, detail),
        GroupError::NotEnoughReplicas { .. } => Problem::new(ErrorCode::NotEnoughReplicas, detail),
        GroupError::RejectTooLarge { .. } => {
            Problem::new(ErrorCode::InvalidField, detail.clone()).at("/records", detail)
        }
        GroupError::InPart(error) => Problem { detail, ..problem(*error, pointer) }.effect(Effect::Partial),
        GroupError::Loading => Problem::new(ErrorCode::CoordinatorLoading, detail).effect(effect(true)),
        GroupError::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        GroupError::Overloaded | GroupError::TooManyPending { .. } => Problem::new(ErrorCode::Overloaded, detail),
        GroupError::Storage(_) => Problem::new(ErrorCode::StorageFailed, detail),
        GroupError::Fenced { possible, .. } => Problem::new(ErrorCode::LogFenced, detail).effect(effect(possible)),
    }
}
