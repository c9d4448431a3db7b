//! The engine's errors of a call on modules as problems.

use levada_api::{ErrorCode, Problem};
use levada_engine::ModuleError;

use super::words::used;
use crate::read::refusal::fetch;
use crate::refusal::{denied, effect};

/// A call that was refused.
pub(crate) fn refuse(error: ModuleError) -> Problem {
    let detail = error.to_string();
    match error {
        ModuleError::Denied(error) => denied(&error),
        ModuleError::NotFound(_) | ModuleError::NoVersion { .. } => Problem::new(ErrorCode::ModuleNotFound, detail),
        ModuleError::Invalid(_) => Problem::new(ErrorCode::InvalidModule, detail),
        ModuleError::Config { .. } | ModuleError::ConfigTooLong { .. } => {
            Problem::new(ErrorCode::InvalidModuleConfig, detail)
        }
        ModuleError::TooLarge { limit } => {
            Problem::new(ErrorCode::BodyTooLarge, detail).with(|m| m.limit_value = Some(limit as u64))
        }
        ModuleError::InUse { by, .. } => {
            let by: Vec<_> = by.into_iter().map(used).collect();
            let names: Vec<_> = by.iter().map(|used| format!("{} of {}", used.kind.as_str(), used.name)).collect();
            let detail = format!("{detail}: {}", names.join(", "));
            Problem::new(ErrorCode::ModuleInUse, detail).with(|m| m.used_by = by)
        }
        ModuleError::TooMany { limit, .. } => {
            Problem::new(ErrorCode::ModulesFull, detail).with(|m| m.limit_value = Some(limit))
        }
        ModuleError::DryRun(_) => Problem::new(ErrorCode::InvalidField, detail),
        ModuleError::Fetch(error) => fetch(&error),
        ModuleError::Busy(_) => Problem::new(ErrorCode::Overloaded, detail),
        ModuleError::NoHost => Problem::new(ErrorCode::ModulesOff, detail),
        ModuleError::Closing => Problem::new(ErrorCode::ShuttingDown, detail),
        ModuleError::Storage(_) => Problem::new(ErrorCode::StorageFailed, detail),
        ModuleError::Fenced { possible, .. } => Problem::new(ErrorCode::LogFenced, detail).effect(effect(possible)),
    }
}
