//! What is done to a server, one file a part of the interface. The contract's test runs all of them and then looks for
//! what the document lists and nobody met.

mod cluster;
mod common;
mod compaction;
mod groups;
mod modules;
mod processors;
mod produce;
mod read;
mod topics;
mod transactions;
mod ws;

use crate::harness::Harness;

/// Runs all scenarios.
pub(crate) async fn run_all(harness: &Harness) {
    common::run(harness).await;
    cluster::run(harness).await;
    topics::run(harness).await;
    compaction::run(harness).await;
    groups::run(harness).await;
    produce::run(harness).await;
    read::run(harness).await;
    transactions::run(harness).await;
    ws::run(harness).await;
    modules::run(harness).await;
    processors::run(harness).await;
}
