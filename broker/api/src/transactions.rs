//! Transactions on the wire: begin, offsets, end, what is open, and whole ones in one request.
//!
//! Not here: the records of a whole transaction (`record_in` reads them) and how a transaction's id is made (to everybody
//! but the broker it is opaque text).

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::groups::{GroupPartition, GroupPlace};
use crate::record_in::RecordIn;
use crate::strict::{objects, whole, whole_within};

/// A producer whose next transaction begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"producer_id": 7, "producer_epoch": 0}))]
pub struct BeginTransaction {
    /// As `POST /v1/producers` or the end of the transaction before told it.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0)]
    pub producer_id: i64,
    /// Likewise; each transaction has an epoch of its own.
    #[serde(deserialize_with = "epoch")]
    #[schema(minimum = 0, maximum = 32767)]
    pub producer_epoch: i16,
}

/// A transaction that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BegunTransaction {
    /// Its id: for the header `Transaction` and for paths.
    pub transaction: String,
}

/// Offsets of a group that are committed with a transaction, and not if it is aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"group": "billing", "member_id": null, "offsets": [{"topic": "orders", "partition": 0, "offset": 10}]}))]
pub struct TransactionOffsets {
    /// The group.
    pub group: String,
    /// The member that read the records; null: nobody, which is refused while the group has members.
    #[serde(default)]
    pub member_id: Option<String>,
    /// The offset to read next, one a partition.
    #[serde(deserialize_with = "objects")]
    pub offsets: Vec<GroupPlace>,
}

/// Offsets that a transaction holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingOffsets {
    /// Those of the request: they count once the transaction is committed.
    pub pending: Vec<GroupPlace>,
}

/// A page of transactions that are open or being ended, by transactional id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransactionList {
    /// The transactions.
    pub transactions: Vec<OpenTransaction>,
    /// `cursor` of the next page; null on the last.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
    /// How many coordinators could not be asked now, where some could not: the transactions that they keep are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_coordinators: Option<u64>,
}

/// A transaction that is open or being ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenTransaction {
    /// Whose; ids that begin with `__` are those of transactions of one request.
    pub transactional_id: String,
    /// Its id.
    pub transaction: String,
    /// Its producer.
    pub producer_id: i64,
    /// The epoch of its records.
    pub producer_epoch: i16,
    /// How it stands.
    pub state: TransactionState,
    /// When it began, in milliseconds since 1970.
    pub started_at: i64,
    /// After how long it is aborted, in milliseconds.
    pub timeout_ms: u64,
    /// Where it has written, or was going to. Topics that were deleted are left out. Of many it is the first 100.
    pub partitions: Vec<GroupPartition>,
    /// How many partitions there are, where these are not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<u64>,
    /// Groups whose offsets it holds.
    pub groups: Vec<String>,
    /// Of how many of these the end is not written yet, as far as is known; null while it is open.
    #[schema(required = true)]
    pub unfinished: Option<u64>,
}

/// How a transaction stands that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransactionState {
    /// It is open.
    Ongoing,
    /// It is committed, and this is being written.
    Committing,
    /// It is aborted, and this is being written.
    Aborting,
}

impl TransactionState {
    /// The word as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ongoing => "ongoing",
            Self::Committing => "committing",
            Self::Aborting => "aborting",
        }
    }
}

/// A whole transaction as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecuteIn {
    /// Records, each with the name of its topic.
    pub records: Vec<(String, RecordIn)>,
    /// Offsets that are committed with them.
    pub group_offsets: Option<TransactionOffsets>,
}

/// A whole transaction that was committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutedTransaction {
    /// Where each record is, in the order of the request.
    pub records: Vec<ExecutedRecord>,
}

/// Where a record of a whole transaction is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutedRecord {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Its time as stored, in milliseconds since 1970.
    pub timestamp: i64,
}

fn epoch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i16, D::Error> {
    let epoch = whole_within(deserializer, 0..=u64::from(i16::MAX.unsigned_abs()))?;
    Ok(i16::try_from(epoch).expect("it is within the bounds of an epoch"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn a_producer_is_an_id_and_an_epoch() {
        let begin: BeginTransaction = from_json(br#"{"producer_id":7,"producer_epoch":32767}"#).expect("valid");
        assert_eq!((begin.producer_id, begin.producer_epoch), (7, i16::MAX));
        for (body, pointer, words) in [
            ("{}", "", "producer_id"),
            (r#"{"producer_id":7}"#, "", "producer_epoch"),
            (r#"{"producer_id":"7","producer_epoch":0}"#, "/producer_id", "an integer from 0"),
            (r#"{"producer_id":-1,"producer_epoch":0}"#, "/producer_id", "an integer from 0"),
            (r#"{"producer_id":null,"producer_epoch":0}"#, "/producer_id", "an integer from 0"),
            (r#"{"producer_id":9007199254740992,"producer_epoch":0}"#, "/producer_id", "an integer from 0"),
            (r#"{"producer_id":7,"producer_epoch":32768}"#, "/producer_epoch", "an integer from 0 to 32767"),
            (r#"{"producer_id":7,"producer_epoch":0.5}"#, "/producer_epoch", "an integer from 0 to 32767"),
            (r#"{"producer_id":7,"producer_epoch":0,"epoch":1}"#, "/epoch", "epoch"),
            (r#"{"producer_id":7,"producer_id":7,"producer_epoch":0}"#, "/producer_id", "duplicate"),
        ] {
            let problem = from_json::<BeginTransaction>(body.as_bytes()).expect_err(body);
            assert_eq!((problem.status, problem.errors[0].pointer.as_str()), (422, pointer), "{problem:?}");
            assert!(problem.errors[0].detail.contains(words), "{problem:?}");
        }
    }

    #[test]
    fn offsets_name_a_group_and_may_name_a_member() {
        for (member, read) in [("", None), (r#""member_id":null,"#, None), (r#""member_id":"m","#, Some("m"))] {
            let body = format!(r#"{{"group":"g",{member}"offsets":[{{"topic":"t","partition":0,"offset":1}}]}}"#);
            let offsets: TransactionOffsets = from_json(body.as_bytes()).expect(&body);
            assert_eq!((offsets.member_id.as_deref(), offsets.offsets[0].offset), (read, 1));
        }
        for (body, pointer) in [
            (r#"{"offsets":[]}"#, ""),
            (r#"{"group":"g"}"#, ""),
            (r#"{"group":7,"offsets":[]}"#, "/group"),
            (r#"{"group":"g","member_id":7,"offsets":[]}"#, "/member_id"),
            (r#"{"group":"g","offsets":{}}"#, "/offsets"),
            (r#"{"group":"g","offsets":[["t",0,1]]}"#, "/offsets/0"),
            (r#"{"group":"g","offsets":[{"topic":"t","partition":0}]}"#, "/offsets/0"),
            (r#"{"group":"g","offsets":[{"topic":"t","partition":0,"offset":-1}]}"#, "/offsets/0/offset"),
            (r#"{"group":"g","offsets":[],"generation":1}"#, "/generation"),
        ] {
            let problem = from_json::<TransactionOffsets>(body.as_bytes()).expect_err(body);
            assert_eq!((problem.status, problem.errors[0].pointer.as_str()), (422, pointer), "{problem:?}");
        }
    }

    #[test]
    fn states_are_the_words_that_serde_writes() {
        for state in [TransactionState::Ongoing, TransactionState::Committing, TransactionState::Aborting] {
            assert_eq!(serde_json::to_value(state).expect("a word"), state.as_str());
        }
    }
}
