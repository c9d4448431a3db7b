//! The internal topic that holds what coordinators know.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_model::{TopicName, limits};
use serde_json::json;

use super::terms::GroupError;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::{CreateTopic, TopicError};

/// Its name.
pub(super) fn offsets_topic() -> TopicName {
    TopicName::new("__consumer_offsets").expect("the name keeps the rule")
}

impl Core {
    /// The topic, created by the first who needs it.
    pub(super) async fn ensure_offsets_topic(self: &Arc<Self>) -> Result<Arc<Topic>, GroupError> {
        if self.is_closing() {
            return Err(GroupError::Closing);
        }
        // Its records are kept for ever until topics are compacted.
        let config =
            BTreeMap::from([("retention.ms".to_owned(), json!(-1)), ("segment.bytes".to_owned(), json!(64 << 20))]);
        let new = CreateTopic { name: offsets_topic(), partitions: limits::CONSUMER_OFFSETS_PARTITIONS, config };
        self.ensure_topic(new).await.map_err(|error| match error {
            TopicError::Closing => GroupError::Closing,
            TopicError::OutOfFiles => GroupError::Overloaded,
            // A topic without a record says nothing of any group.
            TopicError::Fenced { reason, .. } => GroupError::Fenced { reason, possible: false },
            other => unreachable!("the broker's own topic is valid and never deleted: {other}"),
        })
    }
}
