//! Power cuts at every change that the trace makes, with every subset of what pends, torn blocks, and cuts during the
//! recovery itself.

use std::collections::BTreeSet;
use std::env;

use levada_log::{CrashPlan, Fate, Pending, PlantedFaults, SimStorage};
use levada_model::Offset;

use super::trace::{Model, Operation, Runner, Source, draw, full, random};
use super::verdict::after_power_cut;
use super::{disk, open, options};

/// Where not all subsets are tried, so many are drawn, times the variable `LEVADA_SOAK`.
const DRAWN: u64 = 24;
/// Random traces, times the variable `LEVADA_SOAK`.
const TRACES: u64 = 60;

/// What a disk and a log are made to do wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plant {
    pub(super) faults: PlantedFaults,
    pub(super) ignore_sync_data: bool,
    pub(super) ignore_sync_dir: bool,
}

/// How much was tried.
#[derive(Debug, Default)]
pub(super) struct Tried {
    cuts: u64,
    crashes: u64,
    pending_most: usize,
}

/// How many times as much is drawn: the variable `LEVADA_SOAK`, else once.
pub(super) fn soak() -> u64 {
    env::var("LEVADA_SOAK").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Runs the trace until the power goes after so many changes.
fn cut_after(changes: u64, trace: &[Operation], plant: Plant, block_bytes: usize) -> (SimStorage, Model) {
    let disk = disk(block_bytes);
    disk.ignore_sync_data(plant.ignore_sync_data);
    disk.ignore_sync_dir(plant.ignore_sync_dir);
    disk.fail_after(changes);
    let Ok((log, _)) = open(&disk, options(), false, plant.faults) else {
        return (disk, Model { is_cut: true, ..Model::default() });
    };
    let mut runner = Runner::new(log);
    runner.run(trace);
    (disk, runner.model)
}

/// What may become of so many pending things: all subsets of up to `exhaustive_max`.
fn plans(pending: usize, seed: u64, exhaustive_max: usize) -> Vec<CrashPlan> {
    let mut plans = vec![CrashPlan::all_lost(), CrashPlan::all_kept()];
    if pending <= exhaustive_max {
        plans.extend((0..1 << pending).map(CrashPlan::bits));
    } else {
        plans.extend((0..DRAWN * soak()).map(|n| CrashPlan::seeded(seed << 20 | n, 512)));
    }
    if pending > 0 {
        plans.extend((0..4 * soak()).map(|n| CrashPlan::seeded(seed << 20 | 1 << 19 | n, 1)));
    }
    plans
}

/// Tries all cuts of the trace on a disk with such blocks; says what the first one broke.
pub(super) fn every_cut(
    trace: &[Operation],
    plant: Plant,
    block_bytes: usize,
    exhaustive_max: usize,
) -> Result<Tried, String> {
    let mut tried = Tried::default();
    for changes in 0.. {
        let (disk, model) = cut_after(changes, trace, plant, block_bytes);
        tried.cuts += 1;
        tried.pending_most = tried.pending_most.max(disk.pending_count());
        for (number, plan) in plans(disk.pending_count(), changes, exhaustive_max).iter().enumerate() {
            tried.crashes += 1;
            after_power_cut(&disk.crash(plan), &model, plant.faults)
                .map_err(|error| format!("cut after {changes} changes, plan {number}: {error}"))?;
        }
        if !model.is_cut {
            return Ok(tried);
        }
    }
    unreachable!("the trace ends")
}

#[test]
fn a_power_cut_at_any_change_keeps_what_was_synced_and_cuts_only_the_tail() {
    let tried = every_cut(&full(), Plant::default(), 512, 10).expect("holds");
    assert!(tried.cuts > 150 && tried.crashes > 2_000, "a vacuous proof: {tried:?}");
    assert!(tried.pending_most <= 10, "not all subsets were tried: {tried:?}");
}

#[test]
fn a_power_cut_that_tears_and_reorders_small_blocks_cuts_only_the_tail() {
    let tried = every_cut(&full(), Plant::default(), 64, 5).expect("holds");
    assert!(tried.pending_most > 10, "few blocks: {tried:?}");
}

#[test]
fn a_random_trace_survives_a_power_cut_anywhere() {
    for seed in 0..TRACES * soak() {
        let mut state = seed + 1;
        let trace = random(seed, 60);
        let block_bytes = [64, 512, 4096][(draw(&mut state) % 3) as usize];
        let mut changes = draw(&mut state) % 20;
        loop {
            let (disk, model) = cut_after(changes, &trace, Plant::default(), block_bytes);
            for plan in 0..3 {
                let crashed = disk.crash(&CrashPlan::seeded(draw(&mut state), [1, 512][plan % 2]));
                after_power_cut(&crashed, &model, PlantedFaults::default())
                    .unwrap_or_else(|error| panic!("trace {seed}, cut after {changes}, plan {plan}: {error}"));
            }
            if !model.is_cut {
                break;
            }
            changes += 1 + draw(&mut state) % 15;
        }
    }
}

#[test]
fn the_trace_has_what_it_is_for() {
    let (disk, model) = cut_after(u64::MAX, &full(), Plant::default(), 512);
    assert!(!model.is_cut);
    let made = |kind: &str| {
        (0..200)
            .flat_map(|n| cut_after(n, &full(), Plant::default(), 512).0.paths())
            .filter(|path| path.ends_with(kind))
            .collect::<BTreeSet<_>>()
            .len()
    };
    assert!(made(".log") >= 5, "segments");
    assert!(made(".snapshot") >= 3, "snapshots");
    assert_eq!(
        disk.paths().iter().filter(|path| path.ends_with(".log")).count(),
        1,
        "removed by retention and truncation"
    );
    assert!(model.start_least > Offset(3));
    assert_eq!(model.batches.last().map(|batch| batch.header().leader_epoch.0), Some(1));
}

#[test]
fn a_kill_keeps_all_that_was_written() {
    for changes in 0.. {
        let (disk, mut model) = cut_after(changes, &full(), Plant::default(), 512);
        model.synced_end = model.written_end;
        after_power_cut(&disk.restart(), &model, PlantedFaults::default()).expect("holds");
        if !model.is_cut {
            break;
        }
    }
}

#[test]
fn a_recovery_that_is_cut_itself_loses_nothing() {
    let trace = full();
    for changes in 0.. {
        let (first, model) = cut_after(changes, &trace, Plant::default(), 512);
        for seed in 0..3 * soak() {
            let crashed = first.crash(&CrashPlan::seeded(changes << 20 | seed, 512));
            for second in 0.. {
                let disk = crashed.crash(&CrashPlan::all_kept());
                disk.fail_after(second);
                let is_done = open(&disk, options(), false, PlantedFaults::default()).is_ok();
                let plan = CrashPlan::seeded(second, 512);
                after_power_cut(&disk.crash(&plan), &model, PlantedFaults::default())
                    .unwrap_or_else(|error| panic!("cut after {changes}, seed {seed}, again after {second}: {error}"));
                if is_done {
                    break;
                }
            }
        }
        if !model.is_cut {
            break;
        }
    }
}

#[test]
fn a_tail_that_was_cut_off_never_comes_back() {
    let one = |value_bytes| Operation::Stage { source: Source::Nobody, records: 1, value_bytes };
    let probe = disk(512);
    let mut runner = Runner::new(open(&probe, options(), false, PlantedFaults::default()).expect("opens").0);
    runner.run(&[one(40)]);
    // Each batch is one block: the second is lost, the third is kept.
    let block_bytes = runner.model.batches[0].header().size_bytes;
    let disk = disk(block_bytes);
    let mut runner = Runner::new(open(&disk, options(), false, PlantedFaults::default()).expect("opens").0);
    runner.run(&[one(40), Operation::Write, Operation::Sync, one(40), Operation::Write, one(40), Operation::Write]);
    let log = "/p/00000000000000000000.log";
    let fate = |pending: &Pending| match pending {
        Pending::Block { path, block: 1 } if path == log => Fate::Lost,
        _ => Fate::Kept,
    };
    let crashed = disk.crash(&CrashPlan::fates(disk.pending().iter().map(fate).collect()));
    assert_eq!(crashed.contents(log).len(), 3 * block_bytes);
    let mut again = Runner::new(open(&crashed, options(), false, PlantedFaults::default()).expect("opens").0);
    assert_eq!(again.log.marks().log_end, Offset(1));
    // What is written now takes exactly the place of the second.
    again.run(&[one(40), Operation::Write]);
    assert_eq!(again.log.marks().log_end, Offset(2));
    for bits in 0..1 << crashed.pending_count() {
        let (log, _) =
            open(&crashed.crash(&CrashPlan::bits(bits)), options(), false, PlantedFaults::default()).expect("opens");
        assert!(log.marks().log_end <= Offset(2), "the third came back with {bits:b} of {:?}", crashed.pending());
    }
}
