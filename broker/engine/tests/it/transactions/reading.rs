//! How far readers come, what they find on the way, and what they wait for.

use std::time::Duration;

use levada_engine::{
    AssignorName, EngineOptions, FetchRequest, GroupFetch, GroupOptions, GroupStart, JoinGroup, TopicReader, TopicStart,
};
use levada_log::AbortedTransaction;
use levada_model::{GroupName, Offset, Timestamp};

use super::*;
use crate::support::{Bench, LONG, START, create, produce, to};

async fn reader(engine: &Engine, from: From, isolation: Isolation) -> TopicReader {
    engine.topic_reader(&me(), &name("t"), TopicStart::From(from), isolation).await.expect("a reader")
}

/// Texts of one step.
async fn step(reader: &mut TopicReader, max_records: usize, wait: Duration) -> Vec<String> {
    reader.next(max_records, 1 << 20, wait).await.expect("a step").iter().flat_map(texts).collect()
}

/// All that a member of a new group gets, fetch by fetch until it is caught up, and where it stands then.
async fn group_reads(engine: &Engine, group: &str, max_records: usize) -> (Vec<String>, u64) {
    let group = GroupName::new(group).expect("a group");
    let join = JoinGroup {
        topics: vec![name("t")],
        assignor: AssignorName::CooperativeSticky,
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 60_000,
        max_poll_interval_ms: 300_000,
        start: GroupStart::Earliest,
        instance_id: None,
        client: "test".to_owned(),
    };
    let member = engine.join_group(&me(), &group, join).await.expect("it joins").member_id;
    let (mut got, mut cursor) = (Vec::new(), None);
    loop {
        let fetch = GroupFetch { cursor: cursor.take(), max_records, max_bytes: 1 << 20, wait: Duration::ZERO };
        let fetched = engine.fetch_group(&me(), &group, &member, fetch).await.expect("a fetch");
        got.extend(fetched.parts.iter().flat_map(|part| texts(&part.fetched)));
        let next = fetched.cursor.positions.first().map(|position| position.next.0);
        if let Some(next) = next.filter(|_| engine.group_lag(&fetched.cursor) == 0) {
            return (got, next);
        }
        cursor = Some(fetched.cursor);
    }
}

fn open(bench: &Bench) -> Engine {
    let groups = GroupOptions {
        initial_rebalance_delay: Duration::ZERO,
        rebalance_interval: Duration::ZERO,
        ..GroupOptions::default()
    };
    Engine::open(EngineOptions { groups, ..bench.options() }).expect("the engine opens")
}

#[tokio::test]
async fn pc_37_every_reader_comes_to_the_end_behind_markers_and_aborted_records() {
    for (outcome, values) in [(COMMIT, vec!["a"]), (ABORT, vec![])] {
        let (bench, _) = Bench::sim();
        let mut engine = open(&bench);
        create(&engine, "t", 1, &[]).await;
        let mut one = Transactor::start(&engine, "one").await;
        one.send("t", vec![to(0, "a")]).await;
        one.end(outcome).await;
        drop(one);
        for is_opened_anew in [false, true] {
            if is_opened_anew {
                engine.close().await.expect("closed");
                engine = open(&bench);
            }
            assert_eq!(marks(&engine, "t"), (0, 2, 2));
            for max_records in [1, 500] {
                let request = FetchRequest { max_records, ..read_from(From::Earliest) };
                let fetched = engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read");
                assert_eq!((texts(&fetched), fetched.next_offset.0), (owned(&values), 2));
                let mut reader = reader(&engine, From::Earliest, ReadCommitted).await;
                assert_eq!(step(&mut reader, max_records, Duration::ZERO).await, values);
                assert_eq!(reader.positions().next, [(p(0), Offset(2))]);
                let group = format!("g-{max_records}-{is_opened_anew}");
                assert_eq!(group_reads(&engine, &group, max_records).await, (owned(&values), 2));
            }
            // From the last offset that there is, which is the marker's.
            let last = read(&engine, "t", From::Offset(Offset(1)), ReadCommitted).await;
            assert_eq!((texts(&last), last.next_offset.0), (vec![], 2));
        }
    }
}

#[tokio::test]
async fn who_wants_batches_as_they_are_stored_gets_markers_that_stand_alone_too() {
    let (bench, _) = Bench::sim();
    let mut engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    for outcome in [COMMIT, ABORT] {
        let mut one = Transactor::start(&engine, "one").await;
        one.send("t", vec![to(0, "a")]).await;
        one.end(outcome).await;
    }
    for is_opened_anew in [false, true] {
        if is_opened_anew {
            engine.close().await.expect("closed");
            engine = open(&bench);
        }
        for (isolation, stored) in [(ReadUncommitted, vec![0, 1, 2, 3]), (ReadCommitted, vec![0, 1, 3])] {
            // All in one read, or as little as comes at once, from each offset that there is.
            for max_bytes in [1 << 20, 1] {
                for first in 0..4 {
                    let (mut next, mut got) = (first, Vec::new());
                    while next < 4 {
                        let from = From::Offset(Offset(next));
                        let request = FetchRequest { isolation, max_bytes, as_stored: true, ..read_from(from) };
                        let fetched = engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read");
                        assert!(fetched.next_offset.0 > next);
                        got.extend(fetched.batches.iter().map(|batch| batch.header().base_offset.0));
                        next = fetched.next_offset.0;
                    }
                    let expected: Vec<_> = stored.iter().copied().filter(|offset| *offset >= first).collect();
                    assert_eq!(got, expected, "{isolation:?} {max_bytes} {first}");
                }
            }
        }
    }
}

#[tokio::test]
async fn readers_that_wait_behind_what_is_stable_wake_when_it_is_committed() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    one.send("t", vec![to(0, "a")]).await;
    let mut readers = Vec::new();
    for isolation in [ReadCommitted, ReadUncommitted] {
        let mut topic = reader(&engine, From::Latest, isolation).await;
        let partition = engine.clone();
        // Both are beyond what is committed, and neither is beyond the end.
        let request = FetchRequest { wait: LONG, isolation, ..read_from(From::Offset(Offset(1))) };
        readers.push((
            tokio::spawn(async move {
                let fetched = partition.fetch(&me(), &name("t"), p(0), request).await.expect("a read");
                values(&fetched)
            }),
            tokio::spawn(async move { step(&mut topic, 500, LONG).await }),
        ));
    }
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    // What is aborted wakes nobody who would see it.
    two.send("t", vec![to(0, "x")]).await;
    two.end(ABORT).await;
    one.send("t", vec![to(0, "b")]).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let mut readers = readers.into_iter();
    let (committed, uncommitted) = (readers.next().expect("two"), readers.next().expect("two"));
    assert_eq!(uncommitted.0.await.expect("woken"), [(1, "x".to_owned())]);
    assert_eq!(uncommitted.1.await.expect("woken"), ["x"]);
    assert!(!committed.0.is_finished() && !committed.1.is_finished());
    one.end(COMMIT).await;
    assert_eq!(committed.0.await.expect("woken"), [(3, "b".to_owned())]);
    assert_eq!(committed.1.await.expect("woken"), ["a", "b"], "its latest was what was stable");
}

#[tokio::test]
async fn places_are_told_by_what_the_reader_may_see() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    produce(&engine, "t", vec![to(0, "a"), to(0, "b")]).await;
    one.send("t", vec![to(0, "x")]).await;
    one.end(ABORT).await;
    two.send("t", vec![to(0, "c")]).await;
    produce(&engine, "t", vec![to(0, "d")]).await;
    let first = async |from, isolation| {
        let fetched = read(&engine, "t", from, isolation).await;
        (values(&fetched).first().map_or(fetched.next_offset.0, |(offset, _)| *offset), texts(&fetched))
    };
    assert_eq!(marks(&engine, "t"), (0, 4, 6));
    assert_eq!(first(From::Latest, ReadCommitted).await, (4, vec![]));
    assert_eq!(first(From::Latest, ReadUncommitted).await, (6, vec![]));
    assert_eq!(first(From::Tail(3), ReadCommitted).await, (1, owned(&["b"])));
    assert_eq!(first(From::Tail(3), ReadUncommitted).await, (4, owned(&["c", "d"])));
    let beyond = engine.fetch(&me(), &name("t"), p(0), read_from(From::Offset(Offset(7)))).await;
    assert!(beyond.is_err(), "beyond the end for everyone");
    let mut committed = reader(&engine, From::Earliest, ReadCommitted).await;
    assert_eq!(step(&mut committed, 500, Duration::ZERO).await, ["a", "b"]);
    assert_eq!(committed.positions().next, [(p(0), Offset(4))]);
}

#[tokio::test]
async fn a_time_leads_to_a_record_that_counts() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    let at = |time, value| levada_engine::ProduceRecord { timestamp: Some(Timestamp(START.0 + time)), ..to(0, value) };
    one.send("t", vec![at(10, "aborted")]).await;
    bench.clock.advance(20);
    one.end(ABORT).await;
    one.send("t", vec![at(30, "committed")]).await;
    one.end(COMMIT).await;
    two.send("t", vec![at(40, "open")]).await;
    let look = async |time: i64| {
        let time = Timestamp(START.0 + time);
        let found = engine.offsets_for_time(&me(), &name("t"), time).await.expect("a look-up").remove(0);
        let mut seen = Vec::new();
        for isolation in [ReadCommitted, ReadUncommitted] {
            seen.extend(texts(&read(&engine, "t", From::Time(time), isolation).await).into_iter().next());
        }
        (found.offset.0, found.timestamp.map(|found| found.0 - START.0), seen)
    };
    assert_eq!(look(5).await, (2, Some(30), owned(&["committed", "aborted"])));
    assert_eq!(look(15).await, (2, Some(30), owned(&["committed", "committed"])));
    assert_eq!(look(35).await, (4, None, owned(&["open"])));
}

#[tokio::test]
async fn limits_count_only_what_counts() {
    let (bench, _) = Bench::sim();
    let mut engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let mut good = Transactor::start(&engine, "good").await;
    let mut bad = Transactor::start(&engine, "bad").await;
    let mut expected = Vec::new();
    for round in 0..5 {
        for value in ["x", "y", "z"] {
            bad.send("t", vec![to(0, value), to(0, value)]).await;
        }
        let values = [format!("{round}a"), format!("{round}b")];
        good.send("t", values.iter().map(|value| to(0, value)).collect()).await;
        expected.extend(values);
        good.end(COMMIT).await;
        bad.end(ABORT).await;
    }
    drop((good, bad));
    let end = 5 * 10;
    for is_opened_anew in [false, true] {
        if is_opened_anew {
            engine.close().await.expect("closed");
            engine = open(&bench);
        }
        for (max_records, max_bytes) in [(1, 1 << 20), (1, 1), (2, 1 << 20), (3, 1 << 20), (500, 1), (500, 300)] {
            let (mut next, mut got) = (0, Vec::new());
            while next < end {
                let request = FetchRequest { max_records, max_bytes, ..read_from(From::Offset(Offset(next))) };
                let fetched = engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read");
                let texts = texts(&fetched);
                assert!(texts.len() <= max_records);
                assert!(!texts.is_empty() || fetched.next_offset.0 == end, "there was more");
                assert!(fetched.next_offset.0 > next);
                (next, got) = (fetched.next_offset.0, [got, texts].concat());
            }
            assert_eq!(got, expected, "{max_records}, {max_bytes}");
        }
        let mut reader = reader(&engine, From::Earliest, ReadCommitted).await;
        let mut got = Vec::new();
        while got.len() < expected.len() {
            let one = step(&mut reader, 1, Duration::ZERO).await;
            assert_eq!(one.len(), 1);
            got.extend(one);
        }
        assert_eq!(got, expected);
        assert!(step(&mut reader, 1, Duration::ZERO).await.is_empty());
        assert_eq!(reader.positions().next, [(p(0), Offset(end))]);
        assert_eq!(group_reads(&engine, &format!("g-{is_opened_anew}"), 1).await, (expected.clone(), end));
    }
}

#[tokio::test]
async fn a_long_stretch_that_does_not_count_is_passed_in_bounded_steps_that_say_how_far_they_came() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    for _ in 0..500 {
        one.send("t", vec![to(0, "x")]).await;
    }
    one.end(ABORT).await;
    produce(&engine, "t", vec![to(0, "a")]).await;
    // One batch a read.
    let step = async |from, wait| {
        let request = FetchRequest { max_bytes: 1, wait, ..read_from(From::Offset(Offset(from))) };
        engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read")
    };
    let (mut next, mut steps) = (0, 0);
    let found = loop {
        let fetched = step(next, Duration::ZERO).await;
        assert!(fetched.next_offset.0 > next, "it comes on");
        (next, steps) = (fetched.next_offset.0, steps + 1);
        if !texts(&fetched).is_empty() {
            break texts(&fetched);
        }
    };
    assert_eq!((found, next), (owned(&["a"]), 502));
    assert!((5..=20).contains(&steps), "{steps} steps");
    assert_eq!(texts(&step(0, LONG).await), ["a"], "who has time gets there in one");
    let mut reader = reader(&engine, From::Earliest, ReadCommitted).await;
    let mut parts = Vec::new();
    while parts.is_empty() {
        let before = reader.positions().next[0].1;
        parts = reader.next(1, 1, Duration::ZERO).await.expect("a step");
        assert!(reader.positions().next[0].1 > before);
    }
    assert_eq!(parts.iter().flat_map(texts).collect::<Vec<_>>(), ["a"]);
}

#[tokio::test]
async fn batches_come_without_aborted_ones_with_markers_and_with_what_was_aborted() {
    let (bench, _) = Bench::sim();
    let mut engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    one.send("t", vec![to(0, "x")]).await;
    two.send("t", vec![to(0, "a")]).await;
    one.send("t", vec![to(0, "y")]).await;
    one.end(ABORT).await;
    two.end(COMMIT).await;
    let aborted = AbortedTransaction { first_offset: Offset(0), last_offset: Offset(3), producer_id: one.producer.id };
    drop((one, two));
    let bases =
        |fetched: &Fetched| -> Vec<u64> { fetched.batches.iter().map(|batch| batch.header().base_offset.0).collect() };
    for is_opened_anew in [false, true] {
        if is_opened_anew {
            engine.close().await.expect("closed");
            engine = bench.open();
        }
        let committed = read(&engine, "t", From::Earliest, ReadCommitted).await;
        assert_eq!((bases(&committed), committed.aborted), (vec![1, 3, 4], vec![aborted]));
        let all = read(&engine, "t", From::Earliest, ReadUncommitted).await;
        assert_eq!((bases(&all), all.aborted), (vec![0, 1, 2, 3, 4], vec![]));
        let behind = read(&engine, "t", From::Offset(Offset(4)), ReadCommitted).await;
        assert_eq!(behind.aborted, []);
    }
}
