//! One group: its members, who has which partition, and its committed offsets.
//!
//! What must survive a restart lies in `head`, `members` and `offsets`, exactly as it is stored. All else is derived from
//! these three or belongs to the moment (sessions, deadlines, who was told what), and begins anew when the group is loaded.
//! Offsets of open transactions lie in `pending`, and in the log as they will count.

mod classic;
mod commits;
mod expiry;
mod holdings;
mod load;
mod membership;
mod pending;
mod pulse;
mod rebalance;
mod topics;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_extension::TopicPartition;
use levada_model::{GroupName, InstanceId, MemberId, Tick, TopicName};

use crate::classic::ClassicReply;
use crate::records::{
    ClassicMemberKey, ClassicMemberRecord, GroupRecord, MemberKey, MemberRecord, OffsetKey, OffsetRecord,
};
use crate::terms::{AssignTask, CoordinatorOptions, CoordinatorRecord, MemberError, Now, TopicInfo, TopicsView};
use crate::timers::Timers;
use crate::tracked::Tracked;
use classic::Classic;
use pending::Pending;
use pulse::Pulse;
use rebalance::Rebalance;

/// A group of consumers.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    name: GroupName,
    head: GroupRecord,
    /// The head as the log has it.
    stored: Option<GroupRecord>,
    members: Tracked<MemberId, MemberRecord>,
    offsets: Tracked<TopicPartition, OffsetRecord>,
    pending: Pending,
    /// Who holds a partition, one that is to be given up included.
    holders: BTreeMap<TopicPartition, MemberId>,
    /// Who is to hold a partition that another member holds still.
    heirs: BTreeMap<TopicPartition, MemberId>,
    /// How many partitions are to be given up.
    revoking: usize,
    instances: BTreeMap<InstanceId, MemberId>,
    replaced: BTreeMap<MemberId, InstanceId>,
    /// How many members subscribe to a topic.
    subscribed: BTreeMap<TopicName, usize>,
    /// Bytes of all subscriptions, as records hold them at most.
    subscription_bytes: usize,
    /// How many members ask for an assignor.
    votes: BTreeMap<Arc<str>, usize>,
    /// The subscribed topics as they were last looked at; no partition is held that is not in here.
    seen: BTreeMap<TopicName, TopicInfo>,
    pulses: BTreeMap<MemberId, Pulse>,
    rebalance: Rebalance,
    /// Members of Kafka's classic protocol; a group has members of one kind only.
    classic: Classic,
    timers: Timers<Timer>,
}

/// What a group has to do at a time. Where several are due at once, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A member's session, fetch interval or deadline ends.
    Member(MemberId),
    /// A classic member's session ends.
    ClassicMember(MemberId),
    /// A round of a classic rebalance ends.
    ClassicRound,
    /// The assignor has had its time.
    Assignor,
    /// A rebalance starts.
    Rebalance,
    /// The offsets of a group without members expire.
    Expiry,
}

/// What an event of a group may use, and what it has effects on.
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) options: &'a CoordinatorOptions,
    pub(crate) next_token: &'a mut u64,
    /// Members whose waiting fetches look again.
    pub(crate) changed: BTreeSet<MemberId>,
    pub(crate) assign: Vec<AssignTask>,
    pub(crate) replies: Vec<ClassicReply>,
}

impl Group {
    pub(crate) fn new(name: GroupName) -> Self {
        Self {
            name,
            head: GroupRecord::default(),
            stored: None,
            members: Tracked::default(),
            offsets: Tracked::default(),
            pending: Pending::default(),
            holders: BTreeMap::new(),
            heirs: BTreeMap::new(),
            revoking: 0,
            instances: BTreeMap::new(),
            replaced: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            subscription_bytes: 0,
            votes: BTreeMap::new(),
            seen: BTreeMap::new(),
            pulses: BTreeMap::new(),
            rebalance: Rebalance::default(),
            classic: Classic::default(),
            timers: Timers::default(),
        }
    }

    /// Whether nothing is left of it.
    pub(crate) fn is_gone(&self) -> bool {
        let is_empty = self.offsets.is_empty() && self.pending.is_empty();
        self.active() == 0 && is_empty && self.head == GroupRecord::default()
    }

    /// How many members it has, of either kind.
    fn active(&self) -> usize {
        self.members.len() + self.classic.members.len()
    }

    /// When it has something to do next.
    pub(crate) fn next_due(&self) -> Option<Tick> {
        self.timers.next()
    }

    /// Does all that is due.
    pub(crate) fn tick(&mut self, ctx: &mut Context<'_>, topics: &dyn TopicsView) {
        while let Some(timer) = self.timers.pop(ctx.now.tick) {
            match timer {
                Timer::Member(member) => self.member_due(ctx, &member),
                Timer::ClassicMember(member) => self.classic_member_due(ctx, &member),
                Timer::ClassicRound => self.classic_round_due(ctx),
                Timer::Assignor => self.assignor_late(ctx),
                Timer::Rebalance => self.start_rebalance(ctx, topics),
                Timer::Expiry => self.expire(ctx),
            }
        }
    }

    /// Whether `member` may speak.
    pub(crate) fn admit(&self, member: &MemberId) -> Result<(), MemberError> {
        if self.members.contains(member) {
            return Ok(());
        }
        Err(match self.replaced.get(member) {
            Some(instance_id) => MemberError::FencedInstance { instance_id: instance_id.clone() },
            None => MemberError::UnknownMember(member.clone()),
        })
    }

    /// The records of all that changed since the last call. They are behind all that is pending, so they decide it: that is
    /// news of who holds the partition.
    pub(crate) fn take_records(&mut self, changed: &mut BTreeSet<MemberId>) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        let head = (self.head != GroupRecord::default()).then(|| self.head.clone());
        if head != self.stored {
            records.push(self.head_record(head.as_ref()));
            self.stored = head;
        }
        records.extend(self.members.take_changed().iter().map(|member| self.member_record(member)));
        let classic = self.classic.members.take_changed();
        records.extend(classic.iter().map(|member| self.classic_record(member)));
        for partition in self.offsets.take_changed() {
            if self.pending.supersede_all(partition) {
                changed.extend(self.holders.get(&partition).cloned());
            }
            records.push(self.offset_record(partition));
        }
        records
    }

    /// Records that hold all that must survive a restart.
    pub(crate) fn all_records(&self) -> Vec<CoordinatorRecord> {
        let head = self.stored.iter().map(|head| self.head_record(Some(head)));
        let members = self.members.keys().map(|member| self.member_record(member));
        let classic = self.classic.members.keys().map(|member| self.classic_record(member));
        let offsets = self.offsets.keys().map(|partition| self.offset_record(*partition));
        head.chain(members).chain(classic).chain(offsets).collect()
    }

    fn head_record(&self, head: Option<&GroupRecord>) -> CoordinatorRecord {
        CoordinatorRecord { key: GroupRecord::key(&self.name), value: head.map(GroupRecord::encode) }
    }

    fn member_record(&self, member: &MemberId) -> CoordinatorRecord {
        let key = MemberKey { group: self.name.clone(), member: member.clone() };
        CoordinatorRecord { key: key.encode(), value: self.members.get(member).map(MemberRecord::encode) }
    }

    fn classic_record(&self, member: &MemberId) -> CoordinatorRecord {
        let key = ClassicMemberKey { group: self.name.clone(), member: member.clone() };
        let value = self.classic.members.get(member).map(ClassicMemberRecord::encode);
        CoordinatorRecord { key: key.encode(), value }
    }

    fn offset_record(&self, partition: TopicPartition) -> CoordinatorRecord {
        let key = OffsetKey { group: self.name.clone(), partition };
        CoordinatorRecord { key: key.encode(), value: self.offsets.get(&partition).map(OffsetRecord::encode) }
    }
}
