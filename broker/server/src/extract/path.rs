//! Names and numbers in the path. A segment is decoded exactly once, by the router.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use levada_api::{ErrorCode, Problem, echo};
use levada_engine::TransactionHandle;
use levada_model::limits::JSON_INTEGER_MAX;
use levada_model::{GroupName, MemberId, ModuleName, Offset, PartitionIndex, ProcessorName, TopicName};

use super::params::{digits, json_integer, no_value};
use crate::refusal::{Refusal, group_name, module_name, processor_name, topic_name, unknown_member};

/// Reads the decoded segment `{name}` of the route.
async fn segment<T>(
    parts: &mut Parts,
    name: &str,
    read: impl FnOnce(&str) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let params = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|_| Problem::new(ErrorCode::InvalidRequest, "the path is not UTF-8 after percent-decoding"))?;
    let found = params.iter().find(|(key, _)| *key == name);
    read(found.expect("the route has the segment").1)
}

/// `{topic}`.
pub(crate) struct TopicPath(pub(crate) TopicName);

impl<S: Sync> FromRequestParts<S> for TopicPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let read = |name: &str| TopicName::new(name).map_err(|error| topic_name(&error));
        Ok(Self(segment(parts, "topic", read).await?))
    }
}

/// `{topic}` and `{partition}`.
pub(crate) struct PartitionPath(pub(crate) TopicName, pub(crate) PartitionIndex);

impl<S: Sync> FromRequestParts<S> for PartitionPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let TopicPath(topic) = TopicPath::from_request_parts(parts, state).await?;
        let read = |text: &str| digits(text).ok_or_else(|| no_number("partition", u32::MAX.into(), text));
        Ok(Self(topic, PartitionIndex(segment(parts, "partition", read).await?)))
    }
}

/// `{group}`.
pub(crate) struct GroupPath(pub(crate) GroupName);

impl<S: Sync> FromRequestParts<S> for GroupPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let read = |name: &str| GroupName::new(name).map_err(|error| group_name(&error));
        Ok(Self(segment(parts, "group", read).await?))
    }
}

/// `{group}` and `{member}`.
pub(crate) struct MemberPath(pub(crate) GroupName, pub(crate) MemberId);

impl<S: Sync> FromRequestParts<S> for MemberPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let GroupPath(group) = GroupPath::from_request_parts(parts, state).await?;
        // What cannot be an id is that of no member.
        let read = |id: &str| {
            let unknown = |_| unknown_member(&group, id);
            MemberId::new(id).map_err(unknown)
        };
        let member = segment(parts, "member", read).await?;
        Ok(Self(group, member))
    }
}

/// `{module}`.
pub(crate) struct ModulePath(pub(crate) ModuleName);

impl<S: Sync> FromRequestParts<S> for ModulePath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let read = |name: &str| ModuleName::new(name).map_err(|error| module_name(&error));
        Ok(Self(segment(parts, "module", read).await?))
    }
}

/// `{module}` and `{version}`.
pub(crate) struct VersionPath(pub(crate) ModuleName, pub(crate) u32);

impl<S: Sync> FromRequestParts<S> for VersionPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let ModulePath(module) = ModulePath::from_request_parts(parts, state).await?;
        let read = |text: &str| digits(text).ok_or_else(|| no_number("version", u32::MAX.into(), text));
        Ok(Self(module, segment(parts, "version", read).await?))
    }
}

/// `{file}` of the contract.
pub(crate) struct FilePath(pub(crate) String);

impl<S: Sync> FromRequestParts<S> for FilePath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self(segment(parts, "file", |name| Ok(name.to_owned())).await?))
    }
}

/// `{processor}`.
pub(crate) struct ProcessorPath(pub(crate) ProcessorName);

impl<S: Sync> FromRequestParts<S> for ProcessorPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let read = |name: &str| ProcessorName::new(name).map_err(|error| processor_name(&error));
        Ok(Self(segment(parts, "processor", read).await?))
    }
}

/// `{offset}`.
pub(crate) struct OffsetPath(pub(crate) Offset);

impl<S: Sync> FromRequestParts<S> for OffsetPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let read = |text: &str| json_integer(text).ok_or_else(|| no_number("offset", JSON_INTEGER_MAX, text));
        Ok(Self(Offset(segment(parts, "offset", read).await?)))
    }
}

/// `{transaction}`.
pub(crate) struct TransactionPath(pub(crate) TransactionHandle);

impl<S: Sync> FromRequestParts<S> for TransactionPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self(segment(parts, "transaction", transaction).await?))
    }
}

/// A transaction's id. What cannot be one is that of no transaction.
pub(crate) fn transaction(text: &str) -> Result<TransactionHandle, Problem> {
    text.parse().map_err(|_| {
        let detail = format!("there is no transaction {:?}", echo(text));
        Problem::new(ErrorCode::TransactionNotFound, detail)
    })
}

fn no_number(name: &str, most: u64, text: &str) -> Problem {
    no_value(&format!("{name} in the path"), format_args!("an integer from 0 to {most}"), text)
}
