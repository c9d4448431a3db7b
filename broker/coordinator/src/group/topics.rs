//! Topics and partitions that come and go under a group.

use std::collections::BTreeMap;

use levada_extension::TopicPartition;
use levada_model::{PartitionIndex, TopicId};
use uuid::Uuid;

use super::{Context, Group};
use crate::terms::{TopicInfo, TopicsView};

impl Group {
    /// Some topics have changed, perhaps the group's.
    pub(crate) fn topics_changed(&mut self, ctx: &mut Context<'_>, topics: &dyn TopicsView) {
        self.drop_offsets(topics);
        if self.look_at(ctx, topics) {
            self.request_rebalance(ctx);
        }
    }

    /// Looks at the subscribed topics anew; partitions that are gone leave everybody at once. Whether anything is new.
    pub(super) fn look_at(&mut self, ctx: &mut Context<'_>, topics: &dyn TopicsView) -> bool {
        let seen: BTreeMap<_, _> =
            self.subscribed.keys().filter_map(|name| Some((name.clone(), topics.topic(name)?))).collect();
        if seen == self.seen {
            return false;
        }
        let by_id: BTreeMap<TopicId, &TopicInfo> = seen.values().map(|info| (info.id, info)).collect();
        let gone = |partition: &&TopicPartition| match by_id.get(&partition.topic) {
            Some(info) => info.partitions.binary_search(&partition.partition).is_err(),
            None => !topics.has(partition.topic),
        };
        let gone: Vec<_> = self.holders.keys().chain(self.heirs.keys()).filter(gone).copied().collect();
        gone.into_iter().for_each(|partition| self.vanish(ctx, partition));
        let watched: Vec<_> = ctx.changed.iter().filter(|member| self.members.contains(member)).cloned().collect();
        watched.iter().for_each(|member| self.arm(member));
        self.seen = seen;
        true
    }

    /// What is known of topics after a restart: those that members hold or wait for, which is all of them unless a
    /// rebalance is due.
    pub(super) fn see_holdings(&mut self) {
        for (_, member) in self.members.iter() {
            for (partition, place) in &member.places {
                let new = || TopicInfo { id: partition.topic, partitions: Vec::new() };
                self.seen.entry(place.topic.clone()).or_insert_with(new).partitions.push(partition.partition);
            }
        }
        for info in self.seen.values_mut() {
            info.partitions.sort_unstable();
            info.partitions.dedup();
        }
    }

    /// Removes the offsets of topics that are gone, and what is pending of them.
    fn drop_offsets(&mut self, topics: &dyn TopicsView) {
        self.drop_pending(|partition| !topics.has(partition.topic));
        let start = |topic| TopicPartition { topic, partition: PartitionIndex(0) };
        let mut from = start(TopicId(Uuid::nil()));
        while let Some(&first) = self.offsets.key_from(&from) {
            if topics.has(first.topic) {
                let Some(next) = first.topic.0.as_u128().checked_add(1) else { break };
                from = start(TopicId(Uuid::from_u128(next)));
            } else {
                self.offsets.remove(&first);
            }
        }
    }
}
