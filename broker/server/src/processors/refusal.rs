//! The engine's errors of a call on processors as problems.

use levada_api::{ErrorCode, Problem};
use levada_engine::ProcessorError;

use crate::refusal::{denied, effect};

/// A call that was refused.
pub(super) fn refuse(error: ProcessorError) -> Problem {
    let detail = error.to_string();
    match error {
        ProcessorError::Denied(error) => denied(&error),
        ProcessorError::NotFound(_) => Problem::new(ErrorCode::ProcessorNotFound, detail),
        ProcessorError::Document(places) => document(places),
        ProcessorError::Running => Problem::new(ErrorCode::ProcessorRunning, detail),
        ProcessorError::TooMany { limit } => {
            Problem::new(ErrorCode::ProcessorsFull, detail).with(|m| m.limit_value = Some(limit as u64))
        }
        ProcessorError::NoHost => Problem::new(ErrorCode::ModulesOff, detail),
        ProcessorError::Busy { possible, .. } => Problem::new(ErrorCode::Overloaded, detail).effect(effect(possible)),
        ProcessorError::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        ProcessorError::Storage(_) => Problem::new(ErrorCode::StorageFailed, detail),
        ProcessorError::Fenced { possible, .. } => Problem::new(ErrorCode::LogFenced, detail).effect(effect(possible)),
    }
}

/// A document that is wrong at these places.
pub(super) fn document(places: Vec<(String, String)>) -> Problem {
    let detail = match &places[..] {
        [(pointer, detail)] => format!("{pointer}: {detail}"),
        several => format!("{} places of the document are wrong", several.len()),
    };
    Problem::new(ErrorCode::InvalidField, detail).at_each(places.into_iter())
}
