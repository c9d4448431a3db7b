//! How far readers come, and what they find on the way.

use levada_engine::Isolation;

use super::*;
use crate::support::{Bench, create, to};

#[tokio::test]
async fn a_topic_of_aborted_records_alone_reads_as_empty_and_caught_up() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.send("t", vec![to(0, "a")]).await;
    one.end(ABORT).await;
    let fetched = read(&engine, "t", From::Earliest, Isolation::ReadCommitted).await;
    assert_eq!((texts(&fetched), fetched.next_offset.0), (vec![], 2));
    assert_eq!((fetched.high_watermark.0, fetched.last_stable_offset.0), (2, 2));
}
