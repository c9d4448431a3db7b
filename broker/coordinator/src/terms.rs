//! What the coordinator is asked and what it answers.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{AssignorInput, TopicPartition};
use levada_model::{
    GroupName, InstanceId, LeaderEpoch, MemberId, Offset, PartitionIndex, Tick, Timestamp, TopicId, TopicName,
};
use thiserror::Error;

use crate::classic::ClassicReply;
use crate::offsets::TransactionalAppend;

/// The settings of a coordinator. All in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorOptions {
    /// How long the first assignment of an empty group waits for more members (`group.initial.rebalance.delay.ms`).
    pub initial_rebalance_delay_ms: u64,
    /// Least time between two rebalances of a group, so that many joins in a row make one.
    pub rebalance_interval_ms: u64,
    /// How long committed offsets are kept after the group became empty (`offsets.retention.minutes`).
    pub offsets_retention_ms: u64,
}

/// The time of an event: monotonic for every time-out, wall-clock only for what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never goes back.
    pub tick: Tick,
    /// The time of day; may jump.
    pub wall: Timestamp,
}

/// A rebalance's number within its group: rises with each new target assignment, also over restarts.
///
/// The first one of a group is the seconds since 2020, so that a group which was deleted or has expired, and begins anew
/// under the same name, repeats none: no group has a rebalance every second on and on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// The one behind it; for a group that begins, by the time of day.
    pub(crate) fn next(self, now: Timestamp) -> Self {
        /// 2020-01-01, in milliseconds since 1970: seconds since then fit into Kafka's 32 bits with a sign until 2088.
        const ZERO_MS: i64 = 1_577_836_800_000;
        if self != Self::default() {
            return Self(self.0.saturating_add(1));
        }
        let seconds = now.0.saturating_sub(ZERO_MS) / 1_000;
        Self(seconds.clamp(1, i32::MAX.into()).try_into().expect("it was clamped"))
    }
}

/// The generation in which a member began to hold a partition. It and the partition name one uninterrupted holding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssignmentEpoch(pub u32);

/// What the coordinator knows of topics; the engine's catalog answers.
pub trait TopicsView {
    /// Changes whenever a topic or partition comes or goes.
    fn version(&self) -> u64;
    /// The topic of this name, if it is there.
    fn topic(&self, name: &TopicName) -> Option<TopicInfo>;
    /// Whether this topic still is, under whatever name.
    fn has(&self, id: TopicId) -> bool;
}

/// A topic and its readable partitions, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its identity.
    pub id: TopicId,
    /// Those that can be read, retiring ones included.
    pub partitions: Vec<PartitionIndex>,
}

/// A record for the coordinator's partition; none for the value removes the key's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorRecord {
    /// The stored key.
    pub key: Bytes,
    /// The stored value.
    pub value: Option<Bytes>,
}

impl CoordinatorRecord {
    /// Bytes of key and value.
    pub(crate) fn size_bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// An answer with its effects. State has changed already: the answer may be given only once all `records` of this and all
/// earlier steps are durable, in the order of the steps; if they cannot be made so, the coordinator is loaded anew.
#[derive(Clone, Debug)]
#[must_use]
pub struct Step<T> {
    /// What to answer.
    pub answer: T,
    /// To append, as one batch.
    pub records: Vec<CoordinatorRecord>,
    /// To append, where there are no `records`.
    pub transactional: Option<TransactionalAppend>,
    /// Members whose holdings changed: their waiting fetches look again.
    pub changed: Vec<(GroupName, MemberId)>,
    /// Assignments to compute, each to be answered with [`Coordinator::assigned`](crate::Coordinator::assigned).
    pub assign: Vec<AssignTask>,
    /// Answers to joins and syncs of classic members, of this step or of earlier ones.
    pub replies: Vec<ClassicReply>,
}

/// An assignment to be computed, outside of the machine since it may take long.
#[derive(Clone, Debug)]
pub struct AssignTask {
    /// For whom.
    pub group: GroupName,
    /// To be given back with the answer.
    pub token: u64,
    /// The assignor as members asked for it: a built-in's name or `module:NAME`, which a space and a config may follow.
    pub assignor: Arc<str>,
    /// Input; the engine fills in lags from `committed`.
    pub input: AssignorInput,
}

/// An assignor's answer could not be used, so the built-in one was taken for this generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignorFallback {
    /// The generation.
    pub generation: Generation,
    /// The assignor that was asked for.
    pub assignor: Arc<str>,
    /// What was wrong.
    pub reason: String,
}

/// Where a member begins in partitions without a committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the log start.
    Earliest,
    /// At the end.
    Latest,
    /// At the first record of this time or later.
    Time(Timestamp),
}

/// A member that wants to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Its new id, drawn by the engine.
    pub member_id: MemberId,
    /// Its fixed identity over restarts (KIP-345).
    pub instance_id: Option<InstanceId>,
    /// Who it says that it is (its user agent).
    pub client: String,
    /// Topics, at least one, each once.
    pub topics: Vec<TopicName>,
    /// The assignor it prefers, with the config for it: any text, by which members vote.
    pub assignor: Arc<str>,
    /// Silence longer than this removes it.
    pub session_timeout_ms: u64,
    /// How long it may take to give up partitions.
    pub rebalance_timeout_ms: u64,
    /// No fetch for longer than this removes it.
    pub max_poll_interval_ms: u64,
    /// Where it begins.
    pub start: Start,
}

/// Why a join was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// Topics at these places are not there.
    #[error("{} of the topics are not there", .0.len())]
    UnknownTopics(Vec<usize>),
    /// Members of Kafka's classic protocol are in the group.
    #[error("the group has members of another protocol")]
    InconsistentProtocol,
    /// The group is full.
    #[error("the group has {limit} members already")]
    GroupFull {
        /// The cap.
        limit: usize,
    },
    /// Its members subscribe to as much as a group may already.
    #[error("the subscriptions of the group's members would take more than {limit_bytes} bytes")]
    SubscriptionsFull {
        /// The cap.
        limit_bytes: usize,
    },
}

/// What a member is told of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member.
    pub member_id: MemberId,
    /// The group's generation.
    pub generation: Generation,
    /// What it holds, those it must give up included, in order.
    pub holdings: Vec<Holding>,
    /// When the partitions to be given up are taken from it; none if there are none.
    pub revoke_deadline: Option<Tick>,
    /// How it stands.
    pub state: MemberState,
    /// Where it begins in partitions without a committed offset.
    pub start: Start,
    /// How often a waiting fetch has to say that it waits, lest the member be taken for gone: within the session time-out
    /// and within the max-poll interval.
    pub sign_within_ms: u64,
}

/// A partition that a member holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which.
    pub partition: TopicPartition,
    /// The topic's name.
    pub topic: TopicName,
    /// Which holding.
    pub epoch: AssignmentEpoch,
    /// To be given up with the next fetch: no more records of it.
    pub revoked: bool,
    /// Next to read, if something was committed.
    pub committed: Option<Offset>,
    /// Whether what was committed once has expired, so that the start rule applies anew.
    pub expired: bool,
    /// Whether a transaction that is open has offsets of it, so that what is committed may soon be another: who takes the
    /// partition up waits for its end (KIP-447). The end is news of the member.
    pub undecided: bool,
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// A rebalance that includes it is due.
    Assigning,
    /// It has to give up, or waits for, partitions.
    Reconciling,
    /// It holds all that it shall.
    Stable,
    /// Stable, and there is no partition for it.
    Idle,
}

/// Why a member's request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemberError {
    /// No such member (any more): join again.
    #[error("the group has no member {0}")]
    UnknownMember(MemberId),
    /// Another member came with its instance id.
    #[error("another member took over instance id {instance_id}")]
    FencedInstance {
        /// The id.
        instance_id: InstanceId,
    },
}

/// A commit of one partition by a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberCommit {
    /// Which.
    pub partition: TopicPartition,
    /// Next to read; the engine has checked that it is not beyond the end.
    pub offset: Offset,
    /// The partition's leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// From a cursor: the holding in which it was delivered, and then the commit never goes back. None: the owner's
    /// explicit word, which may.
    pub epoch: Option<AssignmentEpoch>,
}

/// Why one partition's commit was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The member does not hold it.
    #[error("the member does not hold the partition")]
    NotHeld,
    /// It holds it again, but lost it since the delivery.
    #[error("the member lost the partition since the records were delivered")]
    LostSince,
}

/// The judgement of a commit, by partition, in the order of the request. `Ok` is what stands committed now.
pub type CommitAnswer = Vec<Result<Committed, Refusal>>;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Next to read.
    pub offset: Offset,
    /// The partition's leader epoch at the commit.
    pub leader_epoch: LeaderEpoch,
    /// When.
    pub committed_at: Timestamp,
    /// A consumer's own note; empty for commits over HTTP.
    pub metadata: String,
}

/// Why a commit from outside of the group's members was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StandaloneError {
    /// Members are active.
    #[error("the group has {0} active members")]
    Active(usize),
}

/// Why a group was not deleted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeleteError {
    /// It is not there.
    #[error("there is no such group")]
    NotFound,
    /// Members are active.
    #[error("the group has {0} active members")]
    Active(usize),
}

/// How a group stands (KIP-848's words).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Without members; its offsets are kept for a while.
    Empty,
    /// A new assignment is due.
    Assigning,
    /// Members give up and take over partitions.
    Reconciling,
    /// Every member holds what it shall.
    Stable,
}

/// A line of the list of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSummary {
    /// The group.
    pub group: GroupName,
    /// How it stands.
    pub state: GroupState,
    /// How many members.
    pub members: usize,
}

/// All that is known of a group.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// How it stands.
    pub state: GroupState,
    /// Its generation.
    pub generation: Generation,
    /// The assignor in use; none for a group that never had a member.
    pub assignor: Option<Arc<str>>,
    /// The last fall back to the built-in assignor, if the generation in force came from one.
    pub fallback: Option<AssignorFallback>,
    /// By id.
    pub members: Vec<MemberSummary>,
    /// By topic and partition.
    pub offsets: Vec<(TopicPartition, Committed)>,
}

/// A member, for the list of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSummary {
    /// What it is told of itself.
    pub view: MemberView,
    /// Its instance id.
    pub instance_id: Option<InstanceId>,
    /// Who it says that it is.
    pub client: String,
    /// What it subscribes to.
    pub topics: Vec<TopicName>,
}
