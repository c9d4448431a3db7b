//! Problems as answers, and the one place where the engine's errors become problems.
//!
//! Not here: the errors of produce, fetch and groups, which are told beside their handlers.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use levada_api::strict::pointer_token;
use levada_api::{Effect, ErrorCode, Problem, echo};
use levada_engine::{ModuleError, TopicError};
use levada_extension::{ModuleFault, StopCause};
use levada_model::{ConfigError, Denied, GroupName, NameError};

use crate::modules;

/// Seconds after which a refused but retryable request may be tried again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// The answer to a request that was refused.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let status = StatusCode::from_u16(problem.status).expect("codes have valid statuses");
        let body = serde_json::to_vec(&problem).expect("a problem is plain data");
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        let headers = response.headers_mut();
        if matches!(problem.status, 429 | 503) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if problem.code == ErrorCode::UpgradeRequired {
            // RFC 9110 §15.5.22, RFC 6455 §4.4.
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        let accepted = match problem.code {
            ErrorCode::UnsupportedEncoding => Some(header::ACCEPT_ENCODING),
            ErrorCode::UnsupportedMediaType => Some(header::ACCEPT),
            _ => None,
        };
        if let (Some(name), Ok(list)) = (accepted, HeaderValue::try_from(problem.members.accepted.join(", "))) {
            headers.insert(name, list);
        }
        response
    }
}

pub(crate) fn denied(error: &Denied) -> Problem {
    Problem::new(ErrorCode::Denied, error.to_string())
}

pub(crate) fn topic_name(error: &NameError) -> Problem {
    Problem::new(ErrorCode::InvalidTopicName, error.to_string())
}

pub(crate) fn group_name(error: &NameError) -> Problem {
    Problem::new(ErrorCode::InvalidGroupName, error.to_string())
}

pub(crate) fn module_name(error: &NameError) -> Problem {
    Problem::new(ErrorCode::InvalidModuleName, error.to_string())
}

pub(crate) fn processor_name(error: &NameError) -> Problem {
    Problem::new(ErrorCode::InvalidProcessorName, error.to_string())
}

/// A module that gave no answer to the broker; `detail` names it.
pub(crate) fn module_fault(fault: &ModuleFault, detail: String) -> Problem {
    let code = match fault {
        ModuleFault::Busy(_) => ErrorCode::Overloaded,
        ModuleFault::Stopped { cause: StopCause::Deadline, .. } => ErrorCode::ModuleTimeout,
        _ => ErrorCode::ModuleFailed,
    };
    Problem::new(code, detail)
}

/// There is no such member, whether there was one or not.
pub(crate) fn unknown_member(group: &GroupName, member: &str) -> Problem {
    let detail = format!("group {group} has no member {:?} (any more); join again", echo(member));
    Problem::new(ErrorCode::UnknownMember, detail)
}

/// What a refusal of a failing disk says of its effect.
pub(crate) fn effect(possible: bool) -> Effect {
    if possible { Effect::Possible } else { Effect::None }
}

fn config(error: &ConfigError) -> Problem {
    let code = match error {
        ConfigError::Unknown { .. } => ErrorCode::UnknownConfig,
        ConfigError::Invalid { .. } => ErrorCode::InvalidConfig,
    };
    let pointer = format!("/config/{}", pointer_token(error.name()));
    Problem::new(code, error.to_string()).at(pointer, error.to_string())
}

/// Whether a setting that names a module is wrong, and not the broker unable to tell now.
fn is_settings_fault(error: &ModuleError) -> bool {
    match error {
        ModuleError::NotFound(_)
        | ModuleError::NoVersion { .. }
        | ModuleError::Invalid(_)
        | ModuleError::Config { .. }
        | ModuleError::ConfigTooLong { .. } => true,
        ModuleError::Denied(_)
        | ModuleError::InUse { .. }
        | ModuleError::TooLarge { .. }
        | ModuleError::TooMany { .. }
        | ModuleError::DryRun(_)
        | ModuleError::Fetch(_)
        | ModuleError::Busy(_)
        | ModuleError::NoHost
        | ModuleError::Closing
        | ModuleError::Storage(_)
        | ModuleError::Fenced { .. } => false,
    }
}

impl From<TopicError> for Refusal {
    fn from(error: TopicError) -> Self {
        let error = match error {
            TopicError::Module { error, .. } if !is_settings_fault(&error) => return Self(modules::refuse(*error)),
            error => error,
        };
        let code = match &error {
            TopicError::Denied(error) => return Self(denied(error)),
            TopicError::Config(error) => return Self(config(error)),
            TopicError::NotFound(_) => ErrorCode::TopicNotFound,
            TopicError::Exists(_) => ErrorCode::TopicExists,
            TopicError::Reserved(_) => ErrorCode::ReservedTopicName,
            TopicError::Internal(_) => ErrorCode::InternalTopic,
            TopicError::PartitionCount { .. } => ErrorCode::InvalidPartitionCount,
            TopicError::VersionMismatch { .. } => ErrorCode::PreconditionFailed,
            // Only a body names partitions of these calls.
            TopicError::NoPartition { .. } => ErrorCode::InvalidOffset,
            TopicError::Repeated(_) => ErrorCode::InvalidField,
            TopicError::BeyondEnd { .. } => ErrorCode::InvalidOffset,
            TopicError::Keyless { .. } => ErrorCode::KeylessRecords,
            TopicError::NotCompacted(_) => ErrorCode::NotCompacted,
            TopicError::CompactionFailed { .. } => ErrorCode::CompactionFailed,
            TopicError::Module { .. } => ErrorCode::InvalidConfig,
            TopicError::Storage(_) => ErrorCode::StorageFailed,
            TopicError::Closing => ErrorCode::ShuttingDown,
            TopicError::OutOfFiles => ErrorCode::Overloaded,
            TopicError::Fenced { .. } => ErrorCode::LogFenced,
        };
        let problem = Problem::new(code, error.to_string());
        Self(match error {
            TopicError::BeyondEnd { high_watermark, .. } => problem.with(|m| m.high_watermark = Some(high_watermark.0)),
            TopicError::Fenced { possible, .. } => problem.effect(effect(possible)),
            TopicError::PartitionCount { .. } => problem.at("/partitions", error.to_string()),
            TopicError::Keyless { .. } => problem.at("/config/cleanup.policy", error.to_string()),
            TopicError::Module { setting, .. } => problem.at(format!("/config/{setting}"), error.to_string()),
            TopicError::CompactionFailed { .. } => problem.effect(Effect::Partial),
            _ => problem,
        })
    }
}
