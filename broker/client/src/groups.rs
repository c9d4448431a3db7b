//! A consumer group's committed offsets.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::{Client, ClientError};

/// Where a group is in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Next to read; none where nothing is committed.
    pub committed: Option<u64>,
    /// The end that readers see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<u64>,
    /// Records left to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// How long the oldest of them has waited, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<i64>,
}

/// Where a group shall be in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewGroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// A number, `earliest`, `latest` or `time:MS`.
    pub offset: OffsetChoice,
}

/// An offset by number or by word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OffsetChoice {
    /// This one.
    Number(u64),
    /// `earliest`, `latest` or `time:MS`.
    Word(String),
}

#[derive(Serialize)]
struct SetRequest<'a> {
    offsets: &'a [NewGroupOffset],
    dry_run: bool,
}

#[derive(Deserialize)]
struct Answer {
    offsets: Vec<GroupOffset>,
}

impl Client {
    /// A group's committed offsets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, ClientError> {
        let request = self.request(Method::GET, &["v1", "groups", group, "offsets"])?;
        Ok(self.send_for_json::<Answer>(request).await?.offsets)
    }

    /// Sets a group's committed offsets, or (with `dry_run`) tells what would be set.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_group_offsets(
        &self,
        group: &str,
        offsets: &[NewGroupOffset],
        dry_run: bool,
    ) -> Result<Vec<GroupOffset>, ClientError> {
        let request = self.request(Method::PUT, &["v1", "groups", group, "offsets"])?;
        Ok(self.send_for_json::<Answer>(request.json(&SetRequest { offsets, dry_run })).await?.offsets)
    }
}
