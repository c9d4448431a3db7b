//! Frames that the server sends. Those of records are written around records that are text already.

use serde::Serialize;

use super::FrameId;
use crate::{GroupHeartbeat, GroupPlace, Placement, Problem, RefusedCommit};

/// A frame of the server, except `records`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerFrame {
    /// The first frame.
    Welcome {
        /// The server's name and version.
        server: &'static str,
        /// The node that the socket is with.
        node: u32,
        /// What holds for this socket.
        limits: WsLimits,
    },
    /// A subscription has begun.
    Subscribed {
        /// The subscription.
        id: FrameId,
        /// Where, by topic and partition; of a group's member none, since its places come with its partitions.
        positions: Vec<GroupPlace>,
        /// Whether an exact place was asked for and nothing behind it is gone.
        resumed: bool,
        /// The cursor of these positions.
        cursor: String,
        /// Who it is in its group.
        #[serde(flatten)]
        member: Option<StreamMember>,
    },
    /// What became of a commit.
    Committed {
        /// The subscription.
        id: FrameId,
        /// What stands committed now.
        committed: Vec<GroupPlace>,
        /// What was not accepted.
        refused: Vec<RefusedCommit>,
    },
    /// A member holds something else than before.
    Rebalance {
        /// The subscription.
        id: FrameId,
        /// What it holds, and what it has to give up.
        #[serde(flatten)]
        standing: GroupHeartbeat,
        /// Behind everything that was delivered, for a commit.
        cursor: String,
    },
    /// What became of a produce.
    Produced {
        /// The produce.
        id: FrameId,
        /// One place a record, in order.
        records: Vec<Placement>,
    },
    /// The end was reached.
    CaughtUp {
        /// The subscription.
        id: FrameId,
        /// The cursor of the end.
        cursor: String,
    },
    /// Offsets were skipped.
    Gap(StreamGap),
    /// A subscription has ended as asked.
    Unsubscribed {
        /// The subscription.
        id: FrameId,
    },
    /// Something was refused, or a subscription has ended.
    Error {
        /// What it is about; null where that could not be told.
        id: Option<FrameId>,
        /// Why.
        problem: Box<Problem>,
    },
    /// The server ends; the close follows.
    Goaway {
        /// Why.
        reason: &'static str,
    },
    /// The answer to a `ping`.
    Pong {
        /// The ping's.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<FrameId>,
    },
}

/// A member of a group, as its subscription begins.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamMember {
    /// Who it is.
    pub member_id: String,
    /// How it stands.
    #[serde(flatten)]
    pub standing: GroupHeartbeat,
}

/// Offsets that a subscription skips because they cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StreamGap {
    /// The subscription.
    pub id: FrameId,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// First offset that is missing; null where nobody knows any more.
    pub from: Option<u64>,
    /// The offset after the last one that is missing.
    pub to: u64,
    /// Why.
    pub cause: SkipCause,
}

/// Why offsets are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipCause {
    /// Retention or a truncation removed them.
    Retention,
    /// Their bytes were damaged.
    Damage,
    /// What the group had committed has expired, so that the member began where it said.
    ExpiredOffset,
    /// What the group had committed was beyond the end, so that the member began where it said.
    BeyondEnd,
}

/// What holds for a socket; units last in the names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WsLimits {
    /// Largest message that the server takes.
    pub max_message_bytes: usize,
    /// Most subscriptions at a time.
    pub max_subscriptions: usize,
    /// Most topics of a subscription.
    pub max_subscription_topics: usize,
    /// Most produces whose answers are not there yet; then the server reads no more until some are.
    pub max_inflight_produces: usize,
    /// Most bytes of such produces; one always fits.
    pub max_inflight_bytes: usize,
    /// Most bytes of answers that wait to be read by the client; then the server reads no more.
    pub max_answer_bytes: usize,
    /// How often the server pings; a peer that misses two is dropped.
    pub ping_interval_ms: u64,
    /// How long the socket may take nothing before its subscriptions end.
    pub slow_reader_timeout_ms: u64,
}

impl ServerFrame {
    /// The frame as text.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a frame is plain data")
    }
}
