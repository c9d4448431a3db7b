//! Planted faults: each must make the proofs fail, or they prove nothing.

use levada_log::PlantedFaults;

use super::power_cut::{Plant, every_cut};
use super::trace::full;

/// The proofs fail, and say this.
fn is_found(plant: Plant, words: &str) {
    let found = every_cut(&full(), plant, 512, 6).expect_err("the fault goes unnoticed");
    assert!(found.contains(words), "{found}");
}

#[test]
fn a_disk_whose_fdatasync_does_nothing_is_found() {
    is_found(Plant { ignore_sync_data: true, ..Plant::default() }, "was acknowledged");
}

#[test]
fn a_disk_that_does_not_sync_directories_is_found() {
    is_found(Plant { ignore_sync_dir: true, ..Plant::default() }, "was acknowledged");
}

#[test]
fn zeros_that_pass_as_a_batch_are_found() {
    is_found(
        Plant { faults: PlantedFaults { zeros_are_a_batch: true, ..Default::default() }, ..Plant::default() },
        "log_end",
    );
}

#[test]
fn a_recovery_point_that_runs_ahead_is_found() {
    is_found(
        Plant { faults: PlantedFaults { recovery_point_ahead: true, ..Default::default() }, ..Plant::default() },
        "a power cut damages nothing",
    );
}
