//! A member's commit.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use super::GroupPlace;
use crate::strict::Object;

/// What a member commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, try_from = "CommitFields")]
#[schema(example = json!({"offsets": [{"topic": "orders", "partition": 0, "offset": 10}]}))]
pub enum CommitGroup {
    /// Everything that was delivered up to a cursor. It never takes a commit back.
    Cursor {
        /// The cursor of a fetch.
        cursor: String,
    },
    /// Offsets, which may take a commit back.
    Offsets {
        /// The offset to read next, one a partition.
        offsets: Vec<GroupPlace>,
    },
}

/// The object before it is known that it has exactly one of its fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommitFields {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    offsets: Option<Vec<Object<GroupPlace>>>,
}

#[derive(Debug, Error)]
#[error("exactly one of cursor and offsets is needed")]
struct NotOne;

impl TryFrom<CommitFields> for CommitGroup {
    type Error = NotOne;

    fn try_from(fields: CommitFields) -> Result<Self, NotOne> {
        match (fields.cursor, fields.offsets) {
            (Some(cursor), None) => Ok(Self::Cursor { cursor }),
            (None, Some(offsets)) => {
                Ok(Self::Offsets { offsets: offsets.into_iter().map(|Object(place)| place).collect() })
            }
            _ => Err(NotOne),
        }
    }
}

/// What became of a commit, partition by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommittedGroup {
    /// What stands committed now where the commit was accepted.
    pub committed: Vec<GroupPlace>,
    /// Where it was not.
    pub refused: Vec<RefusedCommit>,
}

/// A partition whose commit was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedCommit {
    /// The topic; where it was deleted, its id.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn a_commit_is_a_cursor_or_offsets_and_is_written_as_it_is_read() {
        for text in [r#"{"cursor":"abc"}"#, r#"{"offsets":[{"topic":"t","partition":0,"offset":10}]}"#] {
            let commit: CommitGroup = from_json(text.as_bytes()).expect(text);
            assert_eq!(serde_json::to_string(&commit).expect("plain"), text);
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        for (body, pointer, words) in [
            ("{}", "", "exactly one of cursor and offsets"),
            (r#"{"cursor":null}"#, "", "exactly one"),
            (r#"{"cursor":"","offsets":[]}"#, "", "exactly one"),
            (r#"{"cursor":7}"#, "/cursor", "a string"),
            (r#"{"offsets":[{"topic":"t","partition":0}]}"#, "/offsets/0", "offset"),
            (r#"{"offsets":[["t",0,1]]}"#, "/offsets/0", "an object"),
            (r#"{"offsets":[{"topic":"t","partition":0,"offset":-1}]}"#, "/offsets/0/offset", "an integer from 0"),
            (r#"{"offsets":[],"position":1}"#, "/position", "position"),
        ] {
            let problem = from_json::<CommitGroup>(body.as_bytes()).expect_err(body);
            assert_eq!((problem.status, problem.errors[0].pointer.as_str()), (422, pointer), "{problem:?}");
            assert!(problem.errors[0].detail.contains(words), "{problem:?}");
        }
    }
}
