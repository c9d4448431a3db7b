//! Segment files read offline: the scan and the log agree on what is damage.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use levada_log::{
    Append, Batch, BatchBuilder, HEADER_BYTES, LogOptions, NewBatch, SegmentFile, SegmentScan, SequenceCheck, Stretch,
    segment_files,
};
use levada_model::{LeaderEpoch, Offset, Record, Timestamp};
use tempfile::TempDir;

use super::{batch_at, open, options};

/// What a scan of some files found: batches, and damage as place, length and offsets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    batches: Vec<Batch>,
    damage: Vec<(Range<u64>, Option<Offset>, Option<Offset>)>,
    zero_bytes: u64,
}

fn scan(files: &[SegmentFile]) -> Found {
    let mut found = Found::default();
    for file in files {
        let mut scan = SegmentScan::open(file).expect("opens");
        let mut reached = 0;
        while let Some(stretch) = scan.next().expect("reads") {
            let (position, size) = match stretch {
                Stretch::Batch { position, batch } => {
                    let size = batch.bytes().len() as u64;
                    found.batches.push(batch);
                    (position, size)
                }
                Stretch::Damage { position, size_bytes, from, to, detail } => {
                    assert!(!detail.is_empty());
                    found.damage.push((position..position + size_bytes, from, to));
                    (position, size_bytes)
                }
                Stretch::Zeros { position, size_bytes } => {
                    found.zero_bytes += size_bytes;
                    (position, size_bytes)
                }
            };
            assert_eq!(position, reached, "every byte is in one stretch");
            reached += size;
        }
        assert_eq!(reached, fs::metadata(&file.path).expect("a file").len(), "up to the end");
    }
    found
}

/// A log of several small segments and two leader epochs, closed, and its batches.
fn stored(dir: &Path) -> Vec<Batch> {
    let (mut log, _) = open(dir, LogOptions { segment_bytes: 250, ..options() });
    let append = |number: i32| Append {
        batch: batch_at(5, &["a value", "another"][..1 + usize::try_from(number % 2).expect("small")]),
        check: SequenceCheck::Producer,
        expected_offset: None,
    };
    for number in 0..12 {
        log.stage(append(number), LeaderEpoch(3 + number / 7), Timestamp(5)).expect("accepted");
        log.write(Timestamp(5)).expect("writes");
        log.sync().expect("syncs");
    }
    log.close().expect("closes");
    scan(&segment_files(dir).expect("lists")).batches
}

/// Writes bytes into a file, and gives back those that were there.
fn overwrite(path: &Path, position: u64, bytes: &[u8]) -> Vec<u8> {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a segment");
    let mut before = vec![0; bytes.len()];
    file.read_exact_at(&mut before, position).expect("it is there");
    file.write_all_at(bytes, position).expect("writes");
    before
}

/// Batches and gaps as the opened log serves them.
fn served(dir: &Path) -> (Vec<Batch>, Vec<(Offset, Offset)>) {
    let (log, _) = open(dir, options());
    let end = log.marks().log_end;
    let (mut batches, mut gaps, mut at) = (Vec::new(), Vec::new(), Offset(0));
    while at < end {
        let chunk = log.reader().read(at, 1 << 20, end).expect("reads");
        gaps.extend(chunk.gaps.iter().map(|gap| (gap.from, gap.to)));
        batches.extend(chunk.batches);
        at = chunk.next_offset;
    }
    (batches, gaps)
}

fn assert_agreed(dir: &Path) -> Found {
    let found = scan(&segment_files(dir).expect("lists"));
    let lost = found.damage.iter().map(|(_, from, to)| (from.expect("told"), to.expect("told"))).collect::<Vec<_>>();
    assert_eq!((found.batches.clone(), lost), served(dir));
    found
}

#[test]
fn a_whole_log_is_scanned_batch_by_batch() {
    let dir = TempDir::new().expect("a directory");
    let batches = stored(dir.path());
    assert_eq!((batches.len(), batches.last().map(|batch| batch.header().next_offset())), (12, Some(Offset(18))));
    let files = segment_files(dir.path()).expect("lists");
    assert!(files.len() > 3, "the test is about several segments");
    for pair in files.windows(2) {
        assert_eq!(pair[0].end, pair[1].base_offset);
    }
    assert_eq!(files.last().expect("a segment").end, None);
    let found = assert_agreed(dir.path());
    assert_eq!((found.damage, found.zero_bytes), (vec![], 0));
    assert_eq!(segment_files(dir.path().parent().expect("a parent")).expect("lists"), []);
}

#[test]
fn a_flipped_bit_costs_the_batch_that_it_hits_and_no_other() {
    let dir = TempDir::new().expect("a directory");
    let batches = stored(dir.path());
    let files = segment_files(dir.path()).expect("lists");
    for file in &files {
        let held = scan(std::slice::from_ref(file)).batches;
        let mut start = 0;
        for batch in &held {
            let range = start..start + batch.bytes().len() as u64;
            let header = batch.header();
            // Nothing behind the newest segment's last batch tells where its offsets end.
            let is_last = batches.last() == Some(batch);
            for position in range.clone() {
                let bits = if position - start < HEADER_BYTES as u64 { 0..8 } else { 0..1 };
                for bit in bits {
                    let byte = batch.bytes()[usize::try_from(position - start).expect("small")];
                    overwrite(&file.path, position, &[byte ^ 1 << bit]);
                    let mut found = scan(&files);
                    overwrite(&file.path, position, &[byte]);
                    let others: Vec<_> = batches.iter().filter(|other| *other != batch).cloned().collect();
                    let place = format!("{}, byte {position}, bit {bit}", file.path.display());
                    assert_eq!(found.batches, others, "{place}");
                    if is_last && found.damage[0].2.is_none() {
                        found.damage[0].2 = Some(header.next_offset());
                    }
                    let lost = (range.clone(), Some(header.base_offset), Some(header.next_offset()));
                    assert_eq!(found.damage, [lost], "{place}");
                }
            }
            start = range.end;
        }
    }
}

#[test]
fn the_log_serves_what_the_scan_finds_and_skips_what_it_calls_damage() {
    let hurt: [fn(&[SegmentFile]); 5] = [
        |files| drop(overwrite(&files[1].path, 0, &[0xff; HEADER_BYTES])),
        // The first byte of the leader epoch.
        |files| drop(overwrite(&files[0].path, 12, &[1])),
        |files| fs::remove_file(&files[1].path).expect("removes"),
        |files| OpenOptions::new().write(true).open(&files[0].path).and_then(|file| file.set_len(100)).expect("cuts"),
        |files| drop(overwrite(&files[2].path, 20, &[0; 100])),
    ];
    for (number, hurt) in hurt.iter().enumerate() {
        let dir = TempDir::new().expect("a directory");
        stored(dir.path());
        hurt(&segment_files(dir.path()).expect("lists"));
        let found = assert_agreed(dir.path());
        assert_eq!(found.damage.len(), 1, "damage {number}: {found:?}");
    }
}

#[test]
fn a_batch_in_the_value_of_a_damaged_record_is_none_of_the_log() {
    let dir = TempDir::new().expect("a directory");
    let inner = batch_at(1, &["inner"]).stamp(Offset(2), LeaderEpoch(0));
    let outer = Record { value: Some(inner.bytes().clone()), ..Record::default() };
    let (mut log, _) = open(dir.path(), options());
    let mut builder = BatchBuilder::new(NewBatch::default(), 0);
    builder.push(Timestamp(1), &outer);
    let around = builder.finish().expect("no compression, no error");
    for batch in [batch_at(1, &["first"]), around, batch_at(1, &["x", "y"]), batch_at(1, &["last"])] {
        super::append(&mut log, batch, 1);
    }
    log.close().expect("closes");

    let files = segment_files(dir.path()).expect("lists");
    let whole = scan(&files);
    let (start, size) = (whole.batches[0].bytes().len() as u64, whole.batches[1].bytes().len() as u64);
    overwrite(&files[0].path, start, &[0xff; HEADER_BYTES]);
    let found = assert_agreed(dir.path());
    assert_eq!(found.batches, [&whole.batches[..1], &whole.batches[2..]].concat());
    assert_eq!(found.damage, [(start..start + size, Some(Offset(1)), Some(Offset(2)))]);
}

#[test]
fn zeros_are_told_from_damage_and_only_the_newest_segment_may_have_more_to_come() {
    let dir = TempDir::new().expect("a directory");
    let batches = stored(dir.path());
    let files = segment_files(dir.path()).expect("lists");
    let grow = |file: &SegmentFile, by: u64| {
        let file = OpenOptions::new().write(true).open(&file.path).expect("a segment");
        file.set_len(file.metadata().expect("a length").len() + by).expect("grows");
    };
    grow(files.last().expect("a segment"), 5000);
    grow(&files[0], 100);
    let found = scan(&files);
    assert_eq!((found.batches, found.damage, found.zero_bytes), (batches, vec![], 5100));

    let end = files[0].end;
    let length = fs::metadata(&files[0].path).expect("a segment").len();
    overwrite(&files[0].path, length - 1, &[1]);
    assert_eq!(scan(&files).damage, [(length - 100..length, end, end)], "no offset is lost");
}

#[test]
fn a_file_of_another_name_is_scanned_from_the_offset_that_it_begins_with() {
    let dir = TempDir::new().expect("a directory");
    stored(dir.path());
    let files = segment_files(dir.path()).expect("lists");
    let held = scan(&files[2..3]).batches;
    let path = dir.path().join("copy.bin");
    fs::copy(&files[2].path, &path).expect("copies");
    let copy = [SegmentFile { path, base_offset: None, end: None }];
    assert_eq!(scan(&copy).batches, held);

    let size = held[0].bytes().len() as u64;
    overwrite(&copy[0].path, 0, &[0xff; HEADER_BYTES]);
    let found = scan(&copy);
    assert_eq!(found.batches, held[1..]);
    assert_eq!(found.damage, [(0..size, None, Some(held[1].header().base_offset))]);
}

#[test]
fn a_file_of_nothing_but_rubbish_is_one_damage() {
    let dir = TempDir::new().expect("a directory");
    stored(dir.path());
    let newest = segment_files(dir.path()).expect("lists").pop().expect("a segment");
    let length = fs::metadata(&newest.path).expect("a segment").len();
    overwrite(&newest.path, 0, &vec![0xab; usize::try_from(length).expect("small")]);
    let found = scan(std::slice::from_ref(&newest));
    assert_eq!((found.batches, found.damage), (vec![], vec![(0..length, newest.base_offset, None)]));
}
