//! Who asks, for what, and whether it is allowed. Today everyone is `anonymous` and may do everything; call sites
//! already pass both, so that tokens and access lists change none of them.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::{GroupName, ModuleName, ProcessorName, TopicName};

/// The identity behind a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Whoever has not said who they are.
    #[must_use]
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// The broker itself.
    #[must_use]
    pub fn broker() -> Self {
        Self("broker".into())
    }

    /// Whoever was known by this name when it was stored.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// The name, as it is logged and as idempotency keys are bound to it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What somebody wants to do (Kafka's ACL operations).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Create a topic.
    Create,
    /// Change partitions or configuration, or truncate.
    Alter,
    /// Delete.
    Delete,
    /// See that it exists, and its state.
    Describe,
    /// Read records or committed offsets.
    Read,
    /// Append records or commit offsets.
    Write,
}

/// What it is wanted of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// One topic.
    Topic(&'a TopicName),
    /// One consumer group.
    Group(&'a GroupName),
    /// One module.
    Module(&'a ModuleName),
    /// One processor.
    Processor(&'a ProcessorName),
    /// The cluster as a whole.
    Cluster,
}

/// An operation that its principal may not do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{principal} may not {operation:?} {resource}")]
pub struct Denied {
    /// Who asked.
    pub principal: Principal,
    /// What for.
    pub operation: Operation,
    /// Of what, as text.
    pub resource: String,
}

/// Decides whether a principal may do an operation. Asked by every engine call; must answer at once.
pub trait Authorizer: Send + Sync + 'static {
    /// # Errors
    /// [`Denied`] when it is not allowed.
    fn authorize(&self, who: &Principal, operation: Operation, resource: Resource<'_>) -> Result<(), Denied>;
}

/// Allows everything to everyone.
#[derive(Debug, Default, Clone, Copy)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn authorize(&self, _: &Principal, _: Operation, _: Resource<'_>) -> Result<(), Denied> {
        Ok(())
    }
}
