//! Members that take up partitions whose offsets lie in a transaction that is open (KIP-447): nothing is read that the
//! transaction may have processed, until it has ended, and nobody waits longer than that.

use levada_engine::{GroupFetch, JoinGroup};
use levada_log::CrashPlan;
use tokio::task::JoinHandle;

use super::groups::{offsets, plain, stand};
use super::*;
use crate::groups::{Member, SESSION_MS, fill, filled, group, kill, open, pass, quiet};
use crate::support::{Bench, LONG, all, create, until};

/// The time-out of the transactions of `Transactor`, in milliseconds.
const TIMEOUT_MS: i64 = 60_000;

/// Ways in which a member loses a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Left,
    SessionEnded,
    Rebalance,
}

/// The members A and B of a group, and what each processes: records of `t` to `out`, each in a transaction.
struct Scene {
    engine: Engine,
    one: Transactor,
    two: Transactor,
    a: Member,
    b: Member,
    /// The partition that A loses to B.
    lost: u32,
}

/// The records of `t` that a member has got, as they were delivered.
fn got(member: &Member) -> Vec<String> {
    member.got.iter().filter(|(topic, ..)| topic == "t").map(|(.., value)| value.clone()).collect()
}

/// A has processed three records in T1, which is open, and lost the partition to B.
async fn scene(bench: &Bench, loss: Loss) -> Scene {
    let engine = open(bench);
    let partitions = if loss == Loss::Rebalance { 2 } else { 1 };
    filled(&engine, "t", partitions, 5).await;
    create(&engine, "out", 1, &[]).await;
    let usual = quiet(&["t"]);
    let brief = JoinGroup { session_timeout_ms: SESSION_MS.cast_unsigned(), ..quiet(&["t"]) };
    let mut a = Member::join_as(&engine, "g", if loss == Loss::SessionEnded { brief } else { usual }).await;
    until("A holds all", async || a.holds().await.len() == partitions as usize).await;
    let b = Member::join_as(&engine, "g", quiet(&["t"])).await;
    let lost = match loss {
        Loss::Rebalance => {
            let mut revoked = Vec::new();
            until("A is told what it loses", async || {
                revoked = a.fetch().await.membership.revoked;
                !revoked.is_empty()
            })
            .await;
            revoked[0].1.0
        }
        Loss::Left | Loss::SessionEnded => 0,
    };
    let (mut one, two) = (Transactor::start(&engine, "one").await, Transactor::start(&engine, "two").await);
    one.send("out", (0..3).map(|n| crate::support::to(0, &format!("t/{lost}/{n}"))).collect()).await;
    one.try_add(offsets("g", Some(&a.id), &[(lost, 3)])).await.expect("A holds it");
    match loss {
        Loss::Left => engine.leave_group(&me(), &group("g"), &a.id).await.expect("it leaves"),
        Loss::SessionEnded => pass(bench, &engine, SESSION_MS),
        Loss::Rebalance => drop(a.fetch().await),
    }
    until("B holds what A lost", async || b.holds().await == [("t".to_owned(), lost)]).await;
    Scene { engine, one, two, a, b, lost }
}

/// A fetch that waits, and its member.
fn waiting(mut member: Member) -> JoinHandle<Member> {
    tokio::spawn(async move {
        member.fetch_waiting().await;
        member
    })
}

/// Lets everything run that can.
async fn idle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

impl Scene {
    /// B is shown that it holds the partition, and no place in it.
    async fn shut_out(&mut self) {
        for _ in 0..2 {
            let fetched = self.b.fetch().await;
            assert_eq!(fetched.membership.assignment, [(name("t"), p(self.lost))], "the answer is truthful");
            assert!(fetched.parts.is_empty() && fetched.cursor.positions.is_empty(), "{fetched:?}");
        }
    }

    /// B processes what it has got in T2. What counts then is each record of the partition once.
    async fn each_counts_once(mut self, first: u64) {
        let expected: Vec<_> = (0..5).map(|n| format!("t/{}/{n}", self.lost)).collect();
        assert_eq!(got(&self.b), expected[first as usize..], "B begins at what is committed");
        self.two.send("out", got(&self.b).iter().map(|value| crate::support::to(0, value)).collect()).await;
        self.two.try_add(offsets("g", Some(&self.b.id), &[(self.lost, 5)])).await.expect("B holds it");
        self.two.end(COMMIT).await;
        let out: Vec<_> = all(&self.engine, "out", 0, 0).await.into_iter().map(|(_, value)| value).collect();
        assert_eq!(out, expected, "each once");
    }
}

#[tokio::test]
async fn what_a_transaction_has_processed_is_not_processed_again_by_the_next_holder() {
    for loss in [Loss::Left, Loss::SessionEnded, Loss::Rebalance] {
        let (bench, _) = Bench::sim();
        let mut scene = scene(&bench, loss).await;
        scene.shut_out().await;
        assert_eq!(stand(&scene.engine, "g").await, Some(vec![]), "the last stable ones, at once");
        let waits = waiting(scene.b);
        idle().await;
        assert!(!waits.is_finished(), "{loss:?}");
        scene.one.end(COMMIT).await;
        scene.b = waits.await.expect("it is woken");
        scene.each_counts_once(3).await;
    }
}

#[tokio::test]
async fn after_an_abort_by_time_the_next_holder_begins_at_the_stable_offset() {
    for loss in [Loss::Left, Loss::Rebalance] {
        let (bench, _) = Bench::sim();
        let mut scene = scene(&bench, loss).await;
        scene.shut_out().await;
        let waits = waiting(scene.b);
        idle().await;
        pass(&bench, &scene.engine, TIMEOUT_MS - 1);
        idle().await;
        assert!(!waits.is_finished(), "{loss:?}");
        pass(&bench, &scene.engine, 1);
        scene.b = waits.await.expect("it is woken");
        scene.each_counts_once(0).await;
    }
}

#[tokio::test]
async fn an_end_between_two_fetches_is_told_at_once() {
    for (outcome, first) in [(COMMIT, 3), (ABORT, 0)] {
        let (bench, _) = Bench::sim();
        let mut scene = scene(&bench, Loss::Left).await;
        scene.shut_out().await;
        scene.one.end(outcome).await;
        scene.b.fetch_waiting().await;
        scene.each_counts_once(first).await;
    }
}

#[tokio::test]
async fn the_wait_goes_on_over_a_restart_and_a_power_cut() {
    for (outcome, first) in [(COMMIT, 3), (ABORT, 0)] {
        for plan in [None, Some(CrashPlan::all_lost()), Some(CrashPlan::all_kept())] {
            let (bench, disk) = Bench::sim();
            let mut scene = scene(&bench, Loss::Left).await;
            scene.shut_out().await;
            let Scene { engine, one, two, a, b, lost } = scene;
            let (transactions, members) = ((one.producer, one.open, two.producer), vec![a, b]);
            drop((one.engine, two.engine));
            let bench = match plan {
                None => {
                    engine.close().await.expect("closed");
                    bench
                }
                Some(plan) => bench.with(disk.crash(&plan)),
            };
            let mut kept = kill(engine, members).into_iter();
            let engine = open(&bench);
            let (a, b) = (kept.next().expect("A").at(&engine), kept.next().expect("B").at(&engine));
            let one = Transactor { engine: engine.clone(), producer: transactions.0, open: transactions.1 };
            let two = Transactor { engine: engine.clone(), producer: transactions.2, open: None };
            let mut scene = Scene { engine, one, two, a, b, lost };
            scene.shut_out().await;
            let waits = waiting(scene.b);
            idle().await;
            assert!(!waits.is_finished());
            scene.one.end(outcome).await;
            scene.b = waits.await.expect("it is woken");
            scene.each_counts_once(first).await;
        }
    }
}

#[tokio::test]
async fn a_member_reads_on_behind_its_own_pending_offsets() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 5).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut a = Member::join_as(&engine, "g", quiet(&["t"])).await;
    until("A holds it", async || a.holds().await.len() == 1).await;
    for round in 0..5u64 {
        a.try_fetch(GroupFetch { max_records: 1, ..a.fetching(LONG) }).await.expect("a fetch");
        one.try_add(offsets("g", Some(&a.id), &[(0, round + 1)])).await.expect("A holds it");
    }
    let waits = waiting(a);
    idle().await;
    assert!(!waits.is_finished());
    fill(&engine, "t", 1, 5..6).await;
    let mut a = waits.await.expect("it ends");
    assert_eq!(got(&a), (0..6).map(|n| format!("t/0/{n}")).collect::<Vec<_>>());
    // Without its cursor nothing says that it was this member.
    a.cursor = None;
    assert!(a.fetch().await.cursor.positions.is_empty());
    one.end(COMMIT).await;
    a.fetch_waiting().await;
    assert_eq!(got(&a).len(), 7, "from 5 on");
}

#[tokio::test]
async fn other_partitions_are_read_meanwhile() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 5).await;
    create(&engine, "u", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.add("g", &[(0, 3)]).await;
    let mut b = Member::join_as(&engine, "g", quiet(&["t", "u"])).await;
    until("it holds both", async || b.holds().await.len() == 2).await;
    b.fetch().await;
    for number in 0..3 {
        let waits = waiting(b);
        idle().await;
        assert!(!waits.is_finished(), "what it knows is no reason to answer");
        fill(&engine, "u", 1, number..number + 1).await;
        b = waits.await.expect("there is something");
        let topic = engine.describe_topic(&me(), &name("u")).expect("it is there").id;
        let cursor = b.cursor.clone().expect("a cursor");
        let positions: Vec<_> = cursor.positions.iter().map(|at| (at.topic, at.next.0)).collect();
        assert_eq!(positions, [(topic, u64::from(number) + 1)]);
    }
    assert_eq!((got(&b).len(), b.got.len()), (0, 3));
    let waits = waiting(b);
    idle().await;
    one.end(COMMIT).await;
    let b = waits.await.expect("it is woken");
    assert_eq!(got(&b), ["t/0/3", "t/0/4"]);
}

#[tokio::test]
async fn a_partition_that_comes_undecided_during_a_wait_is_told() {
    let (bench, _) = Bench::sim();
    let mut scene = scene(&bench, Loss::Rebalance).await;
    scene.b.fetch().await;
    scene.one.end(COMMIT).await;
    let mut three = Transactor::start(&scene.engine, "three").await;
    let other = 1 - scene.lost;
    until("A reads on", async || {
        scene.a.fetch().await;
        scene.a.holds().await == [("t".to_owned(), other)]
    })
    .await;
    three.try_add(offsets("g", Some(&scene.a.id), &[(other, 2)])).await.expect("A holds it");
    while scene.b.fetch().await.parts.iter().any(|part| !part.fetched.batches.is_empty()) {}
    let waits = waiting(scene.b);
    idle().await;
    assert!(!waits.is_finished());
    scene.engine.leave_group(&me(), &group("g"), &scene.a.id).await.expect("it leaves");
    let b = waits.await.expect("it is told");
    assert_eq!(b.holds().await.len(), 2);
    assert_eq!(b.cursor.as_ref().expect("a cursor").positions.len(), 1, "it has no place there yet");
}

#[tokio::test]
async fn a_topic_that_is_deleted_and_the_holders_own_word_end_the_wait() {
    let (bench, _) = Bench::sim();
    let mut scene = scene(&bench, Loss::Left).await;
    scene.shut_out().await;
    let id = scene.b.id.clone();
    let waits = waiting(scene.b);
    idle().await;
    let word = levada_engine::CommitWhat::Offsets(vec![(name("t"), p(0), levada_model::Offset(4))]);
    scene.engine.commit_member(&me(), &group("g"), &id, word).await.expect("it holds it");
    let b = waits.await.expect("it is woken");
    assert_eq!(got(&b), ["t/0/4"]);

    let (bench, _) = Bench::sim();
    let mut scene = self::scene(&bench, Loss::Left).await;
    scene.shut_out().await;
    let waits = waiting(scene.b);
    idle().await;
    assert!(!waits.is_finished());
    scene.engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    until("the coordinator has seen it", async || {
        scene.engine.run_maintenance();
        waits.is_finished()
    })
    .await;
    let b = waits.await.expect("it is told");
    assert!(b.holds().await.is_empty());
    scene.one.end(COMMIT).await;
    assert_eq!(stand(&scene.engine, "g").await, Some(vec![]));
}

/// PC-39 (2) with a member: a producer adds offsets and dies, another with another id starts, and a member of the group
/// wants to begin.
#[tokio::test]
async fn a_member_waits_for_a_transaction_that_was_left_half_finished_as_long_as_its_time_out_and_no_longer() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 5).await;
    plain(&engine, "g", 2).await;
    let id = TransactionalId::new("one").expect("an id");
    let producer = engine.init_transactional_producer(&me(), &id, 10_000).await.expect("it starts");
    let left = engine.begin_transaction(&me(), producer.id, producer.epoch).await.expect("it begins");
    engine.add_transaction_offsets(&me(), left, offsets("g", None, &[(0, 4)])).await.expect("taken");
    let two = Transactor::start(&engine, "two").await;
    let mut member = Member::join_as(&engine, "g", quiet(&["t"])).await;
    until("it holds the partition", async || member.holds().await.len() == 1).await;
    assert!(member.fetch().await.parts.is_empty());
    assert_eq!(stand(&engine, "g").await, Some(vec![(0, 2)]), "who only asks is answered at once");
    let waits = waiting(member);
    pass(&bench, &engine, 9_999);
    idle().await;
    assert!(!waits.is_finished());
    pass(&bench, &engine, 1);
    let mut member = waits.await.expect("it is woken");
    assert_eq!(got(&member), ["t/0/2", "t/0/3", "t/0/4"]);
    member.fetch().await;
    assert_eq!(member.got.len(), 3);
    drop(two);
}
