//! Readers of whole topics, and look-ups by time.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_engine::{AlterTopic, Engine, FetchError, FetchRequest, From, Isolation, TopicReader, TopicStart};
use levada_log::Damage;
use levada_model::{Offset, Timestamp};
use serde_json::json;

use crate::support::{Bench, LONG, START, create, fetch, me, name, p, produce, read_from, record, to, values};

async fn reader(engine: &Engine, from: From) -> TopicReader {
    let start = TopicStart::From(from);
    engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader")
}

async fn step(reader: &mut TopicReader, max_records: usize) -> Vec<(u32, String)> {
    flat(&reader.next(max_records, 1 << 20, Duration::ZERO).await.expect("a step"))
}

fn flat(parts: &[levada_engine::Fetched]) -> Vec<(u32, String)> {
    let part = |part: &levada_engine::Fetched| {
        values(part).into_iter().map(|(_, value)| (part.partition.0, value)).collect::<Vec<_>>()
    };
    parts.iter().flat_map(part).collect()
}

#[tokio::test]
async fn every_partition_has_its_turn() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 3, &[]).await;
    for _ in 0..4 {
        produce(&engine, "t", (0..3).map(|partition| to(partition, "x")).collect()).await;
    }
    let mut reader = reader(&engine, From::Earliest).await;
    let turns: Vec<_> = [step(&mut reader, 1).await, step(&mut reader, 1).await, step(&mut reader, 1).await].concat();
    assert_eq!(turns.iter().map(|(partition, _)| *partition).collect::<BTreeSet<_>>().len(), 3);
    let rest = step(&mut reader, 100).await;
    assert_eq!(rest.len(), 9, "one step takes from all partitions");
    assert!(step(&mut reader, 100).await.is_empty());
    assert_eq!(reader.positions().next, [(p(0), Offset(4)), (p(1), Offset(4)), (p(2), Offset(4))]);
}

#[tokio::test]
async fn a_reader_goes_on_where_another_stopped() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    produce(&engine, "t", vec![to(0, "a"), to(0, "b"), to(1, "c")]).await;
    let mut first = reader(&engine, From::Earliest).await;
    let mut seen = step(&mut first, 1).await;
    let positions = first.positions();
    engine.close().await.expect("closed");
    let engine = bench.open();
    let resume = async |positions| {
        let start = TopicStart::Positions(positions);
        engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await
    };
    let mut second = resume(positions.clone()).await.expect("a reader");
    seen.extend(step(&mut second, 100).await);
    seen.sort();
    assert_eq!(seen, [(0, "a".to_owned()), (0, "b".to_owned()), (1, "c".to_owned())]);
    let mut beyond = positions.clone();
    beyond.next[0].1 = Offset(9);
    assert!(matches!(resume(beyond).await, Err(FetchError::BeyondEnd { .. })));
    engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    assert!(matches!(resume(positions.clone()).await, Err(FetchError::NotFound(_))));
    create(&engine, "t", 2, &[]).await;
    assert!(matches!(resume(positions).await, Err(FetchError::OtherTopic { .. })), "another topic of the same name");
}

#[tokio::test]
async fn a_waiting_reader_wakes_for_records_in_any_partition_and_for_new_partitions() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    let mut reader = reader(&engine, From::Latest).await;
    let wait = |mut reader: TopicReader| {
        tokio::spawn(async move {
            let parts = reader.next(100, 1 << 20, LONG).await.expect("a step");
            (flat(&parts), reader)
        })
    };
    for partition in [1, 0] {
        let waiting = wait(reader);
        tokio::task::yield_now().await;
        produce(&engine, "t", vec![to(partition, "x")]).await;
        let (seen, back) = waiting.await.expect("woken");
        assert_eq!(seen, [(partition, "x".to_owned())]);
        reader = back;
    }
    let waiting = wait(reader);
    tokio::task::yield_now().await;
    let more = AlterTopic { partitions: Some(3), ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("t"), more).await.expect("altered");
    produce(&engine, "t", vec![to(2, "new")]).await;
    let (seen, _) = waiting.await.expect("woken");
    assert_eq!(seen, [(2, "new".to_owned())], "a new partition is read from its start");
}

#[tokio::test]
async fn waiting_readers_are_told_of_deletion_and_closing() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    for closes in [false, true] {
        create(&engine, "t", 1, &[]).await;
        let mut reader = reader(&engine, From::Latest).await;
        let topic = tokio::spawn(async move { reader.next(1, 1, Duration::MAX).await });
        let partition = tokio::spawn({
            let engine = engine.clone();
            let request = FetchRequest { wait: Duration::MAX, ..read_from(From::Latest) };
            async move { engine.fetch(&me(), &name("t"), p(0), request).await }
        });
        tokio::task::yield_now().await;
        if closes {
            engine.close().await.expect("closed");
            assert!(matches!(topic.await.expect("woken"), Err(FetchError::Closing)));
            assert!(matches!(partition.await.expect("woken"), Err(FetchError::Closing)));
        } else {
            engine.delete_topic(&me(), &name("t")).await.expect("deleted");
            assert!(matches!(topic.await.expect("woken"), Err(FetchError::NotFound(_))));
            assert!(matches!(partition.await.expect("woken"), Err(FetchError::NotFound(_))));
        }
    }
}

#[tokio::test]
async fn a_log_start_that_passes_a_reader_is_a_gap() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    for value in ["a", "b", "c"] {
        produce(&engine, "t", vec![record("", value)]).await;
    }
    let mut reader = reader(&engine, From::Earliest).await;
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(2))]).await.expect("truncated");
    let parts = reader.next(100, 1 << 20, Duration::ZERO).await.expect("a step");
    assert_eq!(parts[0].gaps, [Damage { from: Offset(0), to: Offset(2) }]);
    assert_eq!(flat(&parts), [(0, "c".to_owned())]);
    assert!(step(&mut reader, 1).await.is_empty());
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(3))]).await.expect("truncated");
    assert!(step(&mut reader, 1).await.is_empty(), "nothing was skipped");
}

#[tokio::test]
async fn damage_is_a_gap_and_the_rest_is_read() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("segment.bytes", json!(1_024))]).await;
    for i in 0..40 {
        produce(&engine, "t", vec![record("", &format!("value-{i:02}"))]).await;
    }
    engine.close().await.expect("closed");
    let first = disk.paths().into_iter().find(|path| path.ends_with("00000000000000000000.log")).expect("a segment");
    let bytes = disk.contents(&first);
    let place = bytes.windows(8).position(|window| window == b"value-03").expect("the value is there");
    disk.corrupt(&first, place as u64, 1);
    let engine = bench.open();
    let mut reader = reader(&engine, From::Earliest).await;
    let parts = reader.next(1_000, 1 << 20, Duration::ZERO).await.expect("a step");
    assert_eq!(parts[0].gaps, [Damage { from: Offset(3), to: Offset(4) }]);
    assert_eq!(flat(&parts).len(), 39);
    assert_eq!(engine.stats().damaged_ranges, 1);
    let fetched = fetch(&engine, "t", 0, From::Offset(Offset(3))).await.expect("a read");
    assert_eq!((fetched.gaps.len(), values(&fetched)[0].0), (1, 4));
}

#[tokio::test]
async fn times_are_looked_up_in_every_partition() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    for (partition, time) in [(0, 10), (0, 30), (0, 20), (1, 5)] {
        let record = levada_engine::ProduceRecord { timestamp: Some(Timestamp(START.0 + time)), ..to(partition, "x") };
        produce(&engine, "t", vec![record]).await;
    }
    let look = async |time| {
        let found = engine.offsets_for_time(&me(), &name("t"), Timestamp(START.0 + time)).await.expect("a look-up");
        found.into_iter().map(|f| (f.offset.0, f.timestamp.map(|t| t.0 - START.0))).collect::<Vec<_>>()
    };
    assert_eq!(look(0).await, [(0, Some(10)), (0, Some(5))]);
    assert_eq!(look(15).await, [(1, Some(30)), (1, None)], "the end where there is none");
    assert_eq!(look(31).await, [(3, None), (1, None)]);
    let fetched = fetch(&engine, "t", 0, From::Time(Timestamp(START.0 + 15))).await.expect("a read");
    assert_eq!(values(&fetched)[0].0, 1);
    let fetched = fetch(&engine, "t", 0, From::Time(Timestamp(START.0 + 99))).await.expect("a read");
    assert_eq!((values(&fetched).len(), fetched.next_offset), (0, Offset(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn beside_retention_every_offset_is_read_or_told_as_a_gap() {
    const RECORDS: u64 = 600;
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    for durability in ["fsync", "page-cache"] {
        let config =
            [("segment.bytes", json!(2_048)), ("retention.bytes", json!(6_000)), ("durability", json!(durability))];
        create(&engine, "t", 1, &config).await;
        let mut readers = Vec::new();
        for max_records in [1, 7, 500] {
            let mut reader = reader(&engine, From::Earliest).await;
            readers.push(tokio::spawn(async move {
                let (mut next, mut seen) = (0, 0);
                while next < RECORDS {
                    let parts = reader.next(max_records, 1 << 20, LONG).await.expect("a step");
                    for part in &parts {
                        let mut gaps = part.gaps.iter().peekable();
                        let values = values(part);
                        assert!(values.len() <= max_records);
                        for (offset, value) in values {
                            while let Some(gap) = gaps.next_if(|gap| gap.from == Offset(next)) {
                                next = gap.to.0;
                            }
                            assert_eq!((offset, value), (next, next.to_string()), "nothing skipped, nothing twice");
                            next += 1;
                            seen += 1;
                        }
                        gaps.for_each(|gap| next = gap.to.0);
                        assert_eq!(part.next_offset, Offset(next));
                    }
                }
                seen
            }));
        }
        for i in 0..RECORDS {
            produce(&engine, "t", vec![record("", &i.to_string())]).await;
            if i.is_multiple_of(20) {
                let engine = engine.clone();
                tokio::task::spawn_blocking(move || engine.run_maintenance()).await.expect("done");
            }
        }
        for reader in readers {
            assert!(reader.await.expect("read to the end") > 0);
        }
        assert!(engine.stats().segments_removed > 0);
        engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    }
}
