//! Reading as a member of a consumer group: records come from the partitions that the member holds, and are committed
//! behind or before their printing.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use levada_api::{
    AssignorConfig, AssignorWord, CommittedGroup, ErrorCode, GroupPartition, JoinGroup, MemberState, RefusedCommit,
};
use levada_client::{Backoff, Client, ClientError, GroupConsumer, GroupFetched, GroupQuery, GroupRecord};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::WAIT_MS;
use super::sink::Sink;
use crate::failure::Usage;
use crate::group::partitions_text;
use crate::output::note;
use crate::signals::Stop;

/// Most records asked for at once: so many come again at most, or are lost at most, when the program is killed.
const PAGE_RECORDS: u64 = 500;
/// How long the server holds an empty answer back where the end of the partitions ends the reading.
const END_WAIT_MS: u64 = 500;
/// How long a commit is tried after a signal asked to end.
const LAST_COMMIT: Duration = Duration::from_secs(5);
/// Heartbeats in one session time-out.
const HEARTBEATS_A_SESSION: u32 = 4;

/// How to read in a group.
#[derive(Debug, Default, Args)]
pub(crate) struct GroupArgs {
    /// Read as a member of this group.
    #[arg(long)]
    group: Option<String>,
    /// When records count as read: `after` they are written out (at least once: after a crash some may come again), or
    /// `before` (at most once: after a crash some may be missing).
    #[arg(long, value_enum, default_value_t, requires = "group")]
    commit: Commit,
    /// A name that the member keeps over restarts: it does not leave when it is stopped, and who joins with it within the
    /// session time-out has the same partitions at once. `DELETE /v1/groups/GROUP/members/ID` removes it sooner; `levada
    /// group describe GROUP` tells the id.
    #[arg(long, value_name = "NAME", requires = "group")]
    instance_id: Option<String>,
    /// How the partitions shall be shared: `range`, `round-robin`, `sticky`, `cooperative-sticky` or `module:NAME`.
    #[arg(long, default_value_t, requires = "group")]
    assignor: AssignorWord,
    /// The config of an assignor that is a module, as JSON.
    #[arg(long, value_name = "JSON", requires = "group")]
    assignor_config: Option<AssignorConfig>,
    /// After a silence of this length the others get the member's partitions. [default: 45000]
    #[arg(long, value_name = "MS", requires = "group")]
    session_timeout_ms: Option<u64>,
}

/// When records are committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Commit {
    /// At least once: when they are written out.
    #[default]
    After,
    /// At most once: before they are written out.
    Before,
}

/// What a member joins with.
pub(super) struct Membership {
    group: String,
    commit: Commit,
    join: JoinGroup,
}

impl GroupArgs {
    pub(crate) fn name(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// The membership that is asked for, if one is.
    pub(super) fn membership(&self, topics: &[String], from: &str) -> Result<Option<Membership>, Usage> {
        let Some(group) = self.group.clone() else { return Ok(None) };
        let wrong = |error| Usage(format!("--from with --group: {error}"));
        let mut join = JoinGroup::new(topics.to_vec());
        join.start = from.parse().map_err(wrong)?;
        join.assignor = self.assignor.clone();
        join.assignor_config = self.assignor_config.clone();
        join.instance_id = self.instance_id.clone();
        join.session_timeout_ms = self.session_timeout_ms.unwrap_or(join.session_timeout_ms);
        Ok(Some(Membership { group, commit: self.commit, join }))
    }
}

/// Reads as a member until there were enough, a signal came, or (where nothing is followed) all that it holds was read.
pub(super) async fn read(client: &Client, membership: Membership, follow: bool, sink: &mut Sink) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let pace = Duration::from_millis(membership.join.session_timeout_ms) / HEARTBEATS_A_SESSION;
    let is_static = membership.join.instance_id.is_some();
    let mut member = Member {
        consumer: client.group_consumer(&membership.group, membership.join),
        commit: membership.commit,
        heartbeats: Heartbeats { client: client.clone(), group: membership.group, pace, running: None },
        seen: None,
    };
    let done = member.run(follow, &mut stop, sink).await;
    drop(member.heartbeats);
    // The others wait for what it holds, unless it is kept for its next start; but what ended the reading is the news.
    let left = if is_static { Ok(()) } else { member.consumer.leave().await };
    done?;
    Ok(left?)
}

struct Member {
    consumer: GroupConsumer,
    commit: Commit,
    heartbeats: Heartbeats,
    seen: Option<Seen>,
}

/// What was told of the group, so that only changes are told.
#[derive(PartialEq, Eq)]
struct Seen {
    generation: u32,
    assignment: Vec<GroupPartition>,
    revoked: Vec<GroupPartition>,
    state: MemberState,
}

/// What became of a commit.
enum Committed {
    /// All but these partitions.
    But(BTreeSet<(String, u32)>),
    /// Nothing.
    Nothing,
}

impl Member {
    async fn run(&mut self, follow: bool, stop: &mut Stop, sink: &mut Sink) -> anyhow::Result<()> {
        let mut cursor = None;
        while sink.left > 0 {
            let query = GroupQuery {
                max_records: Some(sink.left.min(PAGE_RECORDS)),
                wait_ms: Some(if follow { WAIT_MS } else { END_WAIT_MS }),
                ..GroupQuery::default()
            };
            let fetched = tokio::select! {
                fetched = self.consumer.next(&query) => fetched?,
                () = stop.asked() => return Ok(()),
            };
            self.heartbeats.follow(self.consumer.member_id());
            self.tell(&fetched);
            let settled = matches!(fetched.state, MemberState::Stable | MemberState::Idle);
            if !follow && settled && fetched.records.is_empty() && cursor.as_ref() == Some(&fetched.cursor) {
                return Ok(());
            }
            cursor = Some(fetched.cursor);
            if !fetched.records.is_empty() {
                self.hand_out(&fetched.records, stop, sink).await?;
            }
        }
        Ok(())
    }

    /// Prints and commits, in the order that was asked for. Not ended by a signal in between.
    async fn hand_out(&mut self, records: &[GroupRecord], stop: &mut Stop, sink: &mut Sink) -> anyhow::Result<()> {
        match self.commit {
            Commit::After => {
                sink.print_all(records.iter().map(|record| &record.record))?;
                self.commit(stop).await?;
            }
            Commit::Before => {
                let lost = match self.commit(stop).await? {
                    Committed::But(lost) => lost,
                    Committed::Nothing => return Ok(()),
                };
                // Whoever holds these partitions now begins with the same records.
                let own = records.iter().filter(|r| !lost.contains(&(r.topic.clone(), r.record.partition)));
                sink.print_all(own.map(|record| &record.record))?;
            }
        }
        Ok(())
    }

    /// Commits all that was fetched; tries until there is an answer, or for a while after a signal.
    async fn commit(&mut self, stop: &mut Stop) -> anyhow::Result<Committed> {
        let enough = async {
            stop.asked().await;
            sleep_until(Instant::now() + LAST_COMMIT).await;
        };
        let consequence = match self.commit {
            Commit::After => "their records may come again",
            Commit::Before => "their records are left to whoever holds them now",
        };
        let answer = tokio::select! {
            answer = answered(&mut self.consumer) => answer,
            () = enough => bail!("the server did not answer the last commit"),
        };
        match answer {
            Ok(CommittedGroup { refused, .. }) => {
                for RefusedCommit { topic, partition, reason } in &refused {
                    note(format!("not committed: {topic} {partition} ({reason}); {consequence}"));
                }
                Ok(Committed::But(refused.into_iter().map(|refused| (refused.topic, refused.partition)).collect()))
            }
            Err(error) if is_lost(&error) => {
                note(format!("not committed: {error}; {consequence}"));
                Ok(Committed::Nothing)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tells what is new in the group.
    fn tell(&mut self, fetched: &GroupFetched) {
        fetched.resets.iter().for_each(|reset| note(json_line("reset", reset)));
        fetched.gaps.iter().for_each(|gap| note(json_line("gap", gap)));
        let seen = Seen {
            generation: fetched.generation,
            assignment: fetched.assignment.clone(),
            revoked: fetched.revoked.clone(),
            state: fetched.state,
        };
        if self.seen.as_ref() == Some(&seen) {
            return;
        }
        let mut text = format!("generation {}, {}", seen.generation, seen.state.as_str());
        match (seen.state, seen.assignment.as_slice()) {
            (MemberState::Idle, _) => text.push_str(": there are more members than partitions"),
            (_, []) => {}
            (_, assignment) => text.push_str(&format!(": holds {}", partitions_text(assignment))),
        }
        if !seen.revoked.is_empty() {
            text.push_str(&format!(", gives up {}", partitions_text(&seen.revoked)));
        }
        note(text);
        self.seen = Some(seen);
    }
}

/// Commits until there is an answer.
async fn answered(consumer: &mut GroupConsumer) -> Result<CommittedGroup, ClientError> {
    let mut backoff = Backoff::default();
    loop {
        match consumer.commit().await {
            Err(error) if error.is_retryable() => {
                sleep_until(Instant::now() + backoff.next_pause(error.retry_after())).await;
            }
            answer => return answer,
        }
    }
}

/// Whether others hold the partitions now, and the reading goes on all the same.
fn is_lost(error: &ClientError) -> bool {
    let lost = [ErrorCode::UnknownMember, ErrorCode::IllegalGeneration];
    error.problem().is_some_and(|problem| lost.contains(&problem.code))
}

/// Heartbeats while records are printed: whoever reads them may take its time.
struct Heartbeats {
    client: Client,
    group: String,
    pace: Duration,
    running: Option<(String, JoinHandle<()>)>,
}

impl Heartbeats {
    /// Beats for this member from now on.
    fn follow(&mut self, member: Option<&str>) {
        if self.running.as_ref().map(|(member, _)| member.as_str()) == member {
            return;
        }
        self.end();
        let Some(member) = member else { return };
        let (client, group, id) = (self.client.clone(), self.group.clone(), member.to_owned());
        let mut beat = interval(self.pace);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beating = tokio::spawn(async move {
            loop {
                beat.tick().await;
                // What is wrong with the member, its next fetch is told.
                drop(client.heartbeat_group(&group, &id).await);
            }
        });
        self.running = Some((member.to_owned(), beating));
    }

    fn end(&mut self) {
        if let Some((_, beating)) = self.running.take() {
            beating.abort();
        }
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.end();
    }
}

fn json_line(what: &str, value: &impl Serialize) -> String {
    format!("{what}: {}", serde_json::to_string(value).expect("it came as JSON"))
}
