//! What happens in a history, and the names of those to whom it happens.

use std::fmt;
use std::str::FromStr;

use levada_coordinator::Outcome;
use levada_model::{GroupName, Offset, PartitionIndex, TopicName};

/// A place in a history. What was noted at an earlier place had happened before what was begun at a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At(pub usize);

/// One life of a producer: each start under its transactional id is another, with a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// Whose.
    pub producer: u32,
    /// Which.
    pub number: u32,
}

/// The name of a transaction within a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionNumber(pub u64);

/// What a record holds: of which transaction it is, and its number there. No value is sent for two records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value {
    /// The transaction.
    pub transaction: TransactionNumber,
    /// From 0 up, in the order in which they are sent.
    pub number: u32,
}

/// A partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// The topic.
    pub topic: TopicName,
    /// Its number there.
    pub index: PartitionIndex,
}

/// What a reader asks to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// Records that are decided and count.
    Committed,
    /// All records.
    Uncommitted,
}

/// What a reader was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// When it asked.
    pub asked: At,
    /// What it asked to see.
    pub view: View,
    /// Where.
    pub partition: Partition,
    /// From where on.
    pub from: Offset,
    /// The records, in the order in which they came.
    pub records: Vec<(Offset, Value)>,
    /// Where it is to go on: there is no more to be seen below.
    pub next: Offset,
    /// The marks of the partition, if it was told them.
    pub marks: Option<Marks>,
}

/// How far a partition can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Where its durable records end.
    pub high_watermark: Offset,
    /// Where those end that are decided.
    pub last_stable: Offset,
}

/// What somebody was told who asked for a group's committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When it asked.
    pub asked: At,
    /// Which group.
    pub group: GroupName,
    /// Of which partition.
    pub partition: Partition,
    /// What is committed, if anything is.
    pub offset: Option<Offset>,
}

/// One thing that happened. What was asked and has no answer may have been done or not.
///
/// A record or commit outside of any transaction, and a transaction of one request, is one without a life, whose commit is
/// asked at once. It may be tried anew, and then those who read all records may find some of a try that was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A producer wants to start.
    StartAsked(Life),
    /// It has started: those before it are fenced, and what they left open is aborted.
    Started(Life),
    /// A transaction begins.
    Begun(TransactionNumber, Option<Life>),
    /// Records go to a partition, in one request. The same again is a retry.
    SendAsked(Partition, Vec<Value>),
    /// They were acknowledged, each at its offset.
    Sent(Partition, Vec<(Value, Offset)>),
    /// They certainly were not stored.
    Refused(Vec<Value>),
    /// A group's offset is to be committed with a transaction; no offset is asked for twice.
    OffsetAsked(TransactionNumber, GroupName, Partition, Offset),
    /// It was acknowledged.
    OffsetAdded(TransactionNumber, GroupName, Partition, Offset),
    /// A transaction is to end.
    EndAsked(TransactionNumber, Outcome),
    /// It has ended, and that can be read.
    Ended(TransactionNumber, Outcome),
    /// A reader was answered.
    Read(Read),
    /// Somebody was told a group's offset.
    Looked(Look),
    /// An answer that no broker should give.
    Unexpected(String),
    /// The broker has gone down; how.
    Down(&'static str),
    /// It is back.
    Up,
    /// The load is over, and every producer has started once more, so that nothing is open. What is read from here on
    /// is read to the end.
    Settled,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "life {} of producer {}", self.number, self.producer)
    }
}

impl fmt::Display for TransactionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.transaction, self.number)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix('t').and_then(|rest| rest.split_once('.'));
        let value = parts.and_then(|(transaction, number)| {
            let transaction = TransactionNumber(transaction.parse().ok()?);
            Some(Self { transaction, number: number.parse().ok()? })
        });
        value.ok_or_else(|| format!("{text:?} is no value of this history"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_from_its_text() {
        let value = Value { transaction: TransactionNumber(17), number: 3 };
        assert_eq!(value.to_string(), "t17.3");
        assert_eq!("t17.3".parse(), Ok(value));
        for other in ["", "t17", "17.3", "t17.3.4", "tx.3", "t17.-3"] {
            assert!(other.parse::<Value>().is_err(), "{other}");
        }
    }
}
