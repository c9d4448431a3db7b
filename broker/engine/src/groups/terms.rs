//! What the calls on consumer groups take and give, and why they are refused.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use levada_coordinator::{AssignmentEpoch, AssignorFallback, GroupState, MemberState, Start};
use levada_extension::ModuleConfigError;
use levada_log::StorageError;
use levada_model::{
    Denied, GroupName, InstanceId, MemberId, ModuleRef, Offset, PartitionIndex, Timestamp, TopicId, TopicName, limits,
};
use thiserror::Error;

use crate::coordinators::CoordinatorFault;
use crate::{Fetched, From};

/// The settings of all consumer groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// How long the first assignment of an empty group waits for more members.
    pub initial_rebalance_delay: Duration,
    /// Least time between two rebalances of a group, so that many joins in a row make one.
    pub rebalance_interval: Duration,
    /// How long committed offsets are kept after the group became empty.
    pub offsets_retention: Duration,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_millis(limits::INITIAL_REBALANCE_DELAY_MS),
            rebalance_interval: Duration::from_millis(limits::REBALANCE_INTERVAL_MS),
            offsets_retention: Duration::from_millis(limits::OFFSETS_RETENTION_MS),
        }
    }
}

/// A commit of one partition, from outside of the group's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Next to read.
    pub offset: From,
}

/// A committed offset as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Next to read.
    pub committed: Offset,
    /// The partition's high watermark.
    pub high_watermark: Offset,
    /// Last stable offset less committed (not below 0).
    pub lag: u64,
    /// When it was committed.
    pub committed_at: Timestamp,
}

/// Where a member stands, partition by partition: what a cursor holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCursor {
    /// Whose cursor.
    pub group: GroupName,
    /// By topic and partition, each at most once.
    pub positions: Vec<GroupPosition>,
}

/// Where a member stands in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPosition {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The holding in which the records before `next` were delivered.
    pub epoch: AssignmentEpoch,
    /// Next to read.
    pub next: Offset,
}

/// The assignors, by the names that members ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AssignorName {
    /// Topic by topic, neighbouring partitions to one member.
    Range,
    /// All partitions in turn.
    RoundRobin,
    /// Evenly, and as much as can be stays where it is.
    Sticky,
    /// As `sticky`.
    #[default]
    CooperativeSticky,
    /// A module.
    Module {
        /// Which.
        module: ModuleRef,
        /// Its config: JSON text of at most `ASSIGNOR_CONFIG_BYTES_MAX`; none: `{}`.
        config: Option<Box<str>>,
    },
}

impl AssignorName {
    /// The text by which members vote for it: its name, and behind that of a module a space and the config.
    pub(super) fn vote(&self) -> Cow<'static, str> {
        match self {
            Self::Range => "range".into(),
            Self::RoundRobin => "round-robin".into(),
            Self::Sticky => "sticky".into(),
            Self::CooperativeSticky => "cooperative-sticky".into(),
            Self::Module { module, config: None } => format!("module:{module}").into(),
            Self::Module { module, config: Some(config) } => format!("module:{module} {config}").into(),
        }
    }

    /// The name and the config of a vote.
    pub(super) fn of_vote(vote: &str) -> (&str, Option<&str>) {
        vote.split_once(' ').map_or((vote, None), |(name, config)| (name, Some(config)))
    }
}

/// A member that wants to join. The time-outs are within the bounds of `limits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    /// Topics to read, at least one, each once, at most `GROUP_TOPICS_MAX`.
    pub topics: Vec<TopicName>,
    /// The assignor it prefers.
    pub assignor: AssignorName,
    /// Silence longer than this removes it.
    pub session_timeout_ms: u64,
    /// How long it may take to give up partitions.
    pub rebalance_timeout_ms: u64,
    /// No fetch for longer than this removes it.
    pub max_poll_interval_ms: u64,
    /// Where it begins in partitions without a committed offset.
    pub start: Start,
    /// Its fixed identity over restarts (KIP-345).
    pub instance_id: Option<InstanceId>,
    /// Who it says that it is (its user agent); the first `CLIENT_BYTES_MAX` bytes are kept.
    pub client: String,
}

/// What every answer to a member carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The member.
    pub member_id: MemberId,
    /// The group's generation.
    pub generation: u32,
    /// What it holds and keeps, by topic and partition.
    pub assignment: Vec<(TopicName, PartitionIndex)>,
    /// What it holds and has to give up, likewise.
    pub revoked: Vec<(TopicName, PartitionIndex)>,
    /// When what is to be given up is taken from it; none if there is none.
    pub revoke_deadline: Option<Timestamp>,
    /// How it stands.
    pub state: MemberState,
}

/// A member's fetch.
#[derive(Clone, Debug)]
pub struct GroupFetch {
    /// Where it stands; none: at what is committed, or where its join said.
    pub cursor: Option<GroupCursor>,
    /// Most records, of all partitions together.
    pub max_records: usize,
    /// Most bytes, likewise; the first record comes whatever its size.
    pub max_bytes: usize,
    /// How long to wait while there is nothing to tell.
    pub wait: Duration,
}

/// What a member's fetch gave.
#[derive(Clone, Debug)]
pub struct GroupFetched {
    /// What the member holds.
    pub membership: Membership,
    /// One read a partition, none of them empty of both records and gaps.
    pub parts: Vec<GroupPart>,
    /// Where it stands behind all of them.
    pub cursor: GroupCursor,
    /// Positions that did not go on where they stood.
    pub resets: Vec<OffsetReset>,
}

/// Records of one partition.
#[derive(Clone, Debug)]
pub struct GroupPart {
    /// The topic.
    pub topic: TopicName,
    /// Its id, as cursors name it.
    pub topic_id: TopicId,
    /// The records.
    pub fetched: Fetched,
}

/// A position that did not go on where it stood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetReset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Where it goes on.
    pub to: Offset,
    /// Why.
    pub cause: ResetCause,
}

/// Why a position did not go on where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// The committed offset has expired, so the member's start rule was applied.
    Expired,
    /// The log start has passed it; it goes on there.
    BelowStart,
    /// It was beyond the end, so the member's start rule was applied.
    BeyondEnd,
}

/// What a member commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitWhat {
    /// Everything that was delivered up to a cursor; never goes back.
    Cursor(GroupCursor),
    /// Offsets in words: next to read. They may go back.
    Offsets(Vec<(TopicName, PartitionIndex, Offset)>),
}

/// What became of a member's commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCommitted {
    /// What stands committed now of the partitions whose commit was accepted, in the order of the request.
    pub committed: Vec<(TopicName, PartitionIndex, Offset)>,
    /// Those that were refused, each with the reason. A topic that was deleted is named by its id.
    pub refused: Vec<(TopicName, PartitionIndex, String)>,
}

/// Records that a member cannot process: each goes to its topic's dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectRecords {
    /// Which, at least one, at most `REJECT_RECORDS_MAX`.
    pub records: Vec<(TopicName, PartitionIndex, Offset)>,
    /// Why; the dead letters' header `error`.
    pub reason: String,
    /// How often it was tried, where known; the header `attempts`.
    pub attempts: Option<u32>,
}

/// A group as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group.
    pub group: GroupName,
    /// How it stands.
    pub state: GroupState,
    /// Its generation.
    pub generation: u32,
    /// The assignor in use; none for a group that never had a member.
    pub assignor: Option<Arc<str>>,
    /// The config that it was given, as JSON text; none where it was given none.
    pub assignor_config: Option<Arc<str>>,
    /// Why the assignment in force came from the built-in assignor and not from the one that was asked for.
    pub fallback: Option<AssignorFallback>,
    /// By id.
    pub members: Vec<GroupMember>,
    /// By topic and partition; those of deleted topics are left out.
    pub offsets: Vec<GroupOffset>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its fixed identity.
    pub instance_id: Option<InstanceId>,
    /// Who it says that it is.
    pub client: String,
    /// What it subscribes to.
    pub topics: Vec<TopicName>,
    /// What it holds and keeps.
    pub assignment: Vec<(TopicName, PartitionIndex)>,
    /// What it holds and has to give up.
    pub revoked: Vec<(TopicName, PartitionIndex)>,
    /// How it stands.
    pub state: MemberState,
}

/// A committed offset with its lag in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOffset {
    /// The offset.
    pub offset: CommittedOffset,
    /// Milliseconds since the time of the next record to read; 0 if there is none, or if its time is to come. None if the
    /// record cannot be read.
    pub lag_ms: Option<u64>,
}

/// Why a call on a group was refused; nothing was changed, if nothing else is said.
#[derive(Debug, Error)]
pub enum GroupError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// It is a processor's, and changed by the broker alone.
    #[error("{0} is a processor's group; pause, reset or delete the processor instead")]
    Internal(GroupName),
    /// Nothing is known of the group.
    #[error("there is no group {0}")]
    NotFound(GroupName),
    /// Offsets or records were wrong, each at its place.
    #[error("{} of the offsets are wrong", .0.len())]
    Offsets(Vec<(usize, String)>),
    /// A member asks for an assignor that is not there, or is none.
    #[error("there is no assignor module:{0}")]
    NoAssignor(ModuleRef),
    /// A module does not take the config that a member has for it.
    #[error("module {module}: {error}")]
    AssignorConfig {
        /// Which module.
        module: ModuleRef,
        /// What is wrong.
        error: ModuleConfigError,
    },
    /// Topics of a join, each at its place, are not there.
    #[error("{} of the topics are not there", .0.len())]
    UnknownTopics(Vec<(usize, TopicName)>),
    /// The group has no such member (any more): join again.
    #[error("the group has no member {0}; join again")]
    UnknownMember(MemberId),
    /// A newer member came with this member's instance id.
    #[error("another member took over instance id {instance_id}")]
    FencedInstance {
        /// The id.
        instance_id: InstanceId,
    },
    /// Nothing of a commit or rejection was accepted.
    #[error("the member does not hold the partitions, or lost them since the records were delivered")]
    IllegalGeneration(GroupCommitted),
    /// The cursor is one of another group.
    #[error("the cursor belongs to another group")]
    OtherGroup,
    /// Only done to groups without members.
    #[error("the group has {0} active members")]
    Active(usize),
    /// No further member is taken.
    #[error("the group has {limit} members already")]
    GroupFull {
        /// The cap.
        limit: usize,
    },
    /// Its members subscribe to as much as a group may already.
    #[error("the subscriptions of the group's members would take more than {limit_bytes} bytes; name fewer topics")]
    SubscriptionsFull {
        /// The cap.
        limit_bytes: usize,
    },
    /// Too much waits for the ends of transactions; try again when some have ended.
    #[error("{limit} {of} wait already for their end in the group's partition; try again")]
    TooManyPending {
        /// The cap.
        limit: usize,
        /// Of what.
        of: &'static str,
    },
    /// Members of Kafka's classic protocol are in the group.
    #[error("the group has members of another protocol")]
    InconsistentProtocol,
    /// The topic can have no dead letters.
    #[error("{topic} can have no dead letters: {reason}")]
    DeadLetters {
        /// Whose records they would be.
        topic: TopicName,
        /// Why not.
        reason: String,
    },
    /// The topic of the dead letters takes none for the moment; try again.
    #[error("the dead letters of {topic} are not taken now: {reason}")]
    DeadLettersBusy {
        /// Whose records they would be.
        topic: TopicName,
        /// Why not.
        reason: String,
    },
    /// Fewer replicas are in sync than the topic of the dead letters asks for.
    #[error("{topic} has {in_sync} replicas in sync and needs {needed}")]
    NotEnoughReplicas {
        /// The topic of the dead letters.
        topic: TopicName,
        /// Replicas in sync.
        in_sync: u32,
        /// Replicas needed.
        needed: u32,
    },
    /// The records of a rejection are too large together; one alone never is.
    #[error("the dead letters of one rejection take at most {limit_bytes} bytes; reject fewer records at once")]
    RejectTooLarge {
        /// The cap.
        limit_bytes: usize,
    },
    /// Some of the records of a rejection became dead letters, and then this happened. Asking again is safe.
    #[error("some of the records are stored as dead letters; then: {0}")]
    InPart(Box<GroupError>),
    /// The group's coordinator lost its place and starts anew; what was asked for may have been done. Try again.
    #[error("the group's coordinator is loading")]
    Loading,
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// Too much waits for the group's partition, or no file can be opened for it; try again.
    #[error("the group's partition takes no commits now")]
    Overloaded,
    /// What was committed or produced before cannot be read.
    #[error("what the group needs cannot be read: {0}")]
    Storage(StorageError),
    /// The disk fails.
    #[error("groups cannot be changed now: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the change may hold all the same.
        possible: bool,
    },
}

impl std::convert::From<CoordinatorFault> for GroupError {
    fn from(fault: CoordinatorFault) -> Self {
        match fault {
            CoordinatorFault::Loading => Self::Loading,
            CoordinatorFault::Closing => Self::Closing,
            CoordinatorFault::Overloaded => Self::Overloaded,
            CoordinatorFault::Storage(error) => Self::Storage(error),
            CoordinatorFault::Fenced { reason, possible } => Self::Fenced { reason, possible },
        }
    }
}
