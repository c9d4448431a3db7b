//! What a client's frames say. Not here: how they are read.

use bytes::Bytes;
use serde::Deserialize;

use crate::FrameId;
use crate::record_query::{AcksWord, IsolationWord};
use crate::{GroupPlace, JoinGroup, Problem};

/// A frame of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientFrame {
    /// Begins a subscription.
    Subscribe(Box<Subscribe>),
    /// Lets a subscription send more.
    Credit(FrameId, Credit),
    /// Commits what was delivered up to a cursor.
    Commit {
        /// The subscription.
        id: FrameId,
        /// The cursor.
        cursor: String,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// The subscription.
        id: FrameId,
    },
    /// Stores records.
    Produce(Produce),
    /// Asks for a `pong`.
    Ping {
        /// Told back.
        id: Option<FrameId>,
    },
}

/// What a subscription is to deliver.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    /// What the client calls it.
    pub id: FrameId,
    /// Of what.
    pub of: StreamOf,
    /// What to see of transactions.
    pub isolation: IsolationWord,
    /// As what records come.
    pub form: StreamForm,
    /// What passes on the way.
    pub filter: Option<StreamFilter>,
}

/// A filter of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFilter {
    /// `module:NAME` or `module:NAME@2`.
    pub module: String,
    /// Its config as JSON text.
    pub config: Option<String>,
}

/// Of what a subscription is.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamOf {
    /// Topics, read for this subscription alone.
    Topics {
        /// Each once.
        topics: Vec<String>,
        /// Where to begin.
        start: StreamStart,
    },
    /// What a member of a group holds.
    Group {
        /// The group.
        group: String,
        /// How it joins; without topics: those that the group reads already.
        join: Box<JoinGroup>,
        /// Where it stands, if it was a member before.
        cursor: Option<String>,
    },
}

/// Where a subscription of topics begins.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamStart {
    /// Nothing was said.
    Default,
    /// `from`: this offset in every partition.
    At(u64),
    /// `from`: a word or a cursor.
    From(String),
    /// `cursor`.
    Cursor(String),
    /// `positions`: these offsets; partitions that are not named begin at their start.
    Positions(Vec<GroupPlace>),
}

/// As what records come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamForm {
    /// Text frames of record objects.
    #[default]
    Json,
    /// Binary frames of stored batches.
    Batches,
}

/// How much more a subscription may send; none is nothing said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Records.
    pub records: Option<u64>,
    /// Bytes: of record objects as they stand in frames, or of stored batches.
    pub bytes: Option<u64>,
}

/// Records to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produce {
    /// Told back in the answer.
    pub id: FrameId,
    /// The topic.
    pub topic: String,
    /// When to answer.
    pub acks: AcksWord,
    /// The list of records as it came, for [`parse_record_list`](crate::parse_record_list). It shares the frame's bytes.
    pub records: Bytes,
}

/// A frame that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct BadFrame {
    /// The frame's `id`, where it has one that can be told back.
    pub id: Option<FrameId>,
    /// What is wrong.
    pub problem: Problem,
}
