//! Records on their way into a transaction.

use levada_engine::Isolation;
use serde_json::json;

use super::*;
use crate::support::{Bench, create, offsets, produce, to};

#[tokio::test]
async fn what_is_committed_is_seen_whole_and_what_is_aborted_never() {
    for durability in ["fsync", "page-cache"] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        create(&engine, "t", 1, &[("durability", json!(durability))]).await;
        let mut one = Transactor::start(&engine, "one").await;
        let mut two = Transactor::start(&engine, "two").await;
        produce(&engine, "t", vec![to(0, "plain")]).await;
        assert_eq!(offsets(&one.send("t", vec![to(0, "a"), to(0, "b")]).await), [1, 2]);
        two.send("t", vec![to(0, "x")]).await;
        one.send("t", vec![to(0, "c")]).await;
        produce(&engine, "t", vec![to(0, "late")]).await;
        let everything = ["plain", "a", "b", "x", "c", "late"];
        for cached in [true, false] {
            assert_eq!(seen(&engine, "t", Isolation::ReadCommitted).await, (vec!["plain".to_owned()], 1), "{cached}");
            assert_eq!(seen(&engine, "t", Isolation::ReadUncommitted).await, (everything.map(str::to_owned).into(), 6));
            if cached {
                assert_eq!(engine.stats().file_reads, 0);
            }
        }
        two.end(ABORT).await;
        assert_eq!(seen(&engine, "t", Isolation::ReadCommitted).await.1, 1, "the other is open");
        one.end(COMMIT).await;
        let committed = ["plain", "a", "b", "c", "late"].map(str::to_owned).to_vec();
        assert_eq!(seen(&engine, "t", Isolation::ReadCommitted).await, (committed.clone(), 8));
        assert_eq!(seen(&engine, "t", Isolation::ReadUncommitted).await, (everything.map(str::to_owned).into(), 8));
        assert_eq!(engine.stats().file_reads, 0);
        drop((one, two));
        engine.close().await.expect("closed");
        let engine = bench.open();
        assert_eq!(seen(&engine, "t", Isolation::ReadCommitted).await, (committed, 8));
        assert_eq!(seen(&engine, "t", Isolation::ReadUncommitted).await, (everything.map(str::to_owned).into(), 8));
        assert_eq!(engine.stats().tail_cache_hits, 0);
    }
}

#[tokio::test]
async fn a_retry_with_its_sequence_is_recognised_and_sequences_begin_anew_with_each_transaction() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    assert_eq!(offsets(&one.send_at("t", 0, vec![to(0, "a"), to(0, "b")]).await), [0, 1]);
    let again = one.send_at("t", 0, vec![to(0, "a"), to(0, "b")]).await;
    assert_eq!((offsets(&again), again.duplicate), (vec![0, 1], true));
    // One that the partition numbers takes the next.
    one.send("t", vec![to(0, "c")]).await;
    assert!(one.send_at("t", 2, vec![to(0, "c")]).await.duplicate);
    assert!(!one.send_at("t", 3, vec![to(0, "d")]).await.duplicate);
    one.end(COMMIT).await;
    assert!(!one.send_at("t", 0, vec![to(0, "e")]).await.duplicate);
    one.end(COMMIT).await;
    let all = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    assert_eq!(seen(&engine, "t", Isolation::ReadCommitted).await, (all, 7));
}
