//! The internal topics that hold what coordinators know, and their settings, which are the broker's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::fault::CoordinatorFault;
use super::kind::Kind;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::metadata::{Command, Metadata, MetadataError};
use crate::{CreateTopic, TopicError};

/// Small enough that compaction, which leaves the newest segment alone, keeps what a load reads short.
const SEGMENT_BYTES: u64 = 64 << 20;

fn config() -> BTreeMap<String, Value> {
    let settings = [("cleanup.policy", json!("compact")), ("segment.bytes", json!(SEGMENT_BYTES))];
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Gives a topic that an earlier version created the settings of this one. To be done before its logs are opened.
///
/// # Errors
/// When the metadata takes no changes.
pub(crate) fn bring_up_to_date<K: Kind>(metadata: &dyn Metadata) -> Result<(), MetadataError> {
    let name = K::topic();
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
    /// The topic of a kind of coordinators, created by the first who needs it.
    pub(crate) async fn ensure_coordinators<K: Kind>(self: &Arc<Self>) -> Result<Arc<Topic>, CoordinatorFault> {
        if self.is_closing() {
            return Err(CoordinatorFault::Closing);
        }
        let new = CreateTopic { name: K::topic(), partitions: K::PARTITIONS, config: config() };
        self.ensure_topic(new).await.map_err(|error| match error {
            TopicError::Closing => CoordinatorFault::Closing,
            TopicError::OutOfFiles => CoordinatorFault::Overloaded,
            TopicError::Storage(error) => CoordinatorFault::Storage(error),
            // A topic without a record says nothing.
            TopicError::Fenced { reason, .. } => CoordinatorFault::Fenced { reason, possible: false },
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
    use crate::groups::GroupKind;
    use crate::metadata::RedbMetadata;

    #[test]
    fn a_topic_of_an_earlier_version_gets_the_settings_of_this_one() {
        let storage = SimStorage::new(Arc::new(ManualClock::at(Timestamp(1))));
        storage.create_dir("data".as_ref()).expect("a directory");
        let metadata = RedbMetadata::open(&storage, "data".as_ref(), true).expect("it opens");
        bring_up_to_date::<GroupKind>(&metadata).expect("nothing to do");
        let config = BTreeMap::from([("retention.ms".to_owned(), json!(-1))]);
        let id = TopicId(Uuid::from_u128(1));
        let create = Command::CreateTopic { name: GroupKind::topic(), id, partitions: 50, config };
        metadata.propose(&create).expect("created");
        for _ in 0..2 {
            bring_up_to_date::<GroupKind>(&metadata).expect("changed");
            let topic = metadata.image().topics[&GroupKind::topic()].clone();
            assert_eq!((&topic.config, topic.version), (&super::config(), 2), "once");
            assert_eq!((topic.id, topic.partitions.len()), (id, 50));
        }
    }
}
