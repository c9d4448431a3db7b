//! Positions that cannot go on where they stood, and say so.

use levada_engine::{GroupFetch, JoinGroup, OffsetReset, ResetCause};
use levada_log::{CrashPlan, Damage};
use levada_model::Offset;
use serde_json::json;

use super::{Member, committed, fill, filled, group, joining, open, pass};
use crate::support::{Bench, LONG, create, me, name, p, produce, record};

const HOUR_MS: i64 = 60 * 60 * 1_000;
const WEEK_MS: i64 = 7 * 24 * HOUR_MS;

fn reset(to: u64, cause: ResetCause) -> OffsetReset {
    OffsetReset { topic: name("t"), partition: p(0), to: Offset(to), cause }
}

#[tokio::test]
async fn a_position_below_the_log_start_moves_there_and_says_what_is_lost() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 6).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    member.try_fetch(GroupFetch { max_records: 2, ..member.fetching(LONG) }).await.expect("a fetch");
    member.commit().await.expect("committed");
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(4))]).await.expect("truncated");
    for cursor in [member.cursor.clone(), None] {
        member.cursor = cursor;
        member.got.clear();
        let fetched = member.fetch().await;
        assert_eq!(fetched.resets, [reset(4, ResetCause::BelowStart)]);
        assert_eq!(fetched.parts[0].fetched.gaps, [Damage { from: Offset(2), to: Offset(4) }]);
        assert_eq!(member.values(), ["t/0/4", "t/0/5"]);
    }
    let again = member.fetch().await;
    assert!(again.resets.is_empty() && again.parts.is_empty(), "it is told once");
    // All is gone: the position moves all the same.
    fill(&engine, "t", 1, 6..8).await;
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(8))]).await.expect("truncated");
    let fetched = member.fetch_waiting().await;
    assert_eq!(fetched.resets, [reset(8, ResetCause::BelowStart)]);
    assert_eq!(fetched.cursor.positions[0].next, Offset(8));
}

#[tokio::test]
async fn a_log_start_that_passes_a_waiting_member_ends_its_wait() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 2).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let waiting = tokio::spawn(async move { member.fetch_waiting().await });
    tokio::task::yield_now().await;
    fill(&engine, "t", 1, 2..3).await;
    let fetched = waiting.await.expect("it ends");
    assert_eq!(fetched.cursor.positions[0].next, Offset(3));
}

#[tokio::test]
async fn a_committed_offset_beyond_the_end_begins_anew_and_says_so() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[("durability", json!("page-cache"))]).await;
    fill(&engine, "t", 1, 0..5).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    member.commit().await.expect("committed");
    // The group's offsets are on the disk, the page-cache topic's records are not.
    let disk = disk.crash(&CrashPlan::all_lost());
    let engine = open(&bench.with(disk));
    let mut member = super::kill(member.engine.clone(), vec![member]).remove(0).at(&engine);
    let fetched = member.fetch().await;
    assert_eq!(fetched.resets, [reset(0, ResetCause::BeyondEnd)]);
    assert_eq!(fetched.cursor.positions[0].next, Offset(0));
    member.cursor = None;
    assert_eq!(member.fetch().await.resets, [reset(0, ResetCause::BeyondEnd)], "a cursor or none, it is the same");
    let member = &member;
    assert_eq!(member.commit_offset("t", 0, 0).await.expect("committed").committed, [(name("t"), p(0), Offset(0))]);
}

#[tokio::test]
async fn offsets_expire_once_the_group_was_empty_for_long_and_the_next_member_is_told() {
    let (bench, _) = Bench::sim();
    let mut engine = open(&bench);
    create(&engine, "t", 1, &[("retention.ms", json!(-1))]).await;
    fill(&engine, "t", 1, 0..3).await;
    let join = JoinGroup { session_timeout_ms: HOUR_MS.cast_unsigned() / 2, ..joining(&["t"]) };
    let join = JoinGroup { max_poll_interval_ms: join.session_timeout_ms, ..join };
    let mut member = Member::join_as(&engine, "g", join).await;
    member.fetch_waiting().await;
    member.commit().await.expect("committed");
    // PC-15: a quiet topic does not matter while a member lives.
    for _ in 0..2 * WEEK_MS / (HOUR_MS / 3) {
        pass(&bench, &engine, HOUR_MS / 3);
        assert!(member.fetch().await.resets.is_empty());
    }
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 3)]);
    engine.leave_group(&me(), &group("g"), &member.id).await.expect("it leaves");
    pass(&bench, &engine, WEEK_MS / 2);
    // The rest of the week counts on after a restart.
    drop(super::kill(member.engine.clone(), vec![member]));
    engine.close().await.expect("closed");
    engine = open(&bench);
    pass(&bench, &engine, WEEK_MS / 2 - 1_000);
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 3)]);
    pass(&bench, &engine, 1_000);
    assert!(engine.group_offsets(&me(), &group("g")).await.map_or(true, |offsets| offsets.is_empty()));
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let fetched = member.fetch().await;
    assert_eq!(fetched.resets, [reset(0, ResetCause::Expired)]);
    assert_eq!(member.values().len(), 3);
    member.commit().await.expect("committed");
    member.cursor = None;
    assert!(member.fetch().await.resets.is_empty(), "from now on it stands at its commit");
}

#[tokio::test]
async fn a_clock_that_jumps_ends_no_session_and_expires_nothing() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    member.commit().await.expect("committed");
    let start = crate::support::START.0;
    for wall in [start + 100 * WEEK_MS, start - 100 * WEEK_MS, start] {
        bench.clock.set(levada_model::Timestamp(wall));
        engine.run_maintenance();
        member.heartbeat().await.expect("it lives");
        assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 1)]);
    }
}

/// PC-34 through a group.
#[tokio::test]
async fn a_committed_offset_in_a_hole_goes_on_at_the_first_survivor() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[("cleanup.policy", json!("compact"))]).await;
    for key in ["a", "b", "c", "d", "a", "b", "c", "a", "b", "c"] {
        produce(&engine, "t", vec![record(key, key)]).await;
    }
    let compacted = engine.compact_topic(&me(), &name("t"), LONG).await.expect("compacted");
    assert!(compacted.is_done);
    produce(&engine, "t", vec![record("e", "e")]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    member.commit_offset("t", 0, 4).await.expect("an offset in a hole is fine");
    let mut offsets = Vec::new();
    for _ in 0..4 {
        let fetch = GroupFetch { max_records: 1, max_bytes: 1, ..member.fetching(LONG) };
        let fetched = member.try_fetch(fetch).await.expect("a fetch");
        assert!(fetched.resets.is_empty());
        offsets.extend(super::flat(&fetched).into_iter().map(|(_, _, offset, _)| offset));
    }
    assert_eq!(offsets, [7, 8, 9, 10]);
    member.commit().await.expect("committed");
    let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!(described.offsets[0].offset.lag, 0);
}

#[tokio::test]
async fn a_position_moves_on_over_a_hole_without_a_record_behind_it() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[("cleanup.policy", json!("compact")), ("delete.retention.ms", json!(0))]).await;
    for _ in 0..3 {
        produce(&engine, "t", vec![record("k", "v")]).await;
    }
    let mut tombstone = record("k", "");
    tombstone.record.value = None;
    produce(&engine, "t", vec![tombstone]).await;
    for _ in 0..2 {
        bench.clock.advance(1_000);
        engine.compact_topic(&me(), &name("t"), LONG).await.expect("compacted");
    }
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let fetched = member.fetch().await;
    assert!(fetched.parts.is_empty());
    assert_eq!(fetched.cursor.positions[0].next, Offset(4), "nothing is left, and it says where to go on");
    member.commit().await.expect("committed");
    let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!((described.offsets[0].offset.lag, described.offsets[0].lag_ms), (0, Some(0)));
}
