//! Every way to read that the document lists, and each way to be refused.

use crate::harness::Harness;

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    let _ = harness;
}
