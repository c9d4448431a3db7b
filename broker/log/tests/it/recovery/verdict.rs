//! What must hold of a log that was opened after a crash, as a function that says what does not.

use std::ops::Range;

use levada_log::{
    Append, Appended, Batch, Damage, LogReader, PartitionLog, PlantedFaults, SequenceCheck, SimStorage, is_derived,
};
use levada_model::{LeaderEpoch, Offset, ProducerId, Timestamp};

use super::trace::{Model, build};
use super::{open, options};

/// Batches that a partition remembers of a producer.
const REMEMBERED: usize = 5;

macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}

/// All that can be read from `from` on in chunks of at most `max_bytes`.
pub(super) fn read_all(
    reader: &LogReader,
    from: Offset,
    end: Offset,
    max_bytes: usize,
) -> Result<(Vec<Batch>, Vec<Damage>), String> {
    let (mut batches, mut gaps) = (Vec::new(), Vec::new());
    let mut at = from;
    while at < end {
        let chunk = reader.read(at, max_bytes, end).map_err(|error| format!("read of {at}: {error}"))?;
        ensure!(chunk.next_offset > at, "a read of {at} below {end} stands still");
        batches.extend(chunk.batches);
        gaps.extend(chunk.gaps);
        at = chunk.next_offset;
    }
    Ok((batches, gaps))
}

/// After a power cut nothing that was synced is lost, nothing is damaged, and what is there is a prefix of what was
/// appended. The disk is taken as the crash left it.
pub(super) fn after_power_cut(disk: &SimStorage, model: &Model, faults: PlantedFaults) -> Result<(), String> {
    let (mut log, recovery) = open(disk, options(), false, faults).map_err(|error| error.to_string())?;
    ensure!(recovery.damage.is_empty(), "a power cut damages nothing: {:?}", recovery.damage);
    let marks = log.marks();
    ensure!(marks.log_end >= model.synced_end, "ends at {}, {} was acknowledged", marks.log_end, model.synced_end);
    ensure!(marks.synced_end == marks.log_end, "what a recovery found is not synced");
    let boundary = model.batches.iter().any(|batch| batch.header().next_offset() == marks.log_end);
    ensure!(boundary || marks.log_end == Offset(0), "{} is the end of no batch", marks.log_end);
    let starts = model.start_least..=model.start_most.max(model.start_least);
    ensure!(starts.contains(&marks.log_start), "starts at {}, not in {starts:?}", marks.log_start);
    holds_all(&log, model)?;
    // A second power cut takes back nothing of what the recovery answered.
    let (again, recovery) = open(&disk.crash(&levada_log::CrashPlan::all_lost()), options(), false, faults)
        .map_err(|error| error.to_string())?;
    ensure!(recovery.damage.is_empty(), "damaged by its own recovery: {:?}", recovery.damage);
    ensure!(again.marks() == marks, "{:?} after {marks:?}", again.marks());
    holds_all(&again, model)?;
    goes_on(&mut log, model)?;
    let (again, recovery) = open(&disk.restart(), options(), false, faults).map_err(|error| error.to_string())?;
    ensure!(recovery.damage.is_empty(), "damaged by what came after: {:?}", recovery.damage);
    ensure!(again.marks() == log.marks(), "{:?} after {:?}", again.marks(), log.marks());
    let (kept, reread) = (log.reader(), again.reader());
    let all = |reader: &LogReader| read_all(reader, marks.log_start, log.marks().log_end, 400);
    ensure!(all(&kept)? == all(&reread)?, "a restart changes what is read");
    Ok(())
}

/// From the log start to its end the log gives exactly the model's batches, by every way to read them.
fn holds_all(log: &PartitionLog, model: &Model) -> Result<(), String> {
    let marks = log.marks();
    let expected = model.between(marks.log_start, marks.log_end);
    let reader = log.reader();
    for max_bytes in [1, 1 << 20] {
        let (batches, gaps) = read_all(&reader, marks.log_start, marks.log_end, max_bytes)?;
        ensure!(gaps.is_empty(), "gaps after a power cut: {gaps:?}");
        ensure!(
            batches == expected,
            "what is read from {} to {} is not what was written",
            marks.log_start,
            marks.log_end
        );
    }
    for batch in &expected {
        let header = batch.header();
        let at = header.base_offset.max(marks.log_start);
        ensure!(reader.epoch_at(at) == Some(header.leader_epoch), "epoch at {at}: {:?}", reader.epoch_at(at));
    }
    Ok(())
}

/// What was kept is recognised when it comes again, what was lost is taken, and both can be read.
fn goes_on(log: &mut PartitionLog, model: &Model) -> Result<(), String> {
    let end = log.marks().log_end;
    for id in producers(model) {
        let of_id: Vec<&Batch> = model.batches.iter().filter(|batch| batch.header().producer_id == Some(id)).collect();
        let kept: Vec<&&Batch> = of_id.iter().filter(|batch| batch.header().base_offset < end).collect();
        for batch in kept.iter().rev().take(REMEMBERED) {
            let base = batch.header().base_offset;
            match restage(log, batch)? {
                Appended::Duplicate { base_offset, .. } => ensure!(base_offset == base, "{base_offset} for {base}"),
                Appended::Stored(_) => return Err(format!("the repeat of {base} by {id} is stored again")),
            }
        }
        if let Some(lost) = of_id.iter().find(|batch| batch.header().base_offset >= end) {
            let stored = matches!(restage(log, lost)?, Appended::Stored(_));
            ensure!(stored, "{} was lost and is taken for a repeat", lost.header().base_offset);
        }
    }
    let batch = build(None, 5, &[b"after".to_vec(), b"the crash".to_vec()]);
    let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
    let epoch = LeaderEpoch(9);
    let appended = log.stage(append, epoch, Timestamp(50)).map_err(|error| error.to_string())?;
    let Appended::Stored(batch) = appended else { return Err("a batch without a producer is no repeat".to_owned()) };
    log.write(Timestamp(50)).map_err(|error| error.to_string())?;
    log.sync().map_err(|error| error.to_string())?;
    log.prepare_ahead();
    let (batches, gaps) = read_all(&log.reader(), end, log.marks().log_end, 1 << 20)?;
    ensure!(gaps.is_empty() && batches.last() == Some(&batch), "what came after the crash is not read back");
    ensure!(batches[0].header().base_offset == end, "the first offset after the crash is not the log end");
    Ok(())
}

/// Stages a batch of the model once more.
fn restage(log: &mut PartitionLog, batch: &Batch) -> Result<Appended, String> {
    let mut bytes = bytes::BytesMut::from(batch.bytes().as_ref());
    let batch = levada_log::BatchBuf::parse(&mut bytes).map_err(|error| error.to_string())?;
    let is_key = batch.header().producer_id.is_some_and(is_derived);
    let check = if is_key { SequenceCheck::Key } else { SequenceCheck::Producer };
    let append = Append { batch, check, expected_offset: None };
    log.stage(append, LeaderEpoch(9), Timestamp(50)).map_err(|error| error.to_string())
}

fn producers(model: &Model) -> Vec<ProducerId> {
    let mut ids: Vec<ProducerId> = model.batches.iter().filter_map(|batch| batch.header().producer_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What damage may cost.
#[derive(Clone, Debug)]
pub(super) enum Loss {
    Nothing,
    /// The batches with these offsets and no others.
    Exactly(Vec<Range<Offset>>),
}

/// After damage to a log whose every batch was synced, what was hit is lost and reported, all else is read as it was,
/// and the log goes on behind its old end.
pub(super) fn after_damage(
    disk: &SimStorage,
    model: &Model,
    trust_clean_marker: bool,
    loss: &Loss,
    faults: PlantedFaults,
) -> Result<(), String> {
    let lost = match loss {
        Loss::Nothing => &[][..],
        Loss::Exactly(lost) => lost,
    };
    let (mut log, _) = open(disk, options(), trust_clean_marker, faults).map_err(|error| error.to_string())?;
    let marks = log.marks();
    ensure!(marks.log_end == model.synced_end, "ends at {}, {} was acknowledged", marks.log_end, model.synced_end);
    // Without the checkpoint, a first segment that is gone is not missed.
    holds_all_but(&log, model, lost)?;
    if lost.is_empty() {
        times_are_right(&log, model)?;
        knows_its_producers(&mut log, model)?;
    }
    let batch = build(None, 5, &[b"after".to_vec()]);
    let append = Append { batch, check: SequenceCheck::Producer, expected_offset: Some(marks.log_end) };
    log.stage(append, LeaderEpoch(1), Timestamp(50)).map_err(|error| error.to_string())?;
    log.write(Timestamp(50)).map_err(|error| error.to_string())?;
    log.sync().map_err(|error| error.to_string())?;
    let (again, _) = open(&disk.restart(), options(), false, faults).map_err(|error| error.to_string())?;
    ensure!(again.marks() == log.marks(), "{:?} after {:?}", again.marks(), log.marks());
    holds_all_but(&again, model, lost)
}

/// All batches but the lost ones are read, from each offset, and the lost ones are reported.
fn holds_all_but(log: &PartitionLog, model: &Model, lost: &[Range<Offset>]) -> Result<(), String> {
    let reader = log.reader();
    let end = model.synced_end;
    let is_lost = |offset: Offset| lost.iter().any(|range| range.contains(&offset));
    let start = log.marks().log_start;
    let expected: Vec<Batch> =
        model.batches.iter().filter(|batch| !is_lost(batch.header().base_offset)).cloned().collect();
    for max_bytes in [300, 1 << 20] {
        let (mut batches, gaps) = read_all(&reader, start, end, max_bytes)?;
        batches.retain(|batch| batch.header().base_offset < end);
        ensure!(batches == expected, "{} batches are read, {} were expected", batches.len(), expected.len());
        let reported = |offset: Offset| gaps.iter().any(|gap| gap.from <= offset && offset < gap.to);
        for offset in (start.0..end.0).map(Offset) {
            ensure!(reported(offset) == is_lost(offset), "{offset}: gaps {gaps:?}, lost {lost:?}");
        }
    }
    let damage = reader.damage();
    for offset in (start.0..end.0).map(Offset) {
        let chunk = reader.read(offset, 1, end).map_err(|error| error.to_string())?;
        let at = damage.iter().any(|damage| damage.from <= offset && offset < damage.to);
        ensure!(at == is_lost(offset), "{offset}: damage {damage:?}, lost {lost:?}");
        match chunk.batches.first().map(Batch::header).filter(|header| header.base_offset <= offset) {
            Some(header) => ensure!(header.next_offset() > offset, "a read of {offset} begins too early"),
            None => ensure!(is_lost(offset) && chunk.gaps[0].from == offset, "a read of {offset} begins too late"),
        }
    }
    Ok(())
}

/// The first record of each time is found where a walk over all of them finds it.
fn times_are_right(log: &PartitionLog, model: &Model) -> Result<(), String> {
    let end = model.synced_end;
    let times: Vec<(Offset, Timestamp)> =
        model.batches.iter().map(|batch| (batch.header().base_offset, batch.header().max_timestamp)).collect();
    let last = times.last().map_or(0, |(_, time)| time.0);
    for time in (0..last + 20).step_by(5).map(Timestamp) {
        let naive = times.iter().find(|(_, of_batch)| *of_batch >= time).copied();
        let found = log.reader().offset_for_time(time, end).map_err(|error| error.to_string())?;
        ensure!(found == naive, "the first record at {time} or later is {naive:?}, not {found:?}");
    }
    Ok(())
}

/// Every batch that was kept is recognised as a repeat.
pub(super) fn knows_its_producers(log: &mut PartitionLog, model: &Model) -> Result<(), String> {
    for id in producers(model) {
        let last = model.batches.iter().rev().find(|batch| batch.header().producer_id == Some(id));
        let last = last.expect("it has one");
        let is_repeat = matches!(restage(log, last)?, Appended::Duplicate { base_offset, .. } if base_offset == last.header().base_offset);
        ensure!(is_repeat, "the last batch of {id} is stored again");
    }
    Ok(())
}
