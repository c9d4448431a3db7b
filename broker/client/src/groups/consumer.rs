//! A member that keeps its place in its group: it joins, goes on from its cursor, outlives broken connections, and joins
//! again when it was removed.
//!
//! Not here: heartbeats between two fetches. Who works on a batch for longer than the session time-out sends its own.

use levada_api::{CommittedGroup, ErrorCode, GroupHeartbeat, GroupPlace, JoinGroup, RejectRecords};
use tokio::time::Instant;

use super::{GroupFetched, GroupQuery};
use crate::backoff::Backoff;
use crate::{Client, ClientError};

/// A consumer in a group. Dropped without [`leave`](Self::leave), its partitions go to others when its session ends.
#[derive(Debug)]
pub struct GroupConsumer {
    client: Client,
    group: String,
    join: JoinGroup,
    member: Option<Member>,
    backoff: Backoff,
    answered: bool,
}

/// A membership: it ends when the group removes the member, and the cursor with it.
#[derive(Debug)]
struct Member {
    id: String,
    /// Behind everything that was given.
    cursor: String,
}

impl Client {
    /// A consumer in a group. Joins with the first [`next`](GroupConsumer::next).
    #[must_use]
    pub fn group_consumer(&self, group: &str, join: JoinGroup) -> GroupConsumer {
        GroupConsumer {
            client: self.clone(),
            group: group.to_owned(),
            join,
            member: None,
            backoff: Backoff::default(),
            answered: false,
        }
    }
}

impl GroupConsumer {
    /// Its id in the group, once it has joined.
    #[must_use]
    pub fn member_id(&self) -> Option<&str> {
        self.member.as_ref().map(|member| member.id.as_str())
    }

    /// Reads on. What was given and not committed comes again only after the group removed this consumer, which then
    /// joins anew. Once the server has answered, broken connections and refusals that pass are outlived, however long it
    /// takes.
    ///
    /// # Errors
    /// When the first connection fails, or the server says something final (no such topic, the instance id was taken
    /// over).
    pub async fn next(&mut self, query: &GroupQuery) -> Result<GroupFetched, ClientError> {
        loop {
            match self.try_next(query).await {
                Ok(fetched) => {
                    self.backoff = Backoff::default();
                    return Ok(fetched);
                }
                Err(error) if is_unknown(&error) => self.member = None,
                Err(error) if self.answered && error.is_retryable() => {
                    let pause = self.backoff.next_pause(error.retry_after());
                    tokio::time::sleep_until(Instant::now() + pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits everything that was given; nothing where nothing was.
    ///
    /// # Errors
    /// See [`ClientError`]. After `unknown-member` and `illegal-generation` the next [`next`](Self::next) goes on all the
    /// same, and what was not committed comes again, here or at another member.
    pub async fn commit(&mut self) -> Result<CommittedGroup, ClientError> {
        let Some(member) = &self.member else { return Ok(CommittedGroup::default()) };
        let committed = self.client.commit_group_cursor(&self.group, &member.id, &member.cursor).await;
        self.noting(committed)
    }

    /// Commits offsets, each the one to read next; `commit` takes everything that was given.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn commit_offsets(&mut self, offsets: Vec<GroupPlace>) -> Result<CommittedGroup, ClientError> {
        let Some(member) = &self.member else { return Ok(CommittedGroup::default()) };
        let committed = self.client.commit_group_offsets(&self.group, &member.id, offsets).await;
        self.noting(committed)
    }

    /// Sends records to their topics' dead letters; answers where they are. Commits nothing.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn reject(&mut self, reject: &RejectRecords) -> Result<Vec<GroupPlace>, ClientError> {
        let Some(member) = &self.member else { return Ok(Vec::new()) };
        let rejected = self.client.reject_records(&self.group, &member.id, reject).await;
        self.noting(rejected)
    }

    /// Says that it lives, between two fetches that are far apart; none before it has joined.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub async fn heartbeat(&mut self) -> Result<Option<GroupHeartbeat>, ClientError> {
        let Some(member) = &self.member else { return Ok(None) };
        let told = self.client.heartbeat_group(&self.group, &member.id).await;
        self.noting(told.map(Some))
    }

    /// Leaves the group; what it held goes to others at once. Who was removed before has left.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn leave(mut self) -> Result<(), ClientError> {
        let Some(member) = self.member.take() else { return Ok(()) };
        match self.client.leave_group(&self.group, &member.id).await {
            Err(error) if is_unknown(&error) => Ok(()),
            left => left,
        }
    }

    async fn try_next(&mut self, query: &GroupQuery) -> Result<GroupFetched, ClientError> {
        if self.member.is_none() {
            let joined = self.client.join_group(&self.group, &self.join).await?;
            self.answered = true;
            self.member = Some(Member { id: joined.member_id, cursor: joined.cursor });
        }
        let member = self.member.as_mut().expect("it has joined");
        let fetched = self.client.fetch_group(&self.group, &member.id, &member.cursor, query).await?;
        member.cursor.clone_from(&fetched.cursor);
        Ok(fetched)
    }

    /// Forgets a membership that has ended.
    fn noting<T>(&mut self, answer: Result<T, ClientError>) -> Result<T, ClientError> {
        if answer.as_ref().is_err_and(is_unknown) {
            self.member = None;
        }
        answer
    }
}

fn is_unknown(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ErrorCode::UnknownMember)
}
