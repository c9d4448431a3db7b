//! Planted faults: each must be found by what the other tests ask, or they prove nothing.

use super::crash::every_cut;
use super::history::History;
use super::*;

#[test]
fn that_aborted_transactions_are_forgotten_after_a_restart_is_found() {
    let faults = PlantedFaults { forget_aborted: true, ..PlantedFaults::default() };
    let disk = disk();
    let (mut log, mut history) = (open_with(&disk, faults), History::default());
    for append in [data(1, 0, 0, &["a"]), end(1, 1, ABORT, 0)] {
        let Ok(Appended::Stored(batch)) = put(&mut log, append, 0) else { panic!("is taken") };
        history.push(&batch);
    }
    assert_eq!(history.agrees(&log), Ok(()));
    log.settle().expect("settles");
    let disk = disk.restart();
    let found = history.agrees(&open_with(&disk, faults)).expect_err("the fault goes unnoticed");
    assert!(found.contains("looked up: [0], not []"), "{found}");
    // The fault does no harm that lasts.
    assert_eq!(history.agrees(&open(&disk)), Ok(()));
}

#[test]
fn that_epochs_are_ignored_is_found() {
    let faults = PlantedFaults { ignore_epoch: true, ..PlantedFaults::default() };
    let mut log = open_with(&disk(), faults);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    put(&mut log, end(1, 1, ABORT, 0), 0).expect("taken");
    assert_eq!(word(&put(&mut log, data(1, 0, 1, &["late"]), 0)), "stored at 2");
}

#[test]
fn that_the_sync_is_skipped_is_found() {
    let faults = PlantedFaults { skip_sync: true, ..PlantedFaults::default() };
    let found = every_cut(faults).expect_err("the fault goes unnoticed");
    assert!(found.contains("was acknowledged"), "{found}");
}
