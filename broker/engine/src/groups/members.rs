//! The calls of a group's members, and those on groups as a whole.

use levada_model::{GroupName, MemberId, Offset, PartitionIndex, Principal, TopicName};

use super::terms::{
    CommitWhat, GroupCommitted, GroupDescription, GroupError, GroupFetch, GroupFetched, GroupSummary, JoinGroup,
    Membership, RejectRecords,
};
use crate::Engine;

#[expect(clippy::todo, unused_variables, reason = "signatures first: others compile against them")]
impl Engine {
    /// Joins a group as a new member; never waits for others.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn join_group(
        &self,
        who: &Principal,
        group: &GroupName,
        join: JoinGroup,
    ) -> Result<Membership, GroupError> {
        todo!()
    }

    /// Reads what the member holds from its cursor on; waits at most `fetch.wait` for something to tell: records, a first
    /// assignment, a changed one. Gives up what the member was told to give up before.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn fetch_group(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        fetch: GroupFetch,
    ) -> Result<GroupFetched, GroupError> {
        todo!()
    }

    /// Says that the member lives.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn heartbeat(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
    ) -> Result<Membership, GroupError> {
        todo!()
    }

    /// Commits offsets of partitions that the member holds, durably. Positions beyond a partition's end are
    /// [`GroupError::Offsets`], each at its place in the cursor or list, and nothing is committed then.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn commit_member(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        what: CommitWhat,
    ) -> Result<GroupCommitted, GroupError> {
        todo!()
    }

    /// Copies records that the member cannot process to `<topic>.dead-letter`, each once however often it is asked for;
    /// answers where they are, in order. The member must hold their partitions. Commits nothing.
    ///
    /// # Errors
    /// See [`GroupError`]; [`GroupError::Offsets`] names the places where there is no record.
    pub async fn reject(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        reject: RejectRecords,
    ) -> Result<Vec<(TopicName, PartitionIndex, Offset)>, GroupError> {
        todo!()
    }

    /// Leaves the group; what the member held goes to others at once.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn leave_group(&self, who: &Principal, group: &GroupName, member: &MemberId) -> Result<(), GroupError> {
        todo!()
    }

    /// All groups that `who` may see, by name.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn list_groups(&self, who: &Principal) -> Result<Vec<GroupSummary>, GroupError> {
        todo!()
    }

    /// A group as it is.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn describe_group(&self, who: &Principal, group: &GroupName) -> Result<GroupDescription, GroupError> {
        todo!()
    }

    /// Deletes a group without members, with its offsets.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn delete_group(&self, who: &Principal, group: &GroupName) -> Result<(), GroupError> {
        todo!()
    }
}
