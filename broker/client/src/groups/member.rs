//! The calls of a group's member, one by one. Each may go over a connection of its own: a member is its id.

use levada_api::{
    CommitGroup, CommittedGroup, DeadLetters, GroupGap, GroupHeartbeat, GroupPartition, GroupPlace, JoinGroup,
    JoinedGroup, MemberState, OffsetReset, RejectRecords,
};
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;

use super::GroupRecord;
use crate::{Client, ClientError};

/// How much a member's fetch brings. What is not set is the server's default.
#[derive(Clone, Debug, Default)]
pub struct GroupQuery {
    /// Most records, of all partitions together.
    pub max_records: Option<u64>,
    /// Most bytes, likewise; the first record comes all the same.
    pub max_bytes: Option<u64>,
    /// How long the server holds back an answer that has nothing to tell, in milliseconds.
    pub wait_ms: Option<u64>,
}

impl GroupQuery {
    /// The defaults, waiting so long.
    #[must_use]
    pub fn wait(wait_ms: u64) -> Self {
        Self { wait_ms: Some(wait_ms), ..Self::default() }
    }

    fn add_to(&self, request: RequestBuilder) -> RequestBuilder {
        let members = [("max_records", self.max_records), ("max_bytes", self.max_bytes), ("wait_ms", self.wait_ms)];
        let query: Vec<_> = members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        request.query(&query)
    }
}

/// What a member's fetch gave.
#[derive(Clone, Debug, Deserialize)]
pub struct GroupFetched {
    /// In order within each partition.
    pub records: Vec<GroupRecord>,
    /// Offsets that are gone.
    #[serde(default)]
    pub gaps: Vec<GroupGap>,
    /// Partitions in which the member did not go on where it stood.
    #[serde(default)]
    pub resets: Vec<OffsetReset>,
    /// Behind the records: for the next fetch, and to commit them by.
    pub cursor: String,
    /// The group's generation.
    pub generation: u32,
    /// What the member holds and keeps.
    pub assignment: Vec<GroupPartition>,
    /// What the member has to give up: its next fetch does so.
    pub revoked: Vec<GroupPartition>,
    /// When that is taken from it, in milliseconds since 1970.
    pub revoke_deadline_ms: Option<i64>,
    /// How the member stands.
    pub state: MemberState,
}

impl Client {
    /// Joins a group as a new member; never waits for the others.
    ///
    /// # Errors
    /// See [`ClientError`]; `topic-not-found` where a topic is not there.
    pub async fn join_group(&self, group: &str, join: &JoinGroup) -> Result<JoinedGroup, ClientError> {
        let request = self.request(Method::POST, &["v1", "groups", group, "members"])?;
        self.send_for_json(request.json(join)).await
    }

    /// Reads on as a member from its cursor; an empty one is at what is committed.
    ///
    /// # Errors
    /// See [`ClientError`]; `unknown-member` where the group has no such member (any more).
    pub async fn fetch_group(
        &self,
        group: &str,
        member: &str,
        cursor: &str,
        query: &GroupQuery,
    ) -> Result<GroupFetched, ClientError> {
        let request = self.member_request(Method::GET, group, member, Some("records"))?;
        let request = if cursor.is_empty() { request } else { request.query(&[("cursor", cursor)]) };
        self.send_for_json(query.add_to(request)).await
    }

    /// Says that a member lives.
    ///
    /// # Errors
    /// As [`fetch_group`](Self::fetch_group).
    pub async fn heartbeat_group(&self, group: &str, member: &str) -> Result<GroupHeartbeat, ClientError> {
        self.send_for_json(self.member_request(Method::POST, group, member, Some("heartbeat"))?).await
    }

    /// Commits everything that was delivered up to a cursor.
    ///
    /// # Errors
    /// As [`fetch_group`](Self::fetch_group), and `illegal-generation` where nothing was accepted.
    pub async fn commit_group_cursor(
        &self,
        group: &str,
        member: &str,
        cursor: &str,
    ) -> Result<CommittedGroup, ClientError> {
        self.commit_group(group, member, &CommitGroup::Cursor { cursor: cursor.to_owned() }).await
    }

    /// Commits offsets as a member: each is the offset to read next.
    ///
    /// # Errors
    /// As [`commit_group_cursor`](Self::commit_group_cursor), and `invalid-offset` where one is beyond the end.
    pub async fn commit_group_offsets(
        &self,
        group: &str,
        member: &str,
        offsets: Vec<GroupPlace>,
    ) -> Result<CommittedGroup, ClientError> {
        self.commit_group(group, member, &CommitGroup::Offsets { offsets }).await
    }

    /// Sends records to their topics' dead letters; answers where they are, in order.
    ///
    /// # Errors
    /// As [`commit_group_cursor`](Self::commit_group_cursor).
    pub async fn reject_records(
        &self,
        group: &str,
        member: &str,
        reject: &RejectRecords,
    ) -> Result<Vec<GroupPlace>, ClientError> {
        let request = self.member_request(Method::POST, group, member, Some("reject"))?.json(reject);
        Ok(self.send_for_json::<DeadLetters>(request).await?.dead_letters)
    }

    /// Leaves a group; what the member held goes to others at once.
    ///
    /// # Errors
    /// As [`fetch_group`](Self::fetch_group).
    pub async fn leave_group(&self, group: &str, member: &str) -> Result<(), ClientError> {
        self.send(self.member_request(Method::DELETE, group, member, None)?).await.map(drop)
    }

    async fn commit_group(
        &self,
        group: &str,
        member: &str,
        commit: &CommitGroup,
    ) -> Result<CommittedGroup, ClientError> {
        let request = self.member_request(Method::POST, group, member, Some("commit"))?;
        self.send_for_json(request.json(commit)).await
    }

    fn member_request(
        &self,
        method: Method,
        group: &str,
        member: &str,
        call: Option<&str>,
    ) -> Result<RequestBuilder, ClientError> {
        let path = ["v1", "groups", group, "members", member].into_iter().chain(call);
        self.request(method, &path.collect::<Vec<_>>())
    }
}
