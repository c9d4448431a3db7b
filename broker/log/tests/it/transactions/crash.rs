//! Power cuts and kills at every change of a log with transactions, and at every change of its compaction.

use std::collections::BTreeMap;

use levada_log::{CrashPlan, RecordRef};

use super::history::{Fate, History};
use super::*;

/// What was appended, and what of it was acknowledged.
#[derive(Default)]
struct Trace {
    history: History,
    synced_end: Offset,
    is_cut: bool,
}

/// Appends of four producers over several segments: interleaved, aborted, committed, left open, fenced in between.
fn appends() -> Vec<Append> {
    let mut all = Vec::new();
    for round in 0..4_i16 {
        all.push(data(1, round, 0, &["a", "b"]));
        all.push(plain(&["a"]));
        all.push(data(2, round, 0, &["b"]));
        all.push(data(1, round, 2, &["c"]));
        all.push(end(1, round + 1, if round % 2 == 0 { ABORT } else { COMMIT }, i32::from(round)));
        all.push(data(3, round, 0, &["a", "c", "d"]));
        all.push(end(2, round + 1, if round < 2 { COMMIT } else { ABORT }, 0));
        all.push(plain(&["d", "e"]));
        all.push(end(3, round + 1, ABORT, 3));
        // Of no transaction that is open.
        all.push(end(4, round + 1, ABORT, 3));
    }
    all.push(data(4, 4, 0, &["open"]));
    all.push(plain(&["e"]));
    all
}

impl Trace {
    /// Two appends a group, now and then a checkpoint; compacted, if `compacts`, after each round.
    fn run(&mut self, log: &mut PartitionLog, compacts: bool) -> Result<(), String> {
        let text = |error: &dyn ToString| error.to_string();
        for (number, append) in appends().into_iter().enumerate() {
            let now = Timestamp(i64::try_from(number).expect("few") * 100);
            if let Appended::Stored(batch) = log.stage(append, LeaderEpoch(0), now).map_err(|e| text(&e))? {
                self.history.push(&batch);
            }
            if number % 2 == 0 {
                log.write(now).map_err(|e| text(&e))?;
                log.sync().map_err(|e| text(&e))?;
                self.synced_end = log.marks().synced_end;
                log.prepare_ahead();
            }
            if number % 13 == 12 {
                log.settle().map_err(|e| text(&e))?;
            }
            if compacts && number % 10 == 9 {
                compact_all(log, now)?;
            }
        }
        Ok(())
    }

    /// What a reader of committed records knows in the end.
    fn table(&self, end: Offset) -> BTreeMap<Vec<u8>, Offset> {
        let history = self.history.until(end);
        let stable = history.last_stable(Offset(0));
        let counting = (0..history.0.len()).filter(|index| history.fate(*index) == Fate::Counts);
        let records = counting.flat_map(|index| history.0[index].records.clone());
        newest(records.filter(|record| record.offset < stable))
    }
}

fn newest(records: impl Iterator<Item = RecordRef>) -> BTreeMap<Vec<u8>, Offset> {
    records.map(|record| (record.record.key.expect("a key").to_vec(), record.offset)).collect()
}

fn compact_all(log: &mut PartitionLog, now: Timestamp) -> Result<(), String> {
    let end = log.marks().log_end;
    while let Some(plan) = log.plan_compaction(now, end, true).map_err(|error| error.to_string())? {
        let compacted = plan.run(&AtomicBool::new(false)).map_err(|error| error.to_string())?;
        let pass = log.install_compacted(compacted).map_err(|error| error.to_string())?;
        if pass.expect("nothing changed meanwhile").is_done {
            break;
        }
    }
    Ok(())
}

/// Runs the trace until the disk fails after so many changes.
fn cut_after(changes: u64, compacts: bool, faults: PlantedFaults) -> (SimStorage, Trace) {
    let disk = disk();
    disk.fail_after(changes);
    let mut trace = Trace::default();
    let storage = Arc::new(disk.clone());
    let opened = PartitionLog::open_with_faults(storage, Path::new(DIR), options(), Timestamp(0), false, faults);
    trace.is_cut = opened.map_or(true, |(mut log, _)| trace.run(&mut log, compacts).is_err());
    (disk, trace)
}

fn plans(disk: &SimStorage, changes: u64) -> Vec<CrashPlan> {
    let pending = disk.pending_count();
    let mut plans = vec![CrashPlan::all_lost(), CrashPlan::all_kept()];
    if pending <= 4 {
        plans.extend((0..1 << pending).map(CrashPlan::bits));
    } else {
        plans.extend((0..6).map(|n| CrashPlan::seeded(changes << 20 | n, 512)));
    }
    plans
}

/// What was acknowledged is there, and the log is what its batches say, now and after another cut.
fn holds(disk: &SimStorage, trace: &Trace, faults: PlantedFaults) -> Result<(), String> {
    let log = open_with(disk, faults);
    let marks = log.marks();
    if marks.log_end < trace.synced_end {
        return Err(format!("ends at {}, {} was acknowledged", marks.log_end, trace.synced_end));
    }
    let history = trace.history.until(marks.log_end);
    history.agrees(&log)?;
    history.lists_open(&log)?;
    let again = open_with(&disk.crash(&CrashPlan::all_lost()), faults);
    if again.marks() != marks {
        return Err(format!("{:?} after {marks:?}", again.marks()));
    }
    let listed = |log: &PartitionLog| log.reader().aborted(Offset(0), marks.log_end).expect("reads");
    if listed(&again) != listed(&log) {
        return Err(format!("aborted are {:?}, not {:?}", listed(&again), listed(&log)));
    }
    goes_on(log, history)
}

/// All that comes again is judged as before the crash, and what follows is taken.
fn goes_on(mut log: PartitionLog, mut history: History) -> Result<(), String> {
    for append in appends() {
        let expected = history.judge(append.batch.header(), append.batch.control());
        let answer = log.stage(append, LeaderEpoch(0), Timestamp(0));
        if word(&answer) != expected {
            return Err(format!("{}, not {expected}", word(&answer)));
        }
        if let Ok(Appended::Stored(batch)) = answer {
            history.push(&batch);
        }
    }
    log.write(Timestamp(0)).map_err(|error| error.to_string())?;
    log.sync().map_err(|error| error.to_string())?;
    history.agrees(&log)
}

/// Cuts the trace everywhere; says what the first cut broke.
pub(super) fn every_cut(faults: PlantedFaults) -> Result<u64, String> {
    assert!(!cut_after(u64::MAX, false, faults).1.is_cut, "the trace has a mistake");
    let mut crashes = 0;
    for changes in 0.. {
        let (disk, trace) = cut_after(changes, false, faults);
        for (number, plan) in plans(&disk, changes).iter().enumerate() {
            crashes += 1;
            holds(&disk.crash(plan), &trace, faults)
                .map_err(|error| format!("cut after {changes} changes, plan {number}: {error}"))?;
        }
        let killed = disk.restart();
        // In every third log what is derived is lost, too.
        if changes % 3 == 0 {
            [".index", ".snapshot"].iter().for_each(|kind| lose(&killed, kind));
        }
        holds(&killed, &trace, faults).map_err(|error| format!("kill after {changes} changes: {error}"))?;
        if !trace.is_cut {
            break;
        }
    }
    Ok(crashes)
}

#[test]
fn after_a_power_cut_anywhere_transactions_are_as_the_batches_say() {
    let crashes = every_cut(PlantedFaults::default()).unwrap_or_else(|error| panic!("{error}"));
    assert!(crashes > 500, "a vacuous proof: {crashes}");
}

/// Of a log that was compacted: no aborted or undecided record is read, and of each key the newest one that counts is.
fn is_compacted_right(disk: &SimStorage, trace: &Trace) -> Result<(), String> {
    let log = open(disk);
    let marks = log.marks();
    if marks.log_end < trace.synced_end {
        return Err(format!("ends at {}, {} was acknowledged", marks.log_end, trace.synced_end));
    }
    let history = trace.history.until(marks.log_end);
    let stable = history.last_stable(Offset(0));
    if marks.last_stable != stable {
        return Err(format!("last stable {}, not {stable}", marks.last_stable));
    }
    history.lists_open(&log)?;
    let chunk = log.reader().read_committed(Offset(0), 1 << 20, stable).map_err(|error| error.to_string())?;
    let counts = |header| !chunk.aborted.iter().any(|aborted| aborted.holds(header));
    let data = chunk.batches.iter().filter(|batch| !batch.header().is_control() && counts(batch.header()));
    let records: Vec<RecordRef> =
        data.flat_map(|batch| batch.records().expect("unpacks")).map(|record| record.expect("whole")).collect();
    for record in &records {
        let index = history.0.partition_point(|entry| entry.header.next_offset() <= record.offset);
        if history.fate(index) != Fate::Counts || !history.0[index].records.contains(record) {
            return Err(format!("{record:?} does not count or is another one"));
        }
    }
    let found = newest(records.into_iter());
    let table = trace.table(marks.log_end);
    if found != table || log.reader().damage_count() > 0 {
        return Err(format!("{found:?}, not {table:?}; damage {:?}", log.reader().damage()));
    }
    Ok(())
}

#[test]
fn after_a_power_cut_in_a_compaction_no_aborted_record_comes_back_and_none_that_counts_is_lost() {
    let (disk, trace) = cut_after(u64::MAX, true, PlantedFaults::default());
    let chunk = open(&disk).reader().read(Offset(0), 1 << 20, trace.history.end()).expect("reads");
    let is_gone = |offset| !chunk.batches.iter().any(|batch| batch.header().base_offset == offset);
    let markers = trace.history.0.iter().filter(|entry| entry.marker.is_some());
    let gone = markers.filter(|entry| is_gone(entry.header.base_offset)).count();
    assert!(!trace.is_cut && gone > 3, "the trace takes no markers away: {gone}");
    for changes in 0.. {
        let (disk, trace) = cut_after(changes, true, PlantedFaults::default());
        for (number, plan) in plans(&disk, changes).iter().enumerate() {
            let crashed = disk.crash(plan);
            is_compacted_right(&crashed, &trace)
                .unwrap_or_else(|error| panic!("cut after {changes} changes, plan {number}: {error}"));
            lose(&crashed, ".index");
            is_compacted_right(&crashed, &trace)
                .unwrap_or_else(|error| panic!("cut after {changes} changes, plan {number}, no index: {error}"));
        }
        let killed = disk.restart();
        lose(&killed, ".snapshot");
        is_compacted_right(&killed, &trace).unwrap_or_else(|error| panic!("kill after {changes} changes: {error}"));
        if !trace.is_cut {
            break;
        }
    }
}
