//! Filters of reads.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levada_engine::{
    Engine, FetchError, FetchRequest, Fetched, From, Isolation, ModuleError, Once, Outcome, ProduceRequest,
    RecordFilter, TopicStart,
};
use levada_extension::ModuleFault;
use levada_model::limits::FILTERED_READS_AT_ONCE_MAX;
use levada_model::{Offset, TransactionalId};
use serde_json::json;
use tokio::task::JoinSet;

use super::{engine, module, of, put};
use crate::support::{LONG, create, me, name, p, poll_times, produce, read_from, record, request, to, until, values};

async fn filter(engine: &Engine, config: &str) -> RecordFilter {
    engine.record_filter(&me(), &of("f"), config).await.expect("a filter")
}

async fn read(engine: &Engine, request: FetchRequest) -> Result<Fetched, FetchError> {
    engine.fetch(&me(), &name("t"), p(0), request).await
}

/// An engine with a topic of one partition that holds these values, each in a batch of its own.
async fn holding(values: &[&str], compression: &str) -> (Engine, super::HostHandle) {
    let (engine, host) = engine();
    put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "t", 1, &[("compression.type", json!(compression))]).await;
    for value in values {
        produce(&engine, "t", vec![record("k", value)]).await;
    }
    (engine, host)
}

fn at(found: &[(u64, &str)]) -> Vec<(u64, String)> {
    found.iter().map(|(offset, value)| (*offset, (*value).to_owned())).collect()
}

#[tokio::test]
async fn what_passes_keeps_its_offset_and_positions_move_over_the_rest() {
    for compression in ["uncompressed", "zstd"] {
        let stored = ["a", "drop", "twice", "reject", "b", "drop"];
        let (engine, host) = holding(&stored, compression).await;
        let by = Some(filter(&engine, "{}").await);
        let fetched =
            read(&engine, FetchRequest { filter: by.clone(), ..read_from(From::Earliest) }).await.expect("read");
        assert_eq!(values(&fetched), at(&[(0, "a"), (2, "twice/1"), (2, "twice/2"), (4, "b")]));
        assert_eq!((fetched.next_offset, fetched.high_watermark), (Offset(6), Offset(6)));
        assert_eq!(*host.0.calls.lock(), [6], "one call for all the batches");
        let from = From::Offset(Offset(3));
        let fetched = read(&engine, FetchRequest { filter: by.clone(), ..read_from(from) }).await.expect("read");
        assert_eq!(values(&fetched), at(&[(4, "b")]));
        let from = From::Offset(Offset(5));
        let fetched = read(&engine, FetchRequest { filter: by, ..read_from(from) }).await.expect("read");
        assert_eq!((values(&fetched), fetched.next_offset), (vec![], Offset(6)));
        let by = Some(filter(&engine, r#"{"drop": "a"}"#).await);
        let fetched = read(&engine, FetchRequest { filter: by, ..read_from(From::Earliest) }).await.expect("read");
        assert_eq!(fetched.records().count(), 5, "the config is another");
    }
}

#[tokio::test]
async fn a_batch_is_entered_in_its_middle() {
    let (engine, host) = holding(&[], "zstd").await;
    produce(&engine, "t", ["a", "drop", "b", "c"].map(|value| record("k", value)).into()).await;
    let by = Some(filter(&engine, "{}").await);
    let request = FetchRequest { filter: by, max_records: 2, ..read_from(From::Offset(Offset(1))) };
    let fetched = read(&engine, request).await.expect("read");
    assert_eq!((values(&fetched), fetched.next_offset), (at(&[(2, "b")]), Offset(3)));
    assert_eq!(*host.0.calls.lock(), [2], "only what is wanted is judged");
}

#[tokio::test]
async fn pages_of_any_size_bring_every_record_once() {
    let mut stored = Vec::new();
    for i in 0..60_usize {
        stored.push(["a", "drop", "twice", "drop", "reject", "long-long-long-long"][i * 7 % 6]);
    }
    let (engine, _) = holding(&stored, "uncompressed").await;
    let mut wanted = Vec::new();
    for (offset, value) in (0..).zip(&stored) {
        match *value {
            "drop" | "reject" => (),
            "twice" => wanted.extend([(offset, "twice/1".to_owned()), (offset, "twice/2".to_owned())]),
            other => wanted.push((offset, other.to_owned())),
        }
    }
    for max_records in [1, 2, 3, 7, 500] {
        for max_bytes in [1, 30, 200, 1 << 20] {
            let by = filter(&engine, "{}").await;
            let (mut found, mut next) = (Vec::new(), Offset(0));
            while next < Offset(60) {
                let request =
                    FetchRequest { filter: Some(by.clone()), max_records, max_bytes, ..read_from(From::Offset(next)) };
                let fetched = read(&engine, request).await.expect("read");
                let page = values(&fetched);
                // What is in the place of one record comes together.
                assert!(page.len() <= max_records.max(2), "{max_records}");
                assert!(fetched.next_offset > next);
                next = fetched.next_offset;
                found.extend(page);
            }
            assert_eq!(found, wanted, "{max_records} records, {max_bytes} bytes");
            let start = TopicStart::From(From::Earliest);
            let reader =
                engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader");
            let mut reader = reader.filtered(by);
            let mut found = Vec::new();
            while reader.positions().next[0].1 < Offset(60) {
                for fetched in reader.next(max_records, max_bytes, Duration::ZERO).await.expect("read") {
                    found.extend(values(&fetched));
                }
            }
            assert_eq!(found, wanted, "the reader of topics: {max_records} records, {max_bytes} bytes");
        }
    }
}

#[tokio::test]
async fn a_read_that_does_not_wait_looks_at_a_bounded_part_and_says_how_far_it_came() {
    let (engine, host) = holding(&[], "uncompressed").await;
    for _ in 0..8 {
        produce(&engine, "t", vec![record("k", "drop"); 10_000]).await;
    }
    produce(&engine, "t", vec![record("k", "last")]).await;
    let by = Some(filter(&engine, "{}").await);
    let request = FetchRequest { filter: by.clone(), max_records: 10, ..read_from(From::Earliest) };
    let fetched = read(&engine, request.clone()).await.expect("read");
    let calls = std::mem::take(&mut *host.0.calls.lock());
    assert_eq!(calls, [10, 20, 40, 80, 160, 320, 640, 1_280], "more and more in a call");
    assert_eq!((fetched.records().count(), fetched.next_offset), (0, Offset(calls.iter().sum::<usize>() as u64)));
    let waiting = FetchRequest { wait: LONG, ..request };
    let fetched = read(&engine, waiting).await.expect("read");
    assert_eq!(values(&fetched), at(&[(80_000, "last")]), "who waits comes to the end");
    assert!(host.0.calls.lock().len() < 25, "{:?}", host.0.calls.lock());
}

#[tokio::test]
async fn who_waits_is_not_woken_by_what_does_not_pass() {
    let (engine, _) = holding(&["a"], "uncompressed").await;
    let by = Some(filter(&engine, "{}").await);
    let request = FetchRequest { filter: by, wait: LONG, ..read_from(From::Latest) };
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { read(&engine, request).await }
    });
    for value in ["drop", "drop", "reject"] {
        produce(&engine, "t", vec![record("k", value)]).await;
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
    }
    produce(&engine, "t", vec![record("k", "b")]).await;
    let fetched = waiting.await.expect("no panic").expect("read");
    assert_eq!((values(&fetched), fetched.next_offset), (at(&[(4, "b")]), Offset(5)));
}

#[tokio::test]
async fn small_batches_of_all_partitions_make_one_call() {
    let (engine, host) = engine();
    put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "t", 3, &[]).await;
    for i in 0..12 {
        produce(&engine, "t", vec![to(i % 3, ["a", "drop"][i as usize % 2])]).await;
    }
    let start = TopicStart::From(From::Earliest);
    let reader = engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader");
    let mut reader = reader.filtered(filter(&engine, "{}").await);
    let read = reader.next(500, 1 << 20, Duration::ZERO).await.expect("read");
    assert_eq!(read.iter().map(|fetched| fetched.records().count()).sum::<usize>(), 6);
    assert_eq!(*host.0.calls.lock(), [12]);
    assert!(reader.positions().next.iter().all(|(_, next)| *next == Offset(4)));
}

#[tokio::test]
async fn what_comes_before_a_record_over_which_the_filter_fails_is_delivered_and_then_that_record_is_named() {
    for compression in ["uncompressed", "zstd"] {
        let (engine, host) = holding(&["a", "drop", "b"], compression).await;
        produce(&engine, "t", ["c", "trap", "d"].map(|value| record("k", value)).into()).await;
        let by = filter(&engine, "{}").await;
        let request = FetchRequest { filter: Some(by.clone()), ..read_from(From::Earliest) };
        let front = read(&engine, request.clone()).await.expect("what is before it");
        assert_eq!((values(&front), front.next_offset), (at(&[(0, "a"), (2, "b"), (3, "c")]), Offset(4)));
        let told = |fault: FetchError| {
            let FetchError::Filter { at: Some(at), .. } = &fault else { panic!("{fault:?}") };
            assert_eq!((at.topic.as_str(), at.partition, at.offset), ("t", p(0), Offset(4)));
            assert_eq!(fault.to_string(), "filter f gave no answer for offset 4 of partition 0 of topic t: it trapped");
        };
        let there = FetchRequest { from: From::Offset(Offset(4)), ..request.clone() };
        told(read(&engine, there).await.expect_err("it is the first"));
        let behind = FetchRequest { from: From::Offset(Offset(5)), ..request.clone() };
        assert_eq!(values(&read(&engine, behind).await.expect("read")), at(&[(5, "d")]));
        // What is dropped before it is passed over, and then it is told.
        let dropped = FetchRequest { from: From::Offset(Offset(1)), max_records: 1, ..request.clone() };
        assert_eq!(values(&read(&engine, dropped).await.expect("read")), at(&[(2, "b")]));

        let start = TopicStart::From(From::Earliest);
        let reader = engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader");
        let mut reader = reader.filtered(by);
        let front = reader.next(500, 1 << 20, Duration::ZERO).await.expect("what is before it");
        assert_eq!(values(&front[0]), at(&[(0, "a"), (2, "b"), (3, "c")]));
        told(reader.next(500, 1 << 20, Duration::ZERO).await.expect_err("it is the first"));
        assert_eq!(reader.positions().next, [(p(0), Offset(4))], "it stands before it");
        host.0.busy.store(true, Ordering::SeqCst);
        let fault = read(&engine, request).await;
        assert!(matches!(fault, Err(FetchError::Filter { fault: ModuleFault::Busy(_), at: None, .. })), "{fault:?}");
    }
}

#[tokio::test]
async fn a_record_over_which_the_filter_fails_is_named_though_other_partitions_have_more() {
    let (engine, _) = engine();
    put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "t", 3, &[]).await;
    produce(&engine, "t", vec![to(0, "a"), to(1, "trap"), to(2, "b")]).await;
    let start = TopicStart::From(From::Earliest);
    let reader = engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader");
    let mut reader = reader.filtered(filter(&engine, "{}").await);
    let first = reader.next(500, 1 << 20, Duration::ZERO).await.expect("what is before it");
    assert_eq!((first.len(), values(&first[0])), (1, at(&[(0, "a")])));
    produce(&engine, "t", vec![to(0, "c")]).await;
    let fault = reader.next(500, 1 << 20, Duration::ZERO).await.expect_err("its turn");
    assert!(matches!(&fault, FetchError::Filter { at: Some(at), .. } if at.partition == p(1)), "{fault:?}");
}

#[tokio::test]
async fn a_long_backlog_of_what_does_not_pass_keeps_no_other_partition_waiting() {
    let (engine, host) = engine();
    put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "t", 3, &[]).await;
    let backlog = 20_000;
    for _ in 0..2 {
        produce(&engine, "t", vec![to(0, "drop"); backlog / 2]).await;
        produce(&engine, "t", vec![to(2, "drop"); backlog / 2]).await;
    }
    produce(&engine, "t", vec![to(1, "hit")]).await;
    let reader = async || {
        let start = TopicStart::From(From::Earliest);
        let reader = engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader");
        reader.filtered(filter(&engine, "{}").await)
    };
    let mut all = reader().await;
    let read = all.next(500, 1 << 20, Duration::ZERO).await.expect("read");
    assert_eq!(read.iter().flat_map(values).collect::<Vec<_>>(), at(&[(0, "hit")]));
    assert_eq!(host.0.calls.lock().len(), 1, "the first call looks at all of them");
    let mut one = reader().await;
    let mut looks = 0;
    while one.next(1, 1 << 20, Duration::ZERO).await.expect("read").is_empty() {
        looks += 1;
        assert!(looks < 2, "{:?}", one.positions());
    }
}

#[tokio::test]
async fn a_read_waits_for_a_filter_that_has_no_room_as_long_as_it_waits_and_a_stream_for_ever() {
    let (engine, host) = holding(&["a"], "uncompressed").await;
    let by = filter(&engine, "{}").await;
    let start = TopicStart::From(From::Earliest);
    let reader = engine.topic_reader(&me(), &name("t"), start, Isolation::ReadCommitted).await.expect("a reader");
    host.0.busy.store(true, Ordering::SeqCst);
    let mut reader = reader.filtered(by.clone());
    let fault = reader.next(500, 1 << 20, Duration::ZERO).await;
    assert!(matches!(fault, Err(FetchError::Filter { fault: ModuleFault::Busy(_), .. })), "{fault:?}");
    let mut stream = reader.patient();
    let nothing = stream.next(500, 1 << 20, Duration::ZERO).await.expect("it goes on");
    assert!(nothing.is_empty());
    let waiting = FetchRequest { filter: Some(by), wait: LONG, ..read_from(From::Earliest) };
    let mut one = pin!(read(&engine, waiting));
    let mut all = pin!(stream.next(500, 1 << 20, LONG));
    let both = poll_times(async { tokio::join!(one.as_mut(), all.as_mut()) }, 20).await;
    assert!(both.is_none(), "{both:?}");
    host.0.busy.store(false, Ordering::SeqCst);
    assert_eq!(values(&one.await.expect("read")), at(&[(0, "a")]));
    assert_eq!(values(&all.await.expect("read")[0]), at(&[(0, "a")]));
}

#[tokio::test]
async fn few_reads_are_judged_at_once_and_the_others_wait_for_their_turn() {
    let (engine, host) = holding(&[], "uncompressed").await;
    put(&engine, "slow", module(&["transform"], json!({"gated": true}))).await;
    produce(&engine, "t", vec![record("k", "a")]).await;
    let slow = engine.record_filter(&me(), &of("slow"), "{}").await.expect("a filter");
    let other = filter(&engine, "{}").await;
    host.hold(true);
    let mut reads = JoinSet::new();
    for _ in 0..2 * FILTERED_READS_AT_ONCE_MAX {
        let (engine, by) = (engine.clone(), slow.clone());
        reads.spawn(async move {
            let request = FetchRequest { filter: Some(by), ..read_from(From::Earliest) };
            read(&engine, request).await.map(|fetched| values(&fetched))
        });
    }
    let calls = || host.0.calls.lock().len();
    until("as many are judged as may be", async || calls() == FILTERED_READS_AT_ONCE_MAX).await;
    let request = FetchRequest { filter: Some(other), ..read_from(From::Earliest) };
    read(&engine, request).await.expect("another filter keeps on");
    assert_eq!(calls(), FILTERED_READS_AT_ONCE_MAX + 1);
    host.hold(false);
    while let Some(done) = reads.join_next().await {
        assert_eq!(done.expect("no panic").expect("read"), at(&[(0, "a")]));
    }
}

#[tokio::test]
async fn a_filter_follows_the_active_version_unless_it_names_one() {
    let (engine, _) = holding(&["a", "drop"], "uncompressed").await;
    let follows = Some(filter(&engine, "{}").await);
    let pinned = Some(engine.record_filter(&me(), &of("f@1"), "{}").await.expect("a filter"));
    let first = async |by: &Option<RecordFilter>| {
        let fetched = read(&engine, FetchRequest { filter: by.clone(), ..read_from(From::Earliest) }).await;
        values(&fetched.expect("read"))
    };
    assert_eq!(first(&follows).await, at(&[(0, "a")]));
    put(&engine, "f", module(&["transform"], json!({"upper": true}))).await;
    assert_eq!((first(&follows).await, first(&pinned).await), (at(&[(0, "A")]), at(&[(0, "a")])));
}

#[tokio::test]
async fn a_filter_that_cannot_be_is_refused_when_it_is_asked_for() {
    let (engine, _) = engine();
    put(&engine, "f", module(&["transform"], json!({}))).await;
    put(&engine, "p", module(&["partitioner"], json!({}))).await;
    let refused = async |module: &str, config: &str| {
        engine.record_filter(&me(), &of(module), config).await.map(drop).expect_err("it is refused")
    };
    assert!(matches!(refused("none", "{}").await, ModuleError::NotFound(_)));
    assert!(matches!(refused("f@2", "{}").await, ModuleError::NoVersion { version: 2, .. }));
    assert!(matches!(refused("p", "{}").await, ModuleError::Config { .. }));
    assert!(matches!(refused("f", "[").await, ModuleError::Config { .. }));
    assert!(matches!(refused("f", r#"{"refuse": true}"#).await, ModuleError::Config { .. }));
    assert!(matches!(refused("f", &" ".repeat(70_000)).await, ModuleError::ConfigTooLong { .. }));
}

#[tokio::test]
async fn records_of_aborted_transactions_are_not_shown_to_a_filter() {
    let (engine, host) = holding(&["a"], "uncompressed").await;
    let id = TransactionalId::new("one").expect("an id");
    let producer = engine.init_transactional_producer(&me(), &id, 60_000).await.expect("it starts");
    let transaction = engine.begin_transaction(&me(), producer.id, producer.epoch).await.expect("it begins");
    let once = Once::Transaction { transaction, sequence: None };
    let sent = ProduceRequest { once, ..request(vec![record("k", "aborted"), record("k", "where")]) };
    engine.produce(&me(), &name("t"), sent).await.expect("taken");
    engine.end_transaction(&me(), transaction, Outcome::Abort).await.expect("it ends");
    produce(&engine, "t", vec![record("k", "where")]).await;
    let by = Some(filter(&engine, "{}").await);
    let fetched = read(&engine, FetchRequest { filter: by, ..read_from(From::Earliest) }).await.expect("read");
    assert_eq!((values(&fetched), fetched.next_offset), (at(&[(0, "a"), (4, "t/0/4")]), Offset(5)));
    assert_eq!(*host.0.calls.lock(), [2], "nor are markers");
}

#[tokio::test]
async fn a_compacted_topic_is_filtered_like_another() {
    for compression in ["uncompressed", "zstd"] {
        let (engine, _) = engine();
        put(&engine, "f", module(&["transform"], json!({}))).await;
        let config = [("compression.type", json!(compression)), ("cleanup.policy", json!("compact"))];
        create(&engine, "t", 1, &config).await;
        for i in 0..5 {
            let value = |n: usize| ["a", "drop", "twice"][(i + n) % 3].to_owned();
            produce(&engine, "t", (0..10).map(|n| record(&format!("key-{}", n * i), &value(n))).collect()).await;
        }
        let offsets = |fetched: Fetched| {
            let kept = values(&fetched).into_iter().filter(|(_, value)| value != "drop" && !value.ends_with("/2"));
            kept.map(|(offset, value)| (offset, value.replace("/1", ""))).collect::<Vec<_>>()
        };
        let before = offsets(read(&engine, read_from(From::Earliest)).await.expect("read"));
        engine.compact_topic(&me(), &name("t"), LONG).await.expect("compacted");
        let wanted = offsets(read(&engine, read_from(From::Earliest)).await.expect("read"));
        assert!(wanted.len() < before.len(), "something is gone");
        let by = Some(filter(&engine, "{}").await);
        let filtered = FetchRequest { filter: by.clone(), ..read_from(From::Earliest) };
        assert_eq!(offsets(read(&engine, filtered).await.expect("read")), wanted);
        let (mut found, mut next) = (Vec::new(), Offset(0));
        while next < Offset(50) {
            let page = FetchRequest { filter: by.clone(), max_records: 3, ..read_from(From::Offset(next)) };
            let fetched = read(&engine, page).await.expect("read");
            next = fetched.next_offset;
            found.extend(offsets(fetched));
        }
        assert_eq!(found, wanted, "in pages");
    }
}
