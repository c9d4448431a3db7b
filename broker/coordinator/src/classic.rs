//! What members of Kafka's classic group protocol ask and are answered (JoinGroup, SyncGroup, Heartbeat, LeaveGroup,
//! OffsetCommit). Metadata and assignments are opaque: a member computes the assignment, the coordinator carries it.

use bytes::Bytes;
use levada_extension::TopicPartition;
use levada_model::{InstanceId, LeaderEpoch, MemberId, Offset};
use thiserror::Error;

use crate::terms::Generation;

/// A member that wants to join, or to join again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicJoin {
    /// Given back with the answer, which may come with a later step.
    pub token: u64,
    /// The id that it was given; none for a new member.
    pub member_id: Option<MemberId>,
    /// What a new member is to be called, drawn by the caller.
    pub new_id: MemberId,
    /// Its fixed identity over restarts (KIP-345).
    pub instance_id: Option<InstanceId>,
    /// Who it says that it is.
    pub client: String,
    /// Such as `consumer` or `connect`; the same for all members.
    pub protocol_type: String,
    /// The protocols (assignors) that it can speak, the preferred one first, each with what the leader needs to know.
    pub protocols: Vec<ClassicProtocol>,
    /// Silence longer than this removes it.
    pub session_timeout_ms: u64,
    /// How long a rebalance waits for it to join again.
    pub rebalance_timeout_ms: u64,
}

/// A protocol that a member can speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicProtocol {
    /// Its name.
    pub name: String,
    /// For the leader.
    pub metadata: Bytes,
}

/// Who speaks in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicCaller {
    /// Its id.
    pub member_id: MemberId,
    /// Its fixed identity, if it has one.
    pub instance_id: Option<InstanceId>,
    /// The generation that it knows.
    pub generation: Generation,
}

/// An answer to a join or a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicReply {
    /// The token of the request.
    pub token: u64,
    /// The answer.
    pub answer: ClassicAnswer,
}

/// What a join or a sync is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassicAnswer {
    /// To a join.
    Join(Result<ClassicJoined, ClassicError>),
    /// To a sync: the member's assignment.
    Sync(Result<Bytes, ClassicError>),
}

/// A rebalance as one member sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicJoined {
    /// Its id.
    pub member_id: MemberId,
    /// The generation that begins.
    pub generation: Generation,
    /// The protocol that all speak.
    pub protocol: String,
    /// Who computes the assignment.
    pub leader: MemberId,
    /// For the leader: all members. Empty for the others, and for a leader that came back and need not compute anything
    /// (KIP-814).
    pub members: Vec<ClassicPeer>,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicPeer {
    /// Its id.
    pub member_id: MemberId,
    /// Its fixed identity.
    pub instance_id: Option<InstanceId>,
    /// What it says for the protocol that was chosen.
    pub metadata: Bytes,
}

/// A commit of one partition by a classic member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicCommit {
    /// Which.
    pub partition: TopicPartition,
    /// Next to read.
    pub offset: Offset,
    /// The partition's leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// The member's own note.
    pub metadata: String,
}

/// Why a request of a classic member was refused (Kafka's error of the same name).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClassicError {
    /// No such member (any more): join again without an id.
    #[error("the group has no member {0}")]
    UnknownMember(MemberId),
    /// Another member came with its instance id.
    #[error("another member took over instance id {instance_id}")]
    FencedInstance {
        /// The id.
        instance_id: InstanceId,
    },
    /// Another generation is in force: join again.
    #[error("generation {} is in force", .0.0)]
    IllegalGeneration(Generation),
    /// A rebalance is under way: join again.
    #[error("a rebalance is under way")]
    RebalanceInProgress,
    /// Members of the other kind are in the group, or no protocol is spoken by all.
    #[error("the group speaks another protocol")]
    InconsistentProtocol,
    /// The group is full.
    #[error("the group has {limit} members already")]
    GroupFull {
        /// The cap.
        limit: usize,
    },
}
