//! The server itself: whether it is ready, and who it is.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::{Client, ClientError};

/// A cluster as the server tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its identity.
    pub cluster_id: String,
    /// The server's version.
    pub version: String,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// The node that decides about metadata.
    pub controller: u32,
}

/// One server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Where it answers.
    pub address: String,
}

impl Client {
    /// Who answers.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster(&self) -> Result<Cluster, ClientError> {
        self.send_for_json(self.request(Method::GET, &["v1", "cluster"])?).await
    }

    /// Whether the server has recovered, serves, and takes writes.
    ///
    /// # Errors
    /// When it does not, with its reason.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.send(self.request(Method::GET, &["readyz"])?).await.map(drop)
    }
}
