//! Mistakes planted in the log: the judge must find each within the seeds under which it finds nothing without them.

use std::time::Duration;

use levada_log::PlantedFaults;

use super::SEEDS;
use super::run::{Ends, Run};

/// What an engine with a mistake does may never end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The rules that a mistake breaks, by their names.
async fn found(faults: PlantedFaults) -> Vec<String> {
    let mut rules = Vec::new();
    for seed in 0..SEEDS {
        // That a load stands still says little of why.
        if rules.iter().all(|rule| rule == "NothingUnexpected") {
            let violations = Run { seed, ends: Ends::Any, faults, patience: PATIENCE }.violations().await;
            rules.extend(violations.iter().map(|violation| format!("{:?}", violation.rule)));
        }
    }
    rules.sort_unstable();
    rules.dedup();
    rules
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_syncs_are_skipped_is_found() {
    let rules = found(PlantedFaults { skip_sync: true, ..PlantedFaults::default() }).await;
    assert!(rules.iter().any(|rule| rule == "NothingLost"), "{rules:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_aborted_transactions_are_forgotten_after_a_restart_is_found() {
    let rules = found(PlantedFaults { forget_aborted: true, ..PlantedFaults::default() }).await;
    assert!(rules.iter().any(|rule| rule == "NoAbortedRead"), "{rules:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_epochs_are_ignored_is_found() {
    let rules = found(PlantedFaults { ignore_epoch: true, ..PlantedFaults::default() }).await;
    assert!(rules.iter().any(|rule| rule == "Fencing"), "{rules:?}");
}
