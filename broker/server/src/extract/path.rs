//! Names and numbers in the path. A segment is decoded exactly once, by the router.

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use levada_api::{ErrorCode, Problem};
use levada_model::{GroupName, PartitionIndex, TopicName};

use super::params::digits;
use crate::refusal::{Refusal, group_name, topic_name};

/// The decoded segment `{name}` of the route.
pub(crate) async fn path_segment(parts: &mut Parts, name: &str) -> Result<String, Problem> {
    let params = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|_| Problem::new(ErrorCode::InvalidRequest, "the path is not UTF-8 after percent-decoding"))?;
    let found = params.iter().find(|(key, _)| *key == name);
    Ok(found.expect("the route has the segment").1.to_owned())
}

/// `{topic}`.
pub(crate) struct TopicPath(pub(crate) TopicName);

impl<S: Sync> FromRequestParts<S> for TopicPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let name = path_segment(parts, "topic").await?;
        Ok(Self(TopicName::new(&name).map_err(|error| topic_name(&error))?))
    }
}

/// `{topic}` and `{partition}`.
pub(crate) struct PartitionPath(pub(crate) TopicName, pub(crate) PartitionIndex);

impl<S: Sync> FromRequestParts<S> for PartitionPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let TopicPath(topic) = TopicPath::from_request_parts(parts, state).await?;
        let text = path_segment(parts, "partition").await?;
        Ok(Self(topic, PartitionIndex(number(&text, "partition")?)))
    }
}

/// `{group}`.
pub(crate) struct GroupPath(pub(crate) GroupName);

impl<S: Sync> FromRequestParts<S> for GroupPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let name = path_segment(parts, "group").await?;
        Ok(Self(GroupName::new(&name).map_err(|error| group_name(&error))?))
    }
}

/// Plain decimal digits; signs and spaces are no numbers here.
fn number(text: &str, name: &str) -> Result<u32, Problem> {
    let refused = || {
        let detail = format!("{name} in the path takes an integer from 0 to {}; {text:?} is not", u32::MAX);
        Problem::new(ErrorCode::InvalidParameter, detail)
    };
    digits(text).ok_or_else(refused)
}
