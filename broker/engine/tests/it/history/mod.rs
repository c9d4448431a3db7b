//! Transactions of many producers, with kills, power cuts and restarts in between: the history of each run is judged by
//! `levada_history`. And the same with mistakes planted in the log, which the judge must find.
//!
//! A longer soak: `LEVADA_HISTORY_SEEDS=1000`.

mod node;
mod planted;
mod run;

use levada_log::PlantedFaults;

use self::run::{Ends, Run};
use crate::support::LONG;

/// Runs with power cuts, of which one at least must find what is planted.
const SEEDS: u64 = 3;

fn seeds() -> u64 {
    std::env::var("LEVADA_HISTORY_SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_keep_every_promise_over_power_cuts() {
    for seed in 0..seeds() {
        Run { seed, ends: Ends::Any, faults: PlantedFaults::default(), patience: LONG * 4 }.holds().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_in_the_page_cache_keep_every_promise_over_kills() {
    for seed in 0..seeds() {
        Run { seed, ends: Ends::NoPowerCuts, faults: PlantedFaults::default(), patience: LONG * 4 }.holds().await;
    }
}
