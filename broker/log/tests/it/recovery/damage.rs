//! Damage to files of a log whose every batch was synced: flipped bits, cut, emptied and missing files. Only what was
//! hit is lost, and it is reported; all else is read, and the log goes on.

use std::ops::Range;

use levada_log::{Append, Batch, CrashPlan, HEADER_BYTES, PlantedFaults, SequenceCheck, SimStorage};
use levada_model::{LeaderEpoch, Offset, Timestamp};

use super::power_cut::soak;
use super::trace::{Model, Operation, Runner, Source, build};
use super::verdict::{Loss, after_damage, read_all};
use super::{DIR, disk, open, options};

/// How a log was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The process was killed.
    Killed,
    /// It was closed, and the marker that says so is trusted.
    Closed,
}

/// A log of four segments with two leader epochs, whose every batch was synced.
pub(super) fn left(left: Left) -> (SimStorage, Model) {
    use Operation::{Maintain, NextEpoch, PrepareAhead, Stage, Sync, Write};
    let disk = disk(512);
    let (log, _) = open(&disk, options(), false, PlantedFaults::default()).expect("opens");
    let mut runner = Runner::new(log);
    let sources = [Source::Nobody, Source::Producer(1), Source::Key(5), Source::Producer(2), Source::Producer(1)];
    for (number, source) in sources.iter().cycle().take(15).enumerate() {
        // A key is used once.
        let source = if number > 5 && *source == Source::Key(5) { Source::Nobody } else { *source };
        runner.run(&[Stage { source, records: 1 + number % 3, value_bytes: 70 }, Write, Sync, PrepareAhead]);
        match number {
            4 => runner.run(&[NextEpoch]),
            12 => runner.run(&[Maintain { wait_ms: 40_000 }]),
            _ => (),
        }
    }
    assert!(!runner.model.is_cut);
    let Runner { log, model, .. } = runner;
    if left == Left::Closed {
        log.close().expect("closes");
    }
    (disk.restart(), model)
}

/// A disk with the same files, of its own.
fn copy(disk: &SimStorage) -> SimStorage {
    disk.crash(&CrashPlan::all_kept())
}

/// Paths of the files of one kind, in order.
pub(super) fn files(disk: &SimStorage, kind: &str) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.ends_with(kind)).collect()
}

/// The first offset of a segment.
fn base_offset(path: &str) -> Offset {
    let name = path.rsplit('/').next().expect("a name");
    Offset(name[..20].parse().expect("digits"))
}

/// Where the batches of a segment lie in it, each with its offsets.
fn places(model: &Model, disk: &SimStorage, path: &str) -> Vec<(Range<u64>, Range<Offset>)> {
    let base = base_offset(path);
    let logs = files(disk, ".log");
    let next = logs.iter().map(|path| base_offset(path)).find(|other| *other > base).unwrap_or(Offset(u64::MAX));
    let mut position = 0;
    let batches = model.batches.iter().map(|batch| batch.header());
    let of_segment = batches.filter(|header| header.base_offset >= base && header.base_offset < next);
    of_segment
        .map(|header| {
            let start = position;
            position += header.size_bytes as u64;
            (start..position, header.base_offset..header.next_offset())
        })
        .collect()
}

fn after(disk: &SimStorage, model: &Model, way: Left, loss: &Loss) -> Result<(), String> {
    after_damage(disk, model, way == Left::Closed, loss, PlantedFaults::default())
}

#[test]
fn an_undamaged_log_loses_nothing() {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        assert!(files(&disk, ".log").len() >= 4 && !files(&disk, ".snapshot").is_empty(), "{disk:?}");
        after(&disk, &model, way, &Loss::Nothing).expect("holds");
    }
}

#[test]
fn a_flipped_bit_in_a_segment_costs_the_batch_that_it_hits_and_no_other() {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        for path in files(&disk, ".log") {
            let places = places(&model, &disk, &path);
            let len = disk.contents(&path).len() as u64;
            for position in 0..len {
                let hit = places.iter().find(|(bytes, _)| bytes.contains(&position));
                let in_head = hit.is_some_and(|(bytes, _)| position - bytes.start < HEADER_BYTES as u64);
                // The head says what the bytes are, so there each bit counts.
                let all_bits = in_head && way == Left::Killed || soak() > 1;
                let one = (position % 8) as u32;
                let bits = if all_bits { 0..8 } else { one..one + 1 };
                for bit in bits {
                    let damaged = copy(&disk);
                    damaged.corrupt(&path, position, 1 << bit);
                    let loss = hit.map_or(Loss::Nothing, |(_, offsets)| Loss::Exactly(vec![offsets.clone()]));
                    after(&damaged, &model, way, &loss)
                        .unwrap_or_else(|error| panic!("{way:?}, {path}, byte {position}, bit {bit}: {error}"));
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_any_other_file_costs_no_record_and_no_producer() {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        for kind in [".index", ".snapshot", "checkpoint"] {
            for path in files(&disk, kind) {
                // Between and behind the checkpoint's slots there is nothing.
                let step = |position: u64| if kind == "checkpoint" && position % 4096 >= 512 { 97 } else { 1 };
                let len = disk.contents(&path).len() as u64;
                let positions = std::iter::successors(Some(0), |at| Some(at + step(*at)));
                for position in positions.take_while(|position| *position < len) {
                    let damaged = copy(&disk);
                    damaged.corrupt(&path, position, 1 << (position % 8));
                    after(&damaged, &model, way, &Loss::Nothing)
                        .unwrap_or_else(|error| panic!("{way:?}, {path}, byte {position}: {error}"));
                }
            }
        }
    }
}

#[test]
fn each_other_file_may_be_missing_empty_or_zeroed() {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        for kind in [".index", ".snapshot", "checkpoint"] {
            for path in files(&disk, kind) {
                let zeros = vec![0; disk.contents(&path).len()];
                let ruin: [&dyn Fn(&SimStorage); 3] =
                    [&|disk| disk.remove(&path), &|disk| disk.overwrite(&path, b""), &|disk| {
                        disk.overwrite(&path, &zeros)
                    }];
                for (number, ruin) in ruin.iter().enumerate() {
                    let damaged = copy(&disk);
                    ruin(&damaged);
                    after(&damaged, &model, way, &Loss::Nothing)
                        .unwrap_or_else(|error| panic!("{way:?}, {path}, ruin {number}: {error}"));
                }
            }
            let damaged = copy(&disk);
            files(&disk, kind).iter().for_each(|path| damaged.remove(path));
            after(&damaged, &model, way, &Loss::Nothing).unwrap_or_else(|error| panic!("{way:?}, no {kind}: {error}"));
        }
        // With nothing but the segments left.
        let damaged = copy(&disk);
        disk.paths().iter().filter(|path| !path.ends_with(".log")).for_each(|path| damaged.remove(path));
        after(&damaged, &model, way, &Loss::Nothing).unwrap_or_else(|error| panic!("{way:?}, segments alone: {error}"));
    }
}

#[test]
fn every_prefix_of_the_newest_segment_keeps_its_whole_batches_and_gives_no_offset_twice() {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        let path = files(&disk, ".log").pop().expect("a segment");
        let bytes = disk.contents(&path);
        let places = places(&model, &disk, &path);
        for len in 0..bytes.len() {
            let damaged = copy(&disk);
            damaged.overwrite(&path, &bytes[..len]);
            let lost = places.iter().filter(|(bytes, _)| bytes.end > len as u64).map(|(_, offsets)| offsets.clone());
            after(&damaged, &model, way, &Loss::Exactly(lost.collect()))
                .unwrap_or_else(|error| panic!("{way:?}, cut to {len}: {error}"));
        }
    }
}

#[test]
fn without_a_checkpoint_every_prefix_of_the_newest_segment_ends_at_its_last_whole_batch() {
    let (disk, model) = left(Left::Killed);
    let path = files(&disk, ".log").pop().expect("a segment");
    let bytes = disk.contents(&path);
    let places = places(&model, &disk, &path);
    for len in 0..bytes.len() {
        let damaged = copy(&disk);
        damaged.overwrite(&path, &bytes[..len]);
        damaged.remove(format!("{DIR}/checkpoint"));
        // The snapshot of the newest segment proves that what lies before it was synced.
        let snapshot = base_offset(files(&disk, ".snapshot").last().expect("a snapshot"));
        let whole = places.iter().filter(|(bytes, _)| bytes.end <= len as u64).map(|(_, offsets)| offsets.end).max();
        let expected = whole.unwrap_or(base_offset(&path)).max(snapshot);
        let (log, recovery) = open(&damaged, options(), false, PlantedFaults::default()).expect("opens");
        assert_eq!(log.marks().log_end, expected, "cut to {len}: {recovery:?}");
    }
}

#[test]
fn any_segment_may_be_missing_or_cut_and_the_others_are_read() {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        for path in files(&disk, ".log") {
            let places = places(&model, &disk, &path);
            let lost = |from: u64| {
                let hit = places.iter().filter(|(bytes, _)| bytes.end > from);
                Loss::Exactly(hit.map(|(_, offsets)| offsets.clone()).collect())
            };
            let missing = copy(&disk);
            missing.remove(&path);
            after(&missing, &model, way, &lost(0)).unwrap_or_else(|error| panic!("{way:?}, no {path}: {error}"));
            let written = places.last().expect("batches").0.end;
            for len in [0, 7, written / 2, written - 7] {
                let cut = copy(&disk);
                cut.overwrite(&path, &disk.contents(&path)[..usize::try_from(len).expect("small")]);
                after(&cut, &model, way, &lost(len)).unwrap_or_else(|error| panic!("{way:?}, {path}, {len}: {error}"));
            }
        }
        let none = copy(&disk);
        files(&disk, ".log").iter().for_each(|path| none.remove(path));
        let all = model.batches.iter().map(|batch| batch.header().base_offset..batch.header().next_offset());
        after(&none, &model, way, &Loss::Exactly(all.collect())).unwrap_or_else(|error| panic!("{way:?}: {error}"));
    }
}

#[test]
fn damage_that_a_reader_met_is_remembered_once_and_forgotten_with_its_records() {
    let (disk, model) = left(Left::Closed);
    let path = files(&disk, ".log").remove(0);
    disk.corrupt(&path, 100, 1);
    let (mut log, _) = open(&disk, options(), true, PlantedFaults::default()).expect("opens");
    let reader = log.reader();
    assert_eq!(reader.damage(), [], "nothing is read at the start");
    let end = log.marks().log_end;
    for _ in 0..3 {
        assert_eq!(reader.read(Offset(0), 1, end).expect("reads").gaps.len(), 1);
    }
    assert_eq!(reader.damage().len(), 1);
    log.truncate_front(Offset(3)).expect("truncates");
    assert_eq!(reader.damage(), []);
    assert_eq!(reader.epoch_at(end), Some(LeaderEpoch(1)));
    assert_eq!(reader.offset_for_time(Timestamp(i64::MAX), end).expect("reads"), None);
    assert!(model.batches.len() > 10);
}

#[test]
fn a_flipped_bit_beyond_the_recovery_point_ends_the_log_there_and_it_goes_on() {
    let disk = disk(512);
    let (log, _) = open(&disk, options(), false, PlantedFaults::default()).expect("opens");
    let mut runner = Runner::new(log);
    for _ in 0..5 {
        runner.run(&[Operation::Stage { source: Source::Producer(1), records: 2, value_bytes: 20 }, Operation::Write]);
    }
    let (disk, model) = (disk.restart(), runner.model);
    let path = files(&disk, ".log").pop().expect("a segment");
    for (bytes, offsets) in places(&model, &disk, &path) {
        for position in bytes {
            for bit in 0..8 {
                let damaged = copy(&disk);
                damaged.corrupt(&path, position, 1 << bit);
                let (mut log, recovery) = open(&damaged, options(), false, PlantedFaults::default()).expect("opens");
                assert_eq!(recovery.damage, [], "nothing was promised");
                let end = log.marks().log_end;
                // A flipped leader epoch may look like a new one; the next batch then contradicts it.
                assert!(end == offsets.start || end == offsets.end, "byte {position}, bit {bit}: ends at {end}");
                let batch = build(None, 0, &[b"after".to_vec()]);
                let append = Append { batch, check: SequenceCheck::Producer, expected_offset: Some(end) };
                log.stage(append, LeaderEpoch(0), Timestamp(0)).expect("taken");
                log.write(Timestamp(0)).expect("writes");
                log.sync().expect("syncs");
                let (again, recovery) =
                    open(&damaged.restart(), options(), false, PlantedFaults::default()).expect("opens");
                assert_eq!((recovery.damage, again.marks()), (vec![], log.marks()));
                let (batches, gaps) = read_all(&again.reader(), Offset(0), end.advance(1), 1 << 20).expect("reads");
                assert_eq!((gaps, batches[..batches.len() - 1].to_vec()), (vec![], kept(&model, end, &batches)));
            }
        }
    }
}

/// The model's batches below `end`; one whose leader epoch has flipped is taken as it was `read`.
fn kept(model: &Model, end: Offset, read: &[Batch]) -> Vec<Batch> {
    let below = model.batches.iter().filter(|batch| batch.header().base_offset < end);
    below
        .zip(read)
        .map(|(written, read)| {
            let only_epoch =
                read.header().crc == written.header().crc && read.header().base_offset == written.header().base_offset;
            if only_epoch { read.clone() } else { written.clone() }
        })
        .collect()
}
