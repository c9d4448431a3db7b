//! Joining, coming back under an instance id, leaving.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_extension::TopicPartition;
use levada_model::{MemberId, TopicName, limits};

use super::pulse::Pulse;
use super::{Context, Group, Timer};
use crate::records::{MemberRecord, Place};
use crate::terms::{JoinError, MemberView, NewMember};

impl Group {
    /// A member joins.
    pub(crate) fn join(&mut self, ctx: &mut Context<'_>, member: NewMember) -> Result<MemberView, JoinError> {
        if !self.classic.members.is_empty() {
            return Err(JoinError::InconsistentProtocol);
        }
        let id = member.member_id.clone();
        assert!(!self.members.contains(&id), "member ids are drawn anew for every join");
        let before = member.instance_id.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        let old = before.as_ref().and_then(|before| self.members.get(before));
        let others_bytes =
            self.subscription_bytes - old.map_or(0, |old| subscription_bytes(&old.topics, &old.assignor));
        if others_bytes + subscription_bytes(&member.topics, &member.assignor) > limits::GROUP_SUBSCRIPTIONS_BYTES_MAX {
            return Err(JoinError::SubscriptionsFull { limit_bytes: limits::GROUP_SUBSCRIPTIONS_BYTES_MAX });
        }
        match before {
            Some(before) => self.take_over(ctx, &before, member),
            None => self.add_member(ctx, member)?,
        }
        Ok(self.view(&id))
    }

    /// A member leaves.
    pub(crate) fn leave(&mut self, ctx: &mut Context<'_>, member: &MemberId) {
        self.remove_member(ctx, member);
    }

    /// A member fetches.
    pub(crate) fn poll(&mut self, ctx: &mut Context<'_>, member: &MemberId, again: bool) -> MemberView {
        if !again {
            let told = self.pulses[member].revocations.iter().filter(|(_, revocation)| revocation.told);
            let told: Vec<_> = told.map(|(partition, _)| *partition).collect();
            told.into_iter().for_each(|partition| self.give_up(ctx, member, partition));
        }
        self.alive(ctx, member, true);
        self.tell(member)
    }

    /// A member lives.
    pub(crate) fn heartbeat(&mut self, ctx: &mut Context<'_>, member: &MemberId) -> MemberView {
        self.alive(ctx, member, false);
        self.tell(member)
    }

    /// What a member is told of itself, what it must give up included.
    fn tell(&mut self, member: &MemberId) -> MemberView {
        self.pulse(member).revocations.values_mut().for_each(|revocation| revocation.told = true);
        self.view(member)
    }

    fn add_member(&mut self, ctx: &mut Context<'_>, member: NewMember) -> Result<(), JoinError> {
        if self.members.len() >= limits::GROUP_MEMBERS_MAX {
            return Err(JoinError::GroupFull { limit: limits::GROUP_MEMBERS_MAX });
        }
        let id = member.member_id.clone();
        let first = self.members.is_empty();
        self.put_member(ctx, id, record(member, Vec::new(), BTreeMap::new()));
        if first {
            self.head.empty_since = None;
            self.timers.set(&Timer::Expiry, None);
            self.await_first_rebalance(ctx);
        } else {
            self.request_rebalance(ctx);
        }
        Ok(())
    }

    /// A member takes the place of the one that had its instance id: the same holdings go on, and with the same
    /// subscription nothing has changed for the others (KIP-345).
    fn take_over(&mut self, ctx: &mut Context<'_>, before: &MemberId, member: NewMember) {
        let id = member.member_id.clone();
        let pulse = self.pulses.remove(before).expect("every member has one");
        let old = self.drop_member(before).expect("an instance id belongs to a member");
        ctx.changed.insert(before.clone());
        let set = |topics: &[TopicName]| topics.iter().cloned().collect::<BTreeSet<_>>();
        let same = set(&old.topics) == set(&member.topics) && old.assignor == member.assignor;
        let mut replaced = old.replaced;
        replaced.push(before.clone());
        if replaced.len() > limits::REPLACED_MEMBERS_REMEMBERED {
            replaced.remove(0);
        }
        let topics = set(&member.topics);
        self.put_member(ctx, id.clone(), record(member, replaced, old.places));
        // What it was told before it was told to the process that is gone.
        let untold = pulse.revocations.into_iter().map(|(partition, mut revocation)| {
            revocation.told = false;
            (partition, revocation)
        });
        self.pulse(&id).revocations = untold.collect();
        for (partition, place) in self.members.get(&id).expect("just put in").places.clone() {
            let index = if place.hold.epoch().is_some() { &mut self.holders } else { &mut self.heirs };
            index.insert(partition, id.clone());
            if topics.contains(&place.topic) {
                continue;
            }
            // The new process does not read this topic, and the old one is gone.
            if place.hold.epoch().is_some() {
                self.give_up(ctx, &id, partition);
            } else {
                self.wait_no_more(&id, partition);
            }
        }
        self.arm(&id);
        if !same {
            self.request_rebalance(ctx);
        }
    }

    pub(super) fn remove_member(&mut self, ctx: &mut Context<'_>, member: &MemberId) {
        self.pulses.remove(member);
        let record = self.drop_member(member).expect("only members of the group are removed");
        ctx.changed.insert(member.clone());
        for (partition, place) in record.places {
            self.unplace(ctx, partition, place);
        }
        if self.members.is_empty() {
            self.emptied(ctx);
        } else {
            self.request_rebalance(ctx);
        }
    }

    fn put_member(&mut self, ctx: &Context<'_>, id: MemberId, record: MemberRecord) {
        self.index_member(&id, &record);
        self.members.insert(id.clone(), record);
        self.pulses.insert(id.clone(), Pulse::new(ctx.now.tick));
        self.arm(&id);
    }

    fn drop_member(&mut self, id: &MemberId) -> Option<MemberRecord> {
        let record = self.members.remove(id)?;
        self.timers.set(&Timer::Member(id.clone()), None);
        if let Some(instance) = &record.instance_id {
            self.instances.remove(instance);
        }
        record.replaced.iter().for_each(|replaced| drop(self.replaced.remove(replaced)));
        record.topics.iter().for_each(|topic| uncount(&mut self.subscribed, topic));
        self.subscription_bytes -= subscription_bytes(&record.topics, &record.assignor);
        uncount(&mut self.votes, &record.assignor);
        Some(record)
    }

    /// Notes what is derived from a member's words.
    pub(super) fn index_member(&mut self, id: &MemberId, record: &MemberRecord) {
        if let Some(instance) = &record.instance_id {
            self.instances.insert(instance.clone(), id.clone());
            let replaced = record.replaced.iter().map(|replaced| (replaced.clone(), instance.clone()));
            self.replaced.extend(replaced);
        }
        record.topics.iter().for_each(|topic| *self.subscribed.entry(topic.clone()).or_default() += 1);
        self.subscription_bytes += subscription_bytes(&record.topics, &record.assignor);
        *self.votes.entry(Arc::clone(&record.assignor)).or_default() += 1;
    }
}

/// Bytes that a member's record may hold for what it asks for: the assignor, each topic's name in its subscription, and
/// name, id and count among its partitions.
fn subscription_bytes(topics: &[TopicName], assignor: &str) -> usize {
    let topics: usize = topics.iter().map(|topic| 2 * (2 + topic.as_str().len()) + 16 + 4).sum();
    topics + assignor.len()
}

fn record(member: NewMember, replaced: Vec<MemberId>, places: BTreeMap<TopicPartition, Place>) -> MemberRecord {
    assert!(member.topics.len() <= limits::GROUP_TOPICS_MAX, "the edge bounds subscriptions");
    let assignor_bytes_max = limits::ASSIGNOR_NAME_BYTES_MAX + 1 + limits::ASSIGNOR_CONFIG_BYTES_MAX;
    assert!(member.assignor.len() <= assignor_bytes_max, "the edge bounds the assignor's name and config");
    MemberRecord {
        instance_id: member.instance_id,
        replaced,
        client: cut_client(member.client),
        topics: member.topics,
        assignor: member.assignor,
        session_timeout_ms: member.session_timeout_ms,
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        max_poll_interval_ms: member.max_poll_interval_ms,
        start: member.start,
        places,
    }
}

/// Who a member says that it is, as far as it is kept.
pub(super) fn cut_client(mut client: String) -> String {
    client.truncate(client.floor_char_boundary(limits::CLIENT_BYTES_MAX));
    client
}

fn uncount<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Entry::Occupied(mut entry) = counts.entry(key.clone()) {
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}
