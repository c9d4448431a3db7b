//! Groups, syncs and the high watermark: what many producers cost, what readers see and when.

use std::time::Duration;

use levada_engine::{Engine, EngineOptions, FetchRequest, From};
use levada_model::{Offset, limits};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::gate::Gate;
use crate::support::{
    Bench, LONG, all, create, fetch, me, name, offsets, p, produce, read_from, record, request, until, values,
};

/// Produces on a task of its own.
fn spawn(engine: &Engine, value: &str) -> JoinHandle<Vec<u64>> {
    let (engine, value) = (engine.clone(), value.to_owned());
    tokio::spawn(async move { offsets(&produce(&engine, "t", vec![record("", &value)]).await) })
}

/// Comes back when so many appends wait for an owner.
async fn until_waiting(engine: &Engine, count: usize) {
    until("the appends wait", async || engine.stats().waiting_appends >= count as u64).await;
}

#[tokio::test]
async fn appends_that_come_during_a_sync_share_the_next_one() {
    const PRODUCERS: usize = 100;
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    gate.shut();
    let first = spawn(&engine, "first");
    gate.until_waiting(1).await;
    let others: Vec<_> = (0..PRODUCERS).map(|i| spawn(&engine, &i.to_string())).collect();
    until_waiting(&engine, PRODUCERS).await;
    let before = engine.stats();
    gate.open();
    let mut given = Vec::new();
    for other in others {
        given.extend(other.await.expect("stored"));
    }
    given.sort_unstable();
    assert_eq!(given, (1..=PRODUCERS as u64).collect::<Vec<_>>(), "dense and once");
    assert_eq!(first.await.expect("stored"), [0]);
    let after = engine.stats();
    assert_eq!(after.syncs - before.syncs, 2, "the first one's and one for all others");
    assert_eq!(after.groups_written - before.groups_written, 1);
}

#[tokio::test]
async fn nothing_is_visible_before_its_sync_and_a_waiting_reader_wakes_with_it() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    gate.shut();
    let produced = spawn(&engine, "1");
    gate.until_waiting(1).await;
    let fetched = fetch(&engine, "t", 0, From::Earliest).await.expect("a read");
    assert_eq!((values(&fetched).len(), fetched.high_watermark), (0, Offset(0)), "a power cut could take it back");
    let beyond = fetch(&engine, "t", 0, From::Offset(Offset(1))).await;
    assert!(beyond.is_err(), "beyond the end as readers know it");
    let reader = tokio::spawn({
        let engine = engine.clone();
        async move {
            let request = FetchRequest { wait: LONG, ..read_from(From::Offset(Offset(0))) };
            engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read")
        }
    });
    tokio::task::yield_now().await;
    gate.open();
    assert_eq!(values(&reader.await.expect("woken")), [(0, "1".to_owned())]);
    assert_eq!(produced.await.expect("stored"), [0]);
}

#[tokio::test]
async fn a_reader_wakes_without_a_timer_when_a_record_comes() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    for durability in ["fsync", "page-cache"] {
        create(&engine, durability, 1, &[("durability", json!(durability))]).await;
        let reader = tokio::spawn({
            let engine = engine.clone();
            async move {
                // There is no time-out that could end this one.
                let request = FetchRequest { wait: Duration::MAX, ..read_from(From::Latest) };
                engine.fetch(&me(), &name(durability), p(0), request).await.expect("a read")
            }
        });
        tokio::task::yield_now().await;
        produce(&engine, durability, vec![record("", "1")]).await;
        assert_eq!(values(&reader.await.expect("woken")).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_in_vain_gets_an_empty_answer_in_time() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let request = FetchRequest { wait: LONG, ..read_from(From::Latest) };
    let fetched = engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read");
    assert_eq!((fetched.batches.len(), fetched.next_offset), (0, Offset(0)));
}

#[tokio::test]
async fn a_produce_whose_future_is_dropped_is_stored_all_the_same() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    gate.shut();
    let held = spawn(&engine, "held");
    gate.until_waiting(1).await;
    let dropped: Vec<_> = (0..10).map(|i| spawn(&engine, &i.to_string())).collect();
    until_waiting(&engine, 10).await;
    dropped.iter().for_each(JoinHandle::abort);
    held.abort();
    for task in dropped {
        assert!(task.await.is_err(), "its future was dropped before an answer");
    }
    gate.open();
    assert_eq!(offsets(&produce(&engine, "t", vec![record("", "last")]).await), [11], "all others came before");
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 12);
}

#[tokio::test]
async fn closing_answers_what_was_accepted_and_refuses_the_rest() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    gate.shut();
    let first = spawn(&engine, "first");
    gate.until_waiting(1).await;
    let second = spawn(&engine, "second");
    until_waiting(&engine, 1).await;
    let closing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.close().await }
    });
    until("the engine closes", async || engine.health() == levada_engine::Health::Closing).await;
    gate.open();
    closing.await.expect("closed").expect("cleanly");
    assert_eq!((first.await.expect("stored"), second.await.expect("stored")), (vec![0], vec![1]));
    let late = engine.produce(&me(), &name("t"), request(vec![record("", "late")])).await.expect("answered");
    let fault = late.records[0].as_ref().expect_err("too late");
    assert!(matches!(**fault, levada_engine::AppendFault::Closing), "{fault}");
    assert!(fetch(&engine, "t", 0, From::Earliest).await.is_err());
    assert_eq!(all(&bench.with(gate).open(), "t", 0, 0).await.len(), 2);
}

#[tokio::test]
async fn too_much_waiting_is_refused_and_comes_to_no_harm() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    gate.shut();
    let first = spawn(&engine, "first");
    gate.until_waiting(1).await;
    let mut waiting = JoinSet::new();
    for i in 0..=limits::PARTITION_QUEUE_APPENDS_MAX {
        let engine = engine.clone();
        waiting.spawn(async move { produce(&engine, "t", vec![record("", &i.to_string())]).await.records.remove(0) });
    }
    let refused = waiting.join_next().await.expect("one at least").expect("answered").expect_err("the queue is full");
    assert!(matches!(*refused, levada_engine::AppendFault::Overloaded(_)));
    gate.open();
    assert!(waiting.join_all().await.iter().all(Result::is_ok));
    first.await.expect("stored");
    assert_eq!(produce_offset(&engine).await, limits::PARTITION_QUEUE_APPENDS_MAX as u64 + 1);
}

async fn produce_offset(engine: &Engine) -> u64 {
    offsets(&produce(engine, "t", vec![record("", "next")]).await)[0]
}

#[tokio::test]
async fn linger_lets_a_group_grow_until_it_is_over_or_the_engine_closes() {
    let hour = Duration::from_secs(60 * 60);
    for (durability, linger) in [("fsync", hour), ("page-cache", hour), ("fsync", Duration::from_millis(1))] {
        let (bench, _) = Bench::sim();
        let engine = Engine::open(EngineOptions { linger, ..bench.options() }).expect("the engine opens");
        create(&engine, "t", 1, &[("durability", json!(durability))]).await;
        let appends: Vec<_> = (0..10).map(|i| spawn(&engine, &i.to_string())).collect();
        if linger == hour {
            until_waiting(&engine, 10).await;
            create(&engine, "meanwhile", 1, &[]).await;
            assert_eq!((engine.stats().waiting_appends, engine.stats().groups_written), (10, 0));
            engine.close().await.expect("closed");
            assert_eq!(engine.stats().groups_written, 1);
        }
        for append in appends {
            append.await.expect("stored");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn page_cache_appends_of_many_threads_are_dense() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("durability", json!("page-cache"))]).await;
    let mut producers = JoinSet::new();
    for producer in 0..8 {
        let engine = engine.clone();
        producers.spawn(async move {
            let mut given = Vec::new();
            for i in 0..200 {
                given.extend(offsets(&produce(&engine, "t", vec![record("", &format!("{producer}-{i}"))]).await));
            }
            assert!(given.is_sorted(), "a producer's own records keep their order");
            given
        });
    }
    let mut given: Vec<_> = producers.join_all().await.concat();
    given.sort_unstable();
    assert_eq!(given, (0..1_600).collect::<Vec<_>>());
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 1_600);
}
