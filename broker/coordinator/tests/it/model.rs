//! A naive model of one group: who holds each partition, who shall hold it, and nothing derived. Slow and plain, so that it
//! can be believed.

mod offsets;

use std::collections::{BTreeMap, BTreeSet};

use levada_coordinator::{AssignTask, GroupState, MemberState, Start};
use levada_extension::{
    Assignment, Assignor, AssignorFault, CooperativeStickyAssignor, TopicPartition, check_assignment,
};
use levada_model::{InstanceId, MemberId, TopicName, limits};

use self::offsets::Pending;
use crate::kit::OPTIONS;

/// A member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) instance: Option<InstanceId>,
    pub(crate) replaced: Vec<MemberId>,
    pub(crate) topics: BTreeSet<TopicName>,
    pub(crate) assignor: String,
    pub(crate) session: u64,
    pub(crate) rebalance: u64,
    pub(crate) max_poll: u64,
    pub(crate) start: Start,
    seen: u64,
    polled: u64,
}

/// An offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offset {
    Committed { offset: u64, wall: i64 },
    Expired { wall: i64 },
}

/// What is done at a time; the order counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Member(MemberId),
    Assignor,
    Rebalance,
    Expiry,
}

/// Partitions of the topics by name.
pub(crate) type World = BTreeMap<TopicName, Vec<TopicPartition>>;

/// The group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) members: BTreeMap<MemberId, Member>,
    /// Who holds a partition, since which generation.
    pub(crate) hold: BTreeMap<TopicPartition, (MemberId, u32)>,
    /// Who shall.
    pub(crate) target: BTreeMap<TopicPartition, MemberId>,
    pub(crate) told: BTreeSet<TopicPartition>,
    pub(crate) deadline: BTreeMap<TopicPartition, u64>,
    pub(crate) generation: u32,
    pub(crate) due: bool,
    pub(crate) offsets: BTreeMap<TopicPartition, Offset>,
    /// All that was ever added to a transaction that is open, in order.
    pending: Vec<Pending>,
    /// When something was last written of a partition that counts now, a tombstone too.
    counts_since: BTreeMap<TopicPartition, u64>,
    /// How much was written.
    written: u64,
    pub(crate) assignor: Option<String>,
    pub(crate) fallback: Option<u32>,
    pub(crate) tick: u64,
    pub(crate) wall: i64,
    pub(crate) world: World,
    rebalance_at: Option<u64>,
    last: Option<u64>,
    /// The open task, whether the group changed since, and when it is late.
    pub(crate) task: Option<(AssignTask, bool, u64)>,
    /// A rebalance has started and its task is to be read from the coordinator.
    pub(crate) asks: bool,
    expiry_at: Option<u64>,
    empty_since: Option<i64>,
    seen: BTreeSet<TopicPartition>,
    /// The version of the topics that were looked at.
    pub(crate) looked: Option<u64>,
}

impl Model {
    pub(crate) fn is_gone(&self) -> bool {
        self.members.is_empty() && self.offsets.is_empty() && self.empty_since.is_none() && !self.has_pending()
    }

    pub(crate) fn is_shown(&self) -> bool {
        let committed = self.offsets.values().any(|offset| matches!(offset, Offset::Committed { .. }));
        let something = !self.members.is_empty() || committed || self.has_pending();
        !self.is_gone() && (something || self.offsets.is_empty())
    }

    pub(crate) fn revoking(&self, member: &MemberId) -> Vec<TopicPartition> {
        let held = self.hold.iter().filter(|(_, (holder, _))| holder == member);
        held.map(|(partition, _)| *partition).filter(|p| self.target.get(p) != Some(member)).collect()
    }

    fn waits(&self, member: &MemberId) -> bool {
        let meant = self.target.iter().filter(|(_, owner)| *owner == member);
        meant.map(|(partition, _)| &self.hold[partition].0).any(|holder| holder != member)
    }

    pub(crate) fn member_state(&self, member: &MemberId) -> MemberState {
        let has = self.hold.values().any(|(holder, _)| holder == member);
        if self.due {
            MemberState::Assigning
        } else if !self.revoking(member).is_empty() || self.waits(member) {
            MemberState::Reconciling
        } else if has {
            MemberState::Stable
        } else {
            MemberState::Idle
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        let moving = |member| !self.revoking(member).is_empty() || self.waits(member);
        if self.members.is_empty() {
            GroupState::Empty
        } else if self.due {
            GroupState::Assigning
        } else if self.members.keys().any(moving) {
            GroupState::Reconciling
        } else {
            GroupState::Stable
        }
    }

    /// The instance id under which `member` was replaced, if it is remembered.
    pub(crate) fn fenced_by(&self, member: &MemberId) -> Option<InstanceId> {
        let by = self.members.values().find(|newer| newer.replaced.contains(member));
        by.and_then(|newer| newer.instance.clone())
    }

    pub(crate) fn join(&mut self, id: MemberId, mut new: Member) {
        (new.seen, new.polled) = (self.tick, self.tick);
        let same_instance = |member: &Member| new.instance.is_some() && member.instance == new.instance;
        let old = self.members.iter().find(|(_, member)| same_instance(member)).map(|(id, _)| id.clone());
        let Some(old_id) = old else {
            let first = self.members.is_empty();
            self.members.insert(id, new);
            if first {
                self.expiry_at = None;
                self.empty_since = None;
                self.due = true;
                self.rebalance_at = Some(self.tick + OPTIONS.initial_rebalance_delay_ms);
            } else {
                self.request();
            }
            return;
        };
        let old = self.members.remove(&old_id).expect("just found");
        let same = old.topics == new.topics && old.assignor == new.assignor;
        new.replaced = [old.replaced, vec![old_id.clone()]].concat();
        if new.replaced.len() > limits::REPLACED_MEMBERS_REMEMBERED {
            new.replaced.remove(0);
        }
        for (partition, (holder, _)) in &mut self.hold {
            if *holder == old_id {
                *holder = id.clone();
                self.told.remove(partition);
            }
        }
        self.target.values_mut().filter(|owner| **owner == old_id).for_each(|owner| *owner = id.clone());
        let unread: Vec<_> = old.topics.difference(&new.topics).cloned().collect();
        self.members.insert(id.clone(), new);
        let unread = unread.iter().filter_map(|topic| self.world.get(topic)).flatten().copied();
        for partition in unread.collect::<Vec<_>>() {
            if self.target.get(&partition) == Some(&id) {
                self.target.remove(&partition);
            }
            if self.hold.get(&partition).is_some_and(|(holder, _)| *holder == id) {
                self.release(partition);
            }
        }
        self.settle();
        if !same {
            self.request();
        }
    }

    pub(crate) fn alive(&mut self, member: &MemberId, polled: bool) {
        let tick = self.tick;
        let member = self.members.get_mut(member).expect("a member");
        member.seen = tick;
        if polled {
            member.polled = tick;
        }
    }

    pub(crate) fn poll(&mut self, member: &MemberId, again: bool) {
        self.alive(member, true);
        for partition in self.revoking(member) {
            if !again && self.told.contains(&partition) {
                self.release(partition);
            }
        }
        self.settle();
    }

    /// An answer told the member all.
    pub(crate) fn tell(&mut self, member: &MemberId) {
        self.told.extend(self.revoking(member));
    }

    pub(crate) fn remove(&mut self, member: &MemberId) {
        self.members.remove(member);
        self.target.retain(|_, owner| owner != member);
        let held: Vec<_> = self.hold.iter().filter(|(_, (holder, _))| holder == member).map(|(p, _)| *p).collect();
        held.into_iter().for_each(|partition| self.release(partition));
        self.settle();
        if self.members.is_empty() {
            self.due = false;
            (self.rebalance_at, self.last, self.task) = (None, None, None);
            self.empty_since = Some(self.wall);
            self.expiry_at = Some(self.tick + OPTIONS.offsets_retention_ms);
            self.seen.clear();
        } else {
            self.request();
        }
    }

    pub(crate) fn delete(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|pending| self.write(pending.partition));
        let (world, counts_since) = (self.world.clone(), self.counts_since.clone());
        let (tick, wall, looked, written) = (self.tick, self.wall, self.looked, self.written);
        *self = Self { tick, wall, world, looked, written, counts_since, pending, ..Self::default() };
    }

    /// Does what is due now, the earliest first.
    pub(crate) fn run(&mut self, version: u64, world: &World) {
        if self.looked != Some(version) {
            self.looked = Some(version);
            self.world = world.clone();
            self.look();
        }
        while let Some((_, due)) = self.all_due().into_iter().filter(|(at, _)| *at <= self.tick).min() {
            match due {
                Due::Member(member) => self.member_due(&member),
                Due::Assignor => self.answer(&Err(AssignorFault { reason: String::new() })),
                Due::Rebalance => self.start(),
                Due::Expiry => self.expire(),
            }
            if self.asks {
                return;
            }
        }
    }

    /// The answer to the open task.
    pub(crate) fn answer(&mut self, answer: &Result<Assignment, AssignorFault>) {
        let (task, outdated, _) = self.task.take().expect("there is one");
        let good = answer.as_ref().ok().filter(|assignment| check_assignment(&task.input, assignment).is_ok());
        let built_in = || CooperativeStickyAssignor.assign(&task.input).expect("it always answers");
        let assignment = good.cloned().unwrap_or_else(built_in);
        let target = self.meant(&task, assignment);
        if target != self.target {
            self.generation += 1;
            let before = std::mem::replace(&mut self.target, target);
            for (partition, (holder, _)) in &self.hold {
                let owner = self.target.get(partition);
                if owner == Some(holder) {
                    self.told.remove(partition);
                    self.deadline.remove(partition);
                } else if before.get(partition) == Some(holder) {
                    self.deadline.insert(*partition, self.tick + self.members[holder].rebalance);
                }
            }
            self.settle();
        }
        self.fallback = good.is_none().then_some(self.generation);
        self.assignor = Some(task.assignor.to_string());
        self.due = false;
        if outdated {
            self.request();
        }
    }

    /// A new coordinator has read the log.
    pub(crate) fn restart(&mut self) {
        (self.rebalance_at, self.last, self.task, self.looked) = (None, None, None, None);
        self.told.clear();
        if self.members.is_empty() {
            let written = self.offsets.values().map(|offset| match offset {
                Offset::Committed { wall, .. } | Offset::Expired { wall } => *wall,
            });
            let written = written.chain(self.standing().map(|pending| pending.wall));
            let since = written.chain(self.empty_since).max().unwrap_or(self.wall);
            let passed = u64::try_from(self.wall - since).unwrap_or(0);
            self.expiry_at = (!self.is_gone()).then(|| self.tick + OPTIONS.offsets_retention_ms.saturating_sub(passed));
            return;
        }
        for member in self.members.values_mut() {
            (member.seen, member.polled) = (self.tick, self.tick);
        }
        for (partition, deadline) in &mut self.deadline {
            *deadline = self.tick + self.members[&self.hold[partition].0].rebalance;
        }
        self.seen = self.hold.keys().chain(self.target.keys()).copied().collect();
        if self.due {
            let delay = if self.hold.is_empty() { OPTIONS.initial_rebalance_delay_ms } else { 0 };
            self.rebalance_at = Some(self.tick + delay);
        }
    }

    /// Every partition that somebody subscribes to.
    pub(crate) fn subscribed(&self) -> BTreeSet<TopicPartition> {
        let topics: BTreeSet<_> = self.members.values().flat_map(|member| &member.topics).collect();
        topics.into_iter().filter_map(|topic| self.world.get(topic)).flatten().copied().collect()
    }

    fn all_due(&self) -> Vec<(u64, Due)> {
        let mut all = Vec::new();
        for (id, member) in &self.members {
            let deadline = self.revoking(id).iter().map(|partition| self.deadline[partition]).min();
            let end = (member.seen + member.session).min(member.polled + member.max_poll);
            all.push((deadline.map_or(end, |deadline| deadline.min(end)), Due::Member(id.clone())));
        }
        all.extend(self.task.iter().map(|(_, _, late)| (*late, Due::Assignor)));
        all.extend(self.rebalance_at.map(|at| (at, Due::Rebalance)));
        all.extend(self.expiry_at.map(|at| (at, Due::Expiry)));
        all
    }

    fn member_due(&mut self, id: &MemberId) {
        let member = &self.members[id];
        if member.seen + member.session <= self.tick || member.polled + member.max_poll <= self.tick {
            self.remove(id);
            return;
        }
        for partition in self.revoking(id) {
            if self.deadline[&partition] <= self.tick {
                self.release(partition);
            }
        }
        self.settle();
    }

    fn start(&mut self) {
        self.rebalance_at = None;
        self.last = Some(self.tick);
        self.seen = self.subscribed();
        self.asks = true;
    }

    fn expire(&mut self) {
        self.expiry_at = None;
        if self.has_pending() {
            self.expiry_at = Some(self.tick + OPTIONS.offsets_retention_ms);
            return;
        }
        let mut any = false;
        for offset in self.offsets.values_mut() {
            if matches!(offset, Offset::Committed { .. }) {
                *offset = Offset::Expired { wall: self.wall };
                any = true;
            }
        }
        if any {
            self.expiry_at = Some(self.tick + OPTIONS.offsets_retention_ms);
        } else {
            self.delete();
        }
    }

    fn request(&mut self) {
        if self.members.is_empty() {
            return;
        }
        if let Some((_, outdated, _)) = &mut self.task {
            *outdated = true;
        } else if !self.due {
            let earliest = self.last.map_or(0, |last| last + OPTIONS.rebalance_interval_ms);
            self.rebalance_at = Some(earliest.max(self.tick));
        }
        self.due = true;
    }

    fn look(&mut self) {
        let all: BTreeSet<TopicPartition> = self.world.values().flatten().copied().collect();
        let topics: BTreeSet<_> = all.iter().map(|partition| partition.topic).collect();
        self.offsets.retain(|partition, _| topics.contains(&partition.topic));
        self.pending.retain(|pending| topics.contains(&pending.partition.topic));
        let gone: Vec<_> = self.hold.keys().chain(self.target.keys()).filter(|p| !all.contains(*p)).copied().collect();
        for partition in gone {
            self.target.remove(&partition);
            self.release(partition);
        }
        let now = self.subscribed();
        if now != self.seen {
            self.seen = now;
            self.request();
        }
    }

    fn meant(&self, task: &AssignTask, assignment: Assignment) -> BTreeMap<TopicPartition, MemberId> {
        let mut target = BTreeMap::new();
        for (member, partitions) in task.input.members.iter().zip(assignment) {
            let successor = self.members.iter().find(|(id, now)| {
                **id == member.member_id || (now.instance.is_some() && now.instance == member.instance_id)
            });
            for partition in partitions.into_iter().filter(|partition| self.seen.contains(partition)) {
                let topic = self.world.iter().find(|(_, all)| all.contains(&partition)).expect("it is seen").0;
                let owner = successor.filter(|(_, now)| now.topics.contains(topic)).map(|(id, _)| id);
                if let Some(owner) = owner.or_else(|| self.hold.get(&partition).map(|(holder, _)| holder)) {
                    target.insert(partition, owner.clone());
                }
            }
        }
        target
    }

    fn release(&mut self, partition: TopicPartition) {
        self.hold.remove(&partition);
        self.told.remove(&partition);
        self.deadline.remove(&partition);
    }

    /// Who shall hold a free partition holds it.
    fn settle(&mut self) {
        for (partition, owner) in &self.target {
            self.hold.entry(*partition).or_insert_with(|| (owner.clone(), self.generation));
        }
    }
}

impl Member {
    pub(crate) fn new(instance: Option<InstanceId>, topics: BTreeSet<TopicName>, assignor: &str) -> Self {
        Self {
            instance,
            replaced: Vec::new(),
            topics,
            assignor: assignor.to_owned(),
            session: 4_000,
            rebalance: 2_500,
            max_poll: 6_000,
            start: Start::Earliest,
            seen: 0,
            polled: 0,
        }
    }
}
