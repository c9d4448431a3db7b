//! Records in and out again: the main way.

use levada_log::DiskStorage;
use serde_json::json;

use crate::support::{Bench, all, create, offsets, produce, record};

#[tokio::test]
async fn what_is_produced_comes_back_also_after_a_restart() {
    let (sim, _) = Bench::sim();
    let dir = tempfile::tempdir().expect("a directory");
    for bench in [sim, Bench::on(DiskStorage, dir.path().join("data"))] {
        for durability in ["fsync", "page-cache"] {
            let engine = bench.open();
            create(&engine, durability, 1, &[("durability", json!(durability))]).await;
            assert_eq!(offsets(&produce(&engine, durability, vec![record("a", "1"), record("b", "2")]).await), [0, 1]);
            assert_eq!(offsets(&produce(&engine, durability, vec![record("", "3")]).await), [2]);
            let expected = [(0, "1".to_owned()), (1, "2".to_owned()), (2, "3".to_owned())];
            assert_eq!(all(&engine, durability, 0, 0).await, expected);
            engine.close().await.expect("closed");
            let engine = bench.open();
            assert_eq!(all(&engine, durability, 0, 0).await, expected);
            assert_eq!(offsets(&produce(&engine, durability, vec![record("", "4")]).await), [3]);
            engine.close().await.expect("closed");
        }
    }
}
