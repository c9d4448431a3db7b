//! The internal topic that holds what coordinators know, and its settings, which are the broker's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_model::{TopicName, limits};
use serde_json::{Value, json};

use super::terms::GroupError;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::metadata::{Command, Metadata, MetadataError};
use crate::{CreateTopic, TopicError};

/// Small enough that compaction, which leaves the newest segment alone, keeps what a load reads short.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Its name.
pub(super) fn offsets_topic() -> TopicName {
    TopicName::new("__consumer_offsets").expect("the name keeps the rule")
}

fn config() -> BTreeMap<String, Value> {
    let settings = [("cleanup.policy", json!("compact")), ("segment.bytes", json!(SEGMENT_BYTES))];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Gives a topic that an earlier version created the settings of this one. To be done before its logs are opened.
///
/// # Errors
/// When the metadata takes no changes.
pub(crate) fn bring_up_to_date(metadata: &dyn Metadata) -> Result<(), MetadataError> {
    let name = offsets_topic();
    let wanted = config();
    let image = metadata.image();
    let Some(topic) = image.topics.get(&name).filter(|topic| topic.config != wanted) else { return Ok(()) };
    let surplus = topic.config.keys().filter(|setting| !wanted.contains_key(*setting)).cloned();
    let mut config: BTreeMap<_, _> = surplus.map(|setting| (setting, None)).collect();
    config.extend(wanted.into_iter().map(|(setting, value)| (setting, Some(value))));
    tracing::info!(topic = %name, "its settings are brought up to date");
    metadata.propose(&Command::AlterTopic { name, if_version: None, partitions: None, config }).map(drop)
}

impl Core {
    /// The topic, created by the first who needs it.
    pub(super) async fn ensure_offsets_topic(self: &Arc<Self>) -> Result<Arc<Topic>, GroupError> {
        if self.is_closing() {
            return Err(GroupError::Closing);
        }
        let partitions = limits::CONSUMER_OFFSETS_PARTITIONS;
        let new = CreateTopic { name: offsets_topic(), partitions, config: config() };
        self.ensure_topic(new).await.map_err(|error| match error {
            TopicError::Closing => GroupError::Closing,
            TopicError::OutOfFiles => GroupError::Overloaded,
            TopicError::Storage(error) => GroupError::Storage(error),
            // A topic without a record says nothing of any group.
            TopicError::Fenced { reason, .. } => GroupError::Fenced { reason, possible: false },
            other => unreachable!("the broker's own topic is valid and never deleted: {other}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use levada_log::{SimStorage, Storage};
    use levada_model::{ManualClock, Timestamp, TopicId};
    use uuid::Uuid;

    use super::*;
    use crate::metadata::RedbMetadata;

    #[test]
    fn a_topic_of_an_earlier_version_gets_the_settings_of_this_one() {
        let storage = SimStorage::new(Arc::new(ManualClock::at(Timestamp(1))));
        storage.create_dir("data".as_ref()).expect("a directory");
        let metadata = RedbMetadata::open(&storage, "data".as_ref(), true).expect("it opens");
        bring_up_to_date(&metadata).expect("nothing to do");
        let config = BTreeMap::from([("retention.ms".to_owned(), json!(-1))]);
        let id = TopicId(Uuid::from_u128(1));
        let create = Command::CreateTopic { name: offsets_topic(), id, partitions: 50, config };
        metadata.propose(&create).expect("created");
        for _ in 0..2 {
            bring_up_to_date(&metadata).expect("changed");
            let topic = metadata.image().topics[&offsets_topic()].clone();
            assert_eq!((&topic.config, topic.version), (&super::config(), 2), "once");
            assert_eq!((topic.id, topic.partitions.len()), (id, 50));
        }
    }
}
