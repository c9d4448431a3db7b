//! The seed's exercise, with a clock that can be moved: updates of customers, deletions, and what is left of them.

use levada_engine::Engine;
use levada_model::Offset;
use serde_json::json;

use super::{compact, compacted_topic, store, tombstone};
use crate::support::{Bench, all, me, name, produce, record};

const CUSTOMERS: u64 = 10;
const UPDATES: u64 = 10;

async fn update_all(engine: &Engine) {
    for update in 0..UPDATES {
        for customer in 0..CUSTOMERS {
            let value = format!("{{\"customer\":{customer},\"update\":{update}}}");
            produce(engine, "customers", vec![record(&format!("customer-{customer}"), &value)]).await;
        }
    }
}

fn size_bytes(engine: &Engine) -> u64 {
    engine.describe_topic(&me(), &name("customers")).expect("there").partitions[0].size_bytes
}

#[tokio::test]
async fn ten_updates_of_ten_customers_leave_ten_records_in_their_order() {
    for durability in ["fsync", "page-cache"] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        compacted_topic(&engine, "customers", 1, &[("durability", json!(durability))]).await;
        update_all(&engine).await;
        let before = size_bytes(&engine);
        let done = compact(&engine, "customers").await.partitions[0];
        let left = all(&engine, "customers", 0, 0).await;
        let newest = |customer| format!("{{\"customer\":{customer},\"update\":9}}");
        assert_eq!(left, (0..CUSTOMERS).map(|c| (90 + c, newest(c))).collect::<Vec<_>>(), "{durability}");
        assert_eq!((done.before_records, done.after_records), (100, 10));
        assert_eq!((done.before_bytes, done.after_bytes), (before, size_bytes(&engine)));
        assert!(size_bytes(&engine) * 5 < before, "{} of {before} bytes", size_bytes(&engine));
        assert_eq!(engine.stats().compaction_passes, 1);
        engine.close().await.expect("closed");
        assert_eq!(all(&bench.open(), "customers", 0, 0).await, left, "also after a restart");
    }
}

#[tokio::test]
async fn a_tombstone_stays_for_its_time_and_its_customer_never_comes_back() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "customers", 1, &[("delete.retention.ms", json!(1_000))]).await;
    update_all(&engine).await;
    produce(&engine, "customers", vec![tombstone("customer-7")]).await;
    compact(&engine, "customers").await;
    let offsets = async || all(&engine, "customers", 0, 0).await.into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    let rest = vec![90, 91, 92, 93, 94, 95, 96, 98, 99];
    let with_mark = [&rest[..], &[100]].concat();
    assert_eq!(offsets().await, with_mark, "the mark is seen by readers that are behind");
    bench.clock.advance(999);
    engine.run_compaction();
    assert_eq!(offsets().await, with_mark, "not yet");
    bench.clock.advance(1);
    engine.run_compaction();
    assert_eq!(offsets().await, rest, "the customer is gone");
    compact(&engine, "customers").await;
    assert_eq!(offsets().await, rest);
    store(&engine, "customers", &[("customer-7", "new")]).await;
    assert_eq!(
        engine.describe_topic(&me(), &name("customers")).expect("there").partitions[0].high_watermark,
        Offset(102)
    );
}
