//! Power cuts and kills at every change that a log makes while it is compacted, and during the recovery from them.

use levada_log::{CrashPlan, Recovery};
use levada_model::{ProducerEpoch, ProducerId, Sequence};

use super::*;

/// What was appended: key and value of each offset, one record a batch.
#[derive(Default)]
struct Trace {
    appended: Vec<(String, Option<String>)>,
    /// What was acknowledged ends here.
    synced_end: u64,
    is_cut: bool,
}

impl Trace {
    fn append(&mut self, log: &mut PartitionLog, epoch: i32, key: &str, value: Option<&str>) -> Result<(), String> {
        let producer = (key == "by-producer").then(|| {
            let sequence = self.appended.iter().filter(|(other, _)| other == key).count();
            (ProducerId(7), ProducerEpoch(0), Sequence(i32::try_from(sequence).expect("few")))
        });
        let batch = batch(NewBatch { producer, ..NewBatch::default() }, 0, &[(key, value)]);
        let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
        log.stage(append, LeaderEpoch(epoch), Timestamp(0)).map_err(|error| error.to_string())?;
        self.appended.push((key.to_owned(), value.map(str::to_owned)));
        log.write(Timestamp(0)).map_err(|error| error.to_string())?;
        log.sync().map_err(|error| error.to_string())?;
        self.synced_end = log.marks().synced_end.0;
        Ok(())
    }

    /// Three rounds of updates with deletes, a leader epoch in between, each compacted into several segments. What is
    /// deleted in the first goes in the second.
    fn run(&mut self, log: &mut PartitionLog) -> Result<(), String> {
        let large = "v".repeat(150);
        self.append(log, 0, "gone", Some(&large))?;
        for round in 0..3 {
            for n in 0..6 {
                let value = format!("{round} {large}");
                let key = format!("key-{}", (n * (round + 1)) % 5);
                self.append(log, round, &key, Some(value.as_str()).filter(|_| n != 2 + round))?;
                if n % 3 == 0 {
                    self.append(log, round, "by-producer", Some(&value))?;
                }
            }
            if round == 0 {
                self.append(log, round, "gone", None)?;
            }
            compact_all(log, i64::from(round) * 2_000)?;
        }
        Ok(())
    }

    /// What a reader of a log that ends at `end` must know; who was deleted may be there, deleted, or not.
    fn table(&self, end: u64) -> BTreeMap<String, String> {
        let mut table = BTreeMap::new();
        for (key, value) in &self.appended[..usize::try_from(end).expect("few")] {
            match value {
                Some(value) => table.insert(key.clone(), value.clone()),
                None => table.remove(key),
            };
        }
        table
    }
}

/// Passes of little memory until all is clean.
fn compact_all(log: &mut PartitionLog, now: i64) -> Result<(), String> {
    loop {
        let end = log.marks().log_end;
        let plan = log.plan_compaction(Timestamp(now), end, true).map_err(|error| error.to_string())?;
        let compacted = plan.expect("there is something").run(&AtomicBool::new(false));
        let compacted = compacted.map_err(|error| error.to_string())?;
        let pass = log.install_compacted(compacted).map_err(|error| error.to_string())?;
        if pass.expect("nothing changed meanwhile").is_done {
            return Ok(());
        }
    }
}

fn settings() -> LogOptions {
    // Room for some keys of a round: a pass ends in the middle of a segment.
    let compaction = CompactionOptions { memory_bytes: 320, ..compaction() };
    LogOptions { compaction: Some(compaction), segment_bytes: 600, ..options() }
}

fn reopen(disk: &SimStorage) -> Result<(PartitionLog, Recovery), String> {
    PartitionLog::open(Arc::new(disk.clone()), Path::new(DIR), settings(), Timestamp(0), false)
        .map_err(|error| error.to_string())
}

/// Runs the trace until the disk fails after so many changes.
fn cut_after(changes: u64) -> (SimStorage, Trace) {
    let disk = disk();
    disk.fail_after(changes);
    let mut trace = Trace::default();
    trace.is_cut = reopen(&disk).and_then(|(mut log, _)| trace.run(&mut log)).is_err();
    (disk, trace)
}

/// After the crash, the log has of each key the newest record that it had, and nothing comes back or is out of place.
fn holds(disk: &SimStorage, trace: &Trace) -> Result<(), String> {
    let (log, recovery) = reopen(disk)?;
    if !recovery.damage.is_empty() {
        return Err(format!("a crash damages nothing: {:?}", recovery.damage));
    }
    is_whole(&log, trace)?;
    let left: Vec<String> = disk.paths().into_iter().filter(|p| p.contains("swap") || p.contains("cleaned")).collect();
    if !left.is_empty() {
        return Err(format!("left over: {left:?}"));
    }
    // A second power cut takes nothing back.
    let (again, recovery) = reopen(&disk.crash(&CrashPlan::all_lost()))?;
    if again.marks() != log.marks() || !recovery.damage.is_empty() {
        return Err(format!("{:?} after {:?}", again.marks(), log.marks()));
    }
    is_whole(&again, trace)?;
    knows_the_producer(disk, trace, log.marks().log_end.0)?;
    Ok(())
}

/// It can be compacted like any other, and nothing is lost by that.
fn goes_on(disk: &SimStorage, trace: &Trace) -> Result<(), String> {
    let (mut log, _) = reopen(disk)?;
    if log.marks().log_end > Offset(0) {
        compact_all(&mut log, 10_000)?;
    }
    is_whole(&log, trace)
}

fn is_whole(log: &PartitionLog, trace: &Trace) -> Result<(), String> {
    let marks = log.marks();
    if marks.log_end.0 < trace.synced_end || marks.log_end.0 > trace.appended.len() as u64 {
        return Err(format!("ends at {}, {} was acknowledged", marks.log_end, trace.synced_end));
    }
    let found = records(log, 0);
    if !found.is_sorted_by_key(|record| record.offset) {
        return Err("out of order".to_owned());
    }
    for record in &found {
        let (key, value) = &trace.appended[usize::try_from(record.offset.0).expect("few")];
        let is_right = record.record.key.as_deref() == Some(key.as_bytes())
            && record.record.value.as_deref() == value.as_deref().map(str::as_bytes);
        if !is_right {
            return Err(format!("another record at {}", record.offset));
        }
    }
    if log.reader().damage_count() > 0 {
        return Err(format!("damage: {:?}", log.reader().damage()));
    }
    let present: BTreeMap<_, _> =
        table(log).into_iter().filter_map(|(key, value)| value.map(|value| (key, value))).collect();
    if present != trace.table(marks.log_end.0) {
        return Err(format!("{:?}, not {:?}", present.keys(), trace.table(marks.log_end.0).keys()));
    }
    Ok(())
}

/// Without its snapshots, too, a repeat of the producer's last batch is known.
fn knows_the_producer(disk: &SimStorage, trace: &Trace, end: u64) -> Result<(), String> {
    let disk = disk.restart();
    disk.paths().iter().filter(|path| path.ends_with(".snapshot")).for_each(|path| disk.remove(path));
    let (mut log, _) = reopen(&disk)?;
    let sent = trace.appended.iter().take(usize::try_from(end).expect("few")).enumerate();
    let sent: Vec<usize> = sent.filter(|(_, (key, _))| key == "by-producer").map(|(offset, _)| offset).collect();
    for (sequence, offset) in sent.iter().enumerate().rev().take(5) {
        let producer = Some((ProducerId(7), ProducerEpoch(0), Sequence(i32::try_from(sequence).expect("few"))));
        let batch = batch(NewBatch { producer, ..NewBatch::default() }, 0, &[("by-producer", None)]);
        let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
        let appended = log.stage(append, LeaderEpoch(9), Timestamp(0)).map_err(|error| error.to_string())?;
        let is_known =
            matches!(appended, Appended::Duplicate { base_offset, .. } if base_offset == Offset(*offset as u64));
        if !is_known {
            return Err(format!("the batch of {offset} is stored again"));
        }
    }
    Ok(())
}

#[test]
fn the_trace_has_what_it_is_for() {
    let (disk, trace) = cut_after(u64::MAX);
    assert!(!trace.is_cut);
    let (log, _) = reopen(&disk).expect("opens");
    let left = records(&log, 0).len();
    assert!(left < trace.appended.len() / 2, "{left} of {} are left", trace.appended.len());
    assert!(!table(&log).contains_key("gone"), "deleted for good: {:?}", table(&log).keys());
    assert!(table(&log).values().any(Option::is_none), "deleted and still told");
    let seen = |part: &str| (0..400).any(|n| cut_after(n).0.paths().iter().any(|path| path.contains(part)));
    assert!([".cleaned", ".swap-0", ".cleaned-index", ".swap-index"].iter().all(|part| seen(part)));
    assert!(disk.paths().iter().filter(|path| path.ends_with(".log")).count() > 3, "several segments: {disk:?}");
}

#[test]
fn a_power_cut_at_any_change_of_a_compaction_loses_nothing_and_brings_nothing_back() {
    let mut crashes = 0;
    for changes in 0.. {
        let (disk, trace) = cut_after(changes);
        let pending = disk.pending_count();
        let mut plans = vec![CrashPlan::all_lost(), CrashPlan::all_kept()];
        if pending <= 5 {
            plans.extend((0..1 << pending).map(CrashPlan::bits));
        } else {
            plans.extend((0..12).map(|n| CrashPlan::seeded(changes << 20 | n, 512)));
        }
        for (number, plan) in plans.iter().enumerate() {
            crashes += 1;
            holds(&disk.crash(plan), &trace)
                .unwrap_or_else(|error| panic!("cut after {changes} changes, plan {number}: {error}"));
        }
        let killed = disk.restart();
        holds(&killed, &trace).unwrap_or_else(|error| panic!("kill after {changes} changes: {error}"));
        goes_on(&killed, &trace).unwrap_or_else(|error| panic!("compacted after {changes} changes: {error}"));
        if !trace.is_cut {
            break;
        }
    }

    assert!(crashes > 2_000, "a vacuous proof: {crashes}");
}

#[test]
fn a_pass_that_is_cut_after_one_that_was_cut_brings_nothing_back() {
    for changes in (0..).step_by(7) {
        let (first, trace) = cut_after(changes);
        let is_swapping = first.paths().iter().any(|path| path.contains("swap") || path.contains("cleaned"));
        for second in (0..).take_while(|_| is_swapping) {
            let disk = first.restart();
            disk.fail_after(second);
            // By now all that was deleted may go.
            let is_done = reopen(&disk).and_then(|(mut log, _)| compact_all(&mut log, 10_000)).is_ok();
            holds(&disk.restart(), &trace)
                .unwrap_or_else(|error| panic!("cut after {changes}, again after {second}: {error}"));
            if is_done {
                break;
            }
        }
        if !trace.is_cut {
            break;
        }
    }
}

#[test]
fn an_old_index_never_meets_a_new_segment() {
    let mut swaps = 0;
    for changes in 0.. {
        let (disk, trace) = cut_after(changes);
        let disk = disk.restart();
        let paths = disk.paths();
        if let Some(swap) = paths.iter().find(|path| path.contains(".swap-0")) {
            paths.iter().filter(|path| path.contains("cleaned-index")).for_each(|path| disk.remove(path));
            let had_new_index = paths.iter().any(|path| path.contains("swap-index"));
            reopen(&disk).expect("opens");
            let index = format!("{}.index", swap.split('.').next().expect("a name"));
            assert_eq!(disk.paths().contains(&index), had_new_index, "cut after {changes}: {paths:?}");
            swaps += 1;
        }
        if !trace.is_cut {
            break;
        }
    }
    assert!(swaps > 10, "a vacuous proof: {swaps}");
}

#[test]
fn a_recovery_that_is_cut_itself_finishes_the_swap_the_next_time() {
    for changes in 0.. {
        let (first, trace) = cut_after(changes);
        // Where no swap is under way the proofs of recovery hold.
        let is_swapping = first.paths().iter().any(|path| path.contains("swap") || path.contains("cleaned"));
        let crashed =
            first.crash(&[CrashPlan::all_kept(), CrashPlan::seeded(changes, 512)][usize::from(changes % 2 == 0)]);
        for second in (0..).take_while(|_| is_swapping) {
            let disk = crashed.crash(&CrashPlan::all_kept());
            disk.fail_after(second);
            let is_done = reopen(&disk).is_ok();
            for plan in [CrashPlan::all_lost(), CrashPlan::seeded(second, 512)] {
                holds(&disk.crash(&plan), &trace)
                    .unwrap_or_else(|error| panic!("cut after {changes}, again after {second}: {error}"));
            }
            if is_done {
                break;
            }
        }
        if !trace.is_cut {
            break;
        }
    }
}
