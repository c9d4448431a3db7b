//! PC-34 and what else readers meet where records are gone.

use levada_engine::{FetchRequest, From, Isolation, TopicStart};
use levada_model::{Compression, Offset};
use serde_json::json;

use super::{compact, compacted_topic, store, tombstone};
use crate::support::{Bench, LONG, all, fetch, me, name, p, produce, read_from, record};

const KEYS: [&str; 10] = ["a", "b", "c", "d", "a", "b", "c", "a", "b", "c"];

fn offsets(fetched: &levada_engine::Fetched) -> Vec<u64> {
    fetched.records().map(|record| record.expect("sound").offset.0).collect()
}

#[tokio::test]
async fn a_reader_in_a_hole_goes_on_at_the_first_survivor() {
    for in_one_batch in [false, true] {
        for compression in ["uncompressed", "zstd"] {
            let (bench, _) = Bench::sim();
            let engine = bench.open();
            compacted_topic(&engine, "t", 1, &[("compression.type", json!(compression))]).await;
            if in_one_batch {
                produce(&engine, "t", KEYS.iter().map(|key| record(key, "v")).collect()).await;
            } else {
                store(&engine, "t", &KEYS.map(|key| (key, "v"))).await;
            }
            compact(&engine, "t").await;
            store(&engine, "t", &[("e", "v")]).await;
            let survivors = [3, 7, 8, 9, 10];
            for from in 0..=11_u64 {
                let rest: Vec<_> = survivors.into_iter().filter(|at| *at >= from).collect();
                let fetched = fetch(&engine, "t", 0, From::Offset(Offset(from))).await.expect("a read");
                assert_eq!((offsets(&fetched), fetched.next_offset), (rest.clone(), Offset(11)), "from {from}");
                // One record at a time, of as few bytes as can be.
                let one = FetchRequest { max_records: 1, max_bytes: 1, ..read_from(From::Offset(Offset(from))) };
                let fetched = engine.fetch(&me(), &name("t"), p(0), one.clone()).await.expect("a read");
                assert_eq!(offsets(&fetched), rest[..rest.len().min(1)], "from {from}");
                let mut next = fetched.next_offset;
                for expected in rest.iter().skip(1) {
                    let one = FetchRequest { from: From::Offset(next), ..one.clone() };
                    let fetched = engine.fetch(&me(), &name("t"), p(0), one).await.expect("a read");
                    assert_eq!(offsets(&fetched), [*expected], "from {from}, at {next}");
                    next = fetched.next_offset;
                }
                assert_eq!(next, Offset(11), "the end is reached");
            }
            let packed =
                fetch(&engine, "t", 0, From::Earliest).await.expect("a read").batches[0].header().compression();
            assert_eq!(packed == Compression::Zstd, compression == "zstd", "what was packed stays packed");
        }
    }
}

#[tokio::test]
async fn every_step_gives_as_many_records_as_were_asked_for_and_none_twice() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "t", 1, &[("segment.bytes", json!(2_048))]).await;
    for batch in 0..60_u64 {
        let records = (0..7).map(|i| record(&format!("k{}", (batch * 7 + i) * 31 % 97), "some value")).collect();
        produce(&engine, "t", records).await;
    }
    compact(&engine, "t").await;
    let whole: Vec<_> = all(&engine, "t", 0, 0).await.into_iter().map(|(at, _)| at).collect();
    assert_eq!(whole.len(), 97);
    for (max_records, max_bytes) in [(1, 1), (2, 1 << 20), (3, 100), (5, 1), (50, 3_000), (97, 1 << 20)] {
        let (mut next, mut seen) = (Offset(0), Vec::new());
        while next < Offset(420) {
            let step = FetchRequest { max_records, max_bytes, ..read_from(From::Offset(next)) };
            let fetched = engine.fetch(&me(), &name("t"), p(0), step).await.expect("a read");
            let given = offsets(&fetched);
            assert!(given.len() <= max_records && fetched.next_offset > next, "{given:?}");
            assert!(given.iter().all(|at| (next.0..fetched.next_offset.0).contains(at)), "{given:?}");
            if max_bytes == 1 << 20 && fetched.next_offset < Offset(420) {
                assert_eq!(given.len(), max_records, "a page is full");
            }
            seen.extend(given);
            next = fetched.next_offset;
        }
        assert_eq!(seen, whole, "{max_records} records, {max_bytes} bytes");
    }
}

#[tokio::test]
async fn a_whole_segment_that_was_emptied_and_a_hole_at_a_segments_end_hold_up_nobody() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "t", 2, &[("delete.retention.ms", json!(0)), ("segment.bytes", json!(1_024))]).await;
    let value = "v".repeat(400);
    for at in 0..12 {
        let mut update = record(if at == 0 { "kept" } else { "k" }, &value);
        update.partition = Some(p(0));
        produce(&engine, "t", vec![update]).await;
    }
    let mut gone = tombstone("k");
    gone.partition = Some(p(0));
    produce(&engine, "t", vec![gone]).await;
    let cursor = {
        let start = TopicStart::From(From::Earliest);
        let reader = engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await;
        let mut reader = reader.expect("a reader");
        reader.next(1, 1, LONG).await.expect("a record");
        reader.positions()
    };
    compact(&engine, "t").await;
    bench.clock.advance(1);
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 1, "only the first is left");
    let fetched = fetch(&engine, "t", 0, From::Offset(Offset(1))).await.expect("a read");
    assert_eq!((offsets(&fetched), fetched.next_offset, fetched.gaps.len()), (Vec::new(), Offset(13), 0));
    // A reader of the whole topic, and one that waits, reach the end and get what comes.
    let from = TopicStart::Positions(cursor);
    let mut reader = engine.topic_reader(&me(), &name("t"), from, Isolation::ReadCommitted).await.expect("a reader");
    assert!(reader.next(10, 1 << 20, std::time::Duration::ZERO).await.expect("nothing").is_empty());
    assert_eq!(reader.positions().next[0].1, Offset(13), "its position has moved all the same");
    let waiting = FetchRequest { wait: LONG, ..read_from(From::Offset(Offset(2))) };
    let (engine2, topic) = (engine.clone(), name("t"));
    let waiting = tokio::spawn(async move { engine2.fetch(&me(), &topic, p(0), waiting).await });
    let mut last = record("last", "v");
    last.partition = Some(p(0));
    produce(&engine, "t", vec![last]).await;
    let fetched = waiting.await.expect("no panic").expect("a read");
    assert_eq!((offsets(&fetched), fetched.next_offset), (vec![13], Offset(14)));
    assert_eq!(reader.next(10, 1 << 20, LONG).await.expect("it").len(), 1);
    assert_eq!(engine.stats().damaged_ranges, 0, "a hole is no damage");
}
