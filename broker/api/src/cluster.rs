//! The cluster and its health on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cluster as one of its nodes sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Its identity, drawn when its first node started.
    #[schema(format = Uuid)]
    pub cluster_id: String,
    /// The version of the node that answers.
    pub version: String,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// The node that decides about metadata.
    pub controller: u32,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Where it listens, as host:port.
    pub address: String,
}

/// The answer of a health check that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthReport {
    /// `alive` or `ready`.
    pub status: HealthStatus,
}

/// What a health check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HealthStatus {
    /// The process lives.
    Alive,
    /// It has recovered and serves.
    Ready,
}
