//! A consumer group's committed offsets.

use std::collections::BTreeMap;

use levada_api::{ErrorCode, GroupOffset, GroupOffsets, SetGroupOffset, SetGroupOffsets, SetGroupOffsetsResult};
use reqwest::Method;

use crate::{Client, ClientError};

impl Client {
    /// A group's committed offsets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn group_offsets(&self, group: &str) -> Result<Vec<GroupOffset>, ClientError> {
        let request = self.request(Method::GET, &["v1", "groups", group, "offsets"])?;
        Ok(self.send_for_json::<GroupOffsets>(request).await?.offsets)
    }

    /// The same as next offsets by topic and partition; none where nothing is known of the group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn committed_offsets(&self, group: &str) -> Result<BTreeMap<(String, u32), u64>, ClientError> {
        match self.group_offsets(group).await {
            Ok(offsets) => Ok(offsets.into_iter().map(|o| ((o.topic, o.partition), o.committed)).collect()),
            Err(error) if error.problem().is_some_and(|problem| problem.code == ErrorCode::GroupNotFound) => {
                Ok(BTreeMap::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Sets a group's committed offsets, or (with `dry_run`) tells what would be set.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<SetGroupOffset>,
        dry_run: bool,
    ) -> Result<Vec<GroupOffset>, ClientError> {
        let request = self.request(Method::PUT, &["v1", "groups", group, "offsets"])?;
        let request = request.json(&SetGroupOffsets { offsets, dry_run });
        Ok(self.send_for_json::<SetGroupOffsetsResult>(request).await?.offsets)
    }
}
