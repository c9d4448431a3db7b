//! Offsets of groups in transactions: what a group sees of them, and what survives.

use levada_engine::{
    AssignorName, GroupError, GroupStart, JoinGroup, OffsetCommit, TransactionError, TransactionOffset,
    TransactionOffsets,
};
use levada_log::CrashPlan;
use levada_model::{MemberId, Offset};

use super::*;
use crate::groups::{committed, filled, group, open, partition_of, pass};
use crate::support::{Bench, until};

/// A group with the partition of the group `g`, so that one marker is for both.
fn neighbour() -> String {
    (0..).map(|n| format!("n{n}")).find(|name| partition_of(name) == partition_of("g")).expect("one in fifty")
}

pub(super) fn offsets(of: &str, member: Option<&MemberId>, list: &[(u32, u64)]) -> TransactionOffsets {
    let offset = |(partition, offset): &(u32, u64)| TransactionOffset {
        topic: name("t"),
        partition: p(*partition),
        offset: Offset(*offset),
    };
    TransactionOffsets { group: group(of), member_id: member.cloned(), offsets: list.iter().map(offset).collect() }
}

pub(super) async fn plain(engine: &Engine, of: &str, offset: u64) {
    let commit = OffsetCommit { topic: name("t"), partition: p(0), offset: From::Offset(Offset(offset)) };
    engine.commit_group_offsets(&me(), &group(of), vec![commit], false).await.expect("committed");
}

impl Transactor {
    pub(super) async fn try_add(&mut self, offsets: TransactionOffsets) -> Result<(), TransactionError> {
        let open = self.begin().await;
        self.engine.add_transaction_offsets(&me(), open, offsets).await
    }

    pub(super) async fn add(&mut self, of: &str, list: &[(u32, u64)]) {
        self.try_add(offsets(of, None, list)).await.expect("they are taken");
    }
}

/// Partition and offset of all that a group has committed; none if there is no such group.
pub(super) async fn stand(engine: &Engine, of: &str) -> Option<Vec<(u32, u64)>> {
    match engine.group_offsets(&me(), &group(of)).await {
        Ok(offsets) => Some(offsets.into_iter().map(|c| (c.partition.0, c.committed.0)).collect()),
        Err(GroupError::NotFound(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn offsets_are_pending_until_the_end_and_count_with_the_commit_in_all_groups() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 9).await;
    let next = neighbour();
    plain(&engine, "g", 2).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.send("t", vec![crate::support::to(0, "made of what was read")]).await;
    one.add("g", &[(0, 3)]).await;
    one.add("g", &[(0, 4), (1, 1)]).await;
    for of in [next.as_str(), "elsewhere"] {
        one.add(of, &[(1, 5)]).await;
        assert_eq!(stand(&engine, of).await, Some(vec![]), "it is there, and has nothing");
    }
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 2)]), "the last stable ones");
    let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!(described.offsets.len(), 1);
    one.end(COMMIT).await;
    for restarted in [false, true] {
        let engine = if restarted { open(&bench) } else { engine.clone() };
        assert_eq!(stand(&engine, "g").await, Some(vec![(0, 4), (1, 1)]), "{restarted}");
        assert_eq!(stand(&engine, &next).await, Some(vec![(1, 5)]));
        assert_eq!(stand(&engine, "elsewhere").await, Some(vec![(1, 5)]));
    }
}

#[tokio::test]
async fn offsets_of_an_aborted_transaction_are_gone_and_the_next_transaction_is_another() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 9).await;
    plain(&engine, "g", 2).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.add("g", &[(0, 4)]).await;
    one.add("h", &[(0, 4)]).await;
    let first = one.begin().await;
    one.end(ABORT).await;
    assert_eq!((stand(&engine, "g").await, stand(&engine, "h").await), (Some(vec![(0, 2)]), None));
    let late = engine.add_transaction_offsets(&me(), first, offsets("g", None, &[(0, 5)])).await;
    assert!(matches!(late, Err(TransactionError::Ended { outcome: ABORT })), "{late:?}");
    one.add("g", &[(1, 1)]).await;
    engine.end_transaction(&me(), first, ABORT).await.expect("the same end again");
    one.end(COMMIT).await;
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 2), (1, 1)]));
}

#[tokio::test]
async fn what_is_written_later_wins_whichever_ends_first_also_after_a_restart() {
    let (bench, _) = Bench::sim();
    let mut engine = open(&bench);
    filled(&engine, "t", 1, 9).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    one.add("g", &[(0, 5)]).await;
    plain(&engine, "g", 3).await;
    one.end(COMMIT).await;
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 3)]), "the plain commit came later");
    one.add("g", &[(0, 7)]).await;
    two.add("g", &[(0, 6)]).await;
    two.end(COMMIT).await;
    one.end(COMMIT).await;
    for _ in 0..2 {
        assert_eq!(stand(&engine, "g").await, Some(vec![(0, 6)]));
        engine.close().await.expect("closed");
        engine = open(&bench);
    }
}

#[tokio::test]
async fn whatever_is_wrong_is_named_and_nothing_is_taken() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 3).await;
    let mut one = Transactor::start(&engine, "one").await;
    let Err(TransactionError::Group(GroupError::Offsets(faults))) =
        one.try_add(offsets("g", None, &[(0, 3), (1, 4), (7, 0), (0, 1)])).await
    else {
        panic!("they are wrong")
    };
    assert_eq!(faults.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(faults[0].1.contains("beyond the end 3"), "{faults:?}");
    assert_eq!(stand(&engine, "g").await, None);
    one.add("g", &[(0, 3)]).await;
    one.end(COMMIT).await;
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 3)]));
}

async fn joined(engine: &Engine) -> MemberId {
    let join = JoinGroup {
        topics: vec![name("t")],
        assignor: AssignorName::Range,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        max_poll_interval_ms: 300_000,
        start: GroupStart::Earliest,
        instance_id: None,
        client: String::new(),
    };
    engine.join_group(&me(), &group("g"), join).await.expect("it joins").member_id
}

#[tokio::test]
async fn a_member_commits_what_it_holds_and_a_zombie_is_fenced() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 5).await;
    let zombie = joined(&engine).await;
    until("it holds the partition", async || {
        let membership = engine.heartbeat(&me(), &group("g"), &zombie).await.expect("a member");
        membership.assignment.len() == 1
    })
    .await;
    let mut one = Transactor::start(&engine, "one").await;
    one.try_add(offsets("g", Some(&zombie), &[(0, 2)])).await.expect("it holds it");
    let outsider = one.try_add(offsets("g", None, &[(0, 2)])).await;
    assert!(matches!(outsider, Err(TransactionError::Group(GroupError::Active(1)))), "{outsider:?}");
    one.end(COMMIT).await;
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 2)]);
    let heir = joined(&engine).await;
    let refused = one.try_add(offsets("g", Some(&heir), &[(0, 3)])).await;
    let Err(TransactionError::Group(GroupError::IllegalGeneration(refused))) = refused else {
        panic!("it does not hold the partition: {refused:?}")
    };
    assert_eq!((refused.committed.len(), refused.refused.len()), (0, 1));
    // Silent for its session, the zombie is removed.
    pass(&bench, &engine, 10_000);
    let heir = joined(&engine).await;
    until("its heir holds the partition", async || {
        let membership = engine.heartbeat(&me(), &group("g"), &heir).await.expect("a member");
        membership.assignment.len() == 1
    })
    .await;
    let fenced = one.try_add(offsets("g", Some(&zombie), &[(0, 3)])).await;
    assert!(matches!(fenced, Err(TransactionError::Group(GroupError::UnknownMember(_)))), "{fenced:?}");
    one.end(COMMIT).await;
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 2)]);
}

/// PC-39 (2): a producer adds offsets and dies, and another with another id starts.
#[tokio::test]
async fn a_group_is_not_held_up_by_a_transaction_that_was_left_half_finished() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 9).await;
    plain(&engine, "g", 2).await;
    let id = TransactionalId::new("one").expect("an id");
    let producer = engine.init_transactional_producer(&me(), &id, 10_000).await.expect("it starts");
    let left = engine.begin_transaction(&me(), producer.id, producer.epoch).await.expect("it begins");
    engine.add_transaction_offsets(&me(), left, offsets("g", None, &[(0, 7)])).await.expect("taken");
    let mut two = Transactor::start(&engine, "two").await;
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 2)]), "at once");
    two.add("g", &[(0, 4)]).await;
    two.end(COMMIT).await;
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 4)]), "though the other is open still");
    assert_eq!(engine.transactions(&me(), None, 10).await.expect("a list").transactions.len(), 1);
    bench.clock.advance(10_000);
    until("it is aborted by its own time", async || {
        engine.run_maintenance();
        engine.transactions(&me(), None, 10).await.expect("a list").transactions.is_empty()
    })
    .await;
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 4)]));
    let late = engine.add_transaction_offsets(&me(), left, offsets("g", None, &[(0, 8)])).await;
    assert!(matches!(late, Err(TransactionError::Ended { outcome: ABORT })), "{late:?}");
    let internal = engine.describe_topic(&me(), &name("__consumer_offsets")).expect("it is there");
    let partition = &internal.partitions[partition_of("g") as usize];
    assert_eq!(partition.last_stable_offset, partition.high_watermark, "nothing holds up its compaction");
}

#[tokio::test]
async fn a_group_that_was_deleted_does_not_come_back_with_the_commit() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 9).await;
    plain(&engine, "g", 2).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.add("g", &[(0, 4), (1, 4)]).await;
    engine.delete_group(&me(), &group("g")).await.expect("deleted");
    one.end(COMMIT).await;
    assert_eq!(stand(&engine, "g").await, None);
    drop((one, engine));
    assert_eq!(stand(&open(&bench), "g").await, None);
}

/// What a group sees after each step of a story, and what it comes to once whatever is open is aborted.
#[tokio::test]
async fn after_a_power_cut_at_any_stage_a_group_is_where_it_was() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 9).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    let mut pictures = Vec::new();
    for stage in 0..9 {
        match stage {
            0 => plain(&engine, "g", 1).await,
            1 => one.add("g", &[(0, 2), (1, 2)]).await,
            2 => two.add("g", &[(1, 3)]).await,
            3 => one.add("g", &[(0, 4)]).await,
            4 => one.end(COMMIT).await,
            5 => plain(&engine, "g", 5).await,
            6 => two.end(ABORT).await,
            7 => two.add("g", &[(0, 6)]).await,
            _ => two.end(COMMIT).await,
        }
        let now = stand(&engine, "g").await.expect("it is there");
        for plan in [CrashPlan::all_lost(), CrashPlan::all_kept(), CrashPlan::seeded(stage, 512)] {
            pictures.push((stage, now.clone(), disk.crash(&plan)));
        }
    }
    let expected = [(0, 1), (4, 4), (5, 5), (8, 6)];
    for (stage, now, disk) in pictures {
        let last = expected.iter().rfind(|(at, _)| *at <= stage).expect("from the first on").1;
        assert_eq!(now[0], (0, last), "stage {stage}");
        let engine = open(&bench.with(disk));
        assert_eq!(stand(&engine, "g").await, Some(now.clone()), "stage {stage}");
        // The producers come back: what they left open is aborted, and they go on.
        let mut one = Transactor::start(&engine, "one").await;
        let mut two = Transactor::start(&engine, "two").await;
        assert_eq!(stand(&engine, "g").await, Some(now), "stage {stage}");
        one.add("g", &[(0, 7)]).await;
        two.add("g", &[(0, 8)]).await;
        two.end(COMMIT).await;
        one.end(COMMIT).await;
        assert_eq!(stand(&engine, "g").await.expect("it is there")[0], (0, 8), "stage {stage}");
    }
}

#[tokio::test]
async fn a_power_cut_in_the_middle_of_a_commit_leaves_all_groups_with_it_or_none() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 100).await;
    let groups = ["g".to_owned(), neighbour(), "elsewhere".to_owned()];
    for of in &groups {
        plain(&engine, of, 0).await;
    }
    let mut one = Transactor::start(&engine, "one").await;
    let mut pictures = Vec::new();
    for round in 1..20 {
        for of in &groups {
            one.add(of, &[(0, round)]).await;
        }
        let ending = tokio::spawn(async move {
            one.end(COMMIT).await;
            one
        });
        for cut in 0.. {
            pictures.push((round, ending.is_finished(), disk.crash(&CrashPlan::seeded(round * 1_000 + cut, 512))));
            if ending.is_finished() || cut == 20 {
                break;
            }
            tokio::task::yield_now().await;
        }
        one = ending.await.expect("it ends");
    }
    let mut in_the_middle = 0;
    for (round, is_answered, disk) in pictures {
        let engine = open(&bench.with(disk));
        until("whatever was decided is written", async || {
            engine.run_maintenance();
            let open = engine.transactions(&me(), None, 10).await.expect("a list").transactions;
            open.iter().all(|open| open.markers_missing.is_none())
        })
        .await;
        let mut stands = Vec::new();
        for of in &groups {
            stands.push(stand(&engine, of).await.expect("it is there")[0].1);
        }
        assert!(stands.iter().all(|offset| *offset == stands[0]), "{stands:?}");
        assert!(stands[0] == round || (stands[0] + 1 == round && !is_answered), "{stands:?} in round {round}");
        in_the_middle += usize::from(!is_answered);
    }
    assert!(in_the_middle > 0, "none was in the middle of a commit");
}
