//! Groups of the broker's own, in which processors commit their positions: users see them and change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_coordinator::{Committed, StandaloneError};
use levada_extension::TopicPartition;
use levada_model::GroupName;

use super::kind::GroupKind;
use super::terms::GroupError;
use crate::engine::Core;

impl Core {
    /// What such a group has committed; nothing if there is no such group.
    pub(crate) async fn own_offsets(
        self: &Arc<Self>,
        group: &GroupName,
    ) -> Result<BTreeMap<TopicPartition, Committed>, GroupError> {
        let Some(coordinator) = self.groups.coordinator(group) else { return Ok(BTreeMap::new()) };
        let committed = coordinator.look(|machine| machine.committed(group)).await?;
        Ok(committed.unwrap_or_default().into_iter().collect())
    }

    /// Commits offsets of such a group, durably, all in one batch.
    pub(crate) async fn commit_own(
        self: &Arc<Self>,
        group: &GroupName,
        commits: Vec<(TopicPartition, Committed)>,
    ) -> Result<(), GroupError> {
        let topic = self.ensure_coordinators::<GroupKind>().await?;
        let coordinator = self.groups.coordinator_in(&topic, group);
        let committed = coordinator.step(|machine, now, _| machine.commit_standalone(now, group, commits)).await?;
        committed.map_err(|StandaloneError::Active(members)| GroupError::Active(members))
    }
}

/// Users change no group of the broker's.
pub(super) fn refuse_internal(group: &GroupName) -> Result<(), GroupError> {
    if group.is_internal() { Err(GroupError::Internal(group.clone())) } else { Ok(()) }
}
