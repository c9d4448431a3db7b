//! The wire types of the HTTP interface and its error codes, as plain serde types that server and client share.
//!
//! Not here: HTTP itself (no axum), and what the engine does.

mod cluster;
mod error;
mod groups;
pub mod strict;
mod topics;

pub use cluster::{Cluster, HealthReport, HealthStatus, Node};
pub use error::{Effect, ErrorCode, FieldError, Members, Problem};
pub use groups::{GroupOffset, GroupOffsets, OffsetPlace, SetGroupOffset, SetGroupOffsets, SetGroupOffsetsResult};
pub use topics::{
    AlterTopic, CreateTopic, Partition, PartitionState, Topic, TopicList, TruncateBefore, TruncateTopic,
    TruncatedPartition, TruncatedTopic,
};
