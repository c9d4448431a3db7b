//! Filters of reads: what was read of one or many partitions goes to a module in few calls, whatever the size of the stored
//! batches, and the records that pass or take the place of others come back where they were.

use std::ops::Range;
use std::vec;

use bytes::Bytes;
use levada_extension::{
    CallBatch, CallRecord, CallSection, EmittedRecord, MalformedRecord, ModuleFault, OutputRoom, Transform, Verdict,
};
use levada_log::{Batch, BatchHeader, RecordRef, RecordSection};
use levada_model::{Offset, PartitionIndex, Record, TimestampType, TopicName, limits};

use super::{FetchError, Fetched, Filtered, FilteredAt, counting};
use crate::RecordFilter;
use crate::heavy::{Work, compute};
use crate::modules::{Front, Turn, judge_front};

/// What is left by a filter is copied where it is at most this part of what the filter was given.
const LITTLE_PART: usize = 4;

/// A part of a read.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// A stored batch; of a filtered read one that cannot be taken apart, which is told in its place.
    Batch(Batch),
    /// What a filter left of one.
    Records(Vec<RecordRef>),
}

/// How much a filtered read may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// As much of it as one call to a module takes.
    pub(crate) fn within_a_call(self) -> Self {
        let Self { records, bytes } = self;
        Self {
            records: records.min(limits::MODULE_CALL_RECORDS_MAX),
            bytes: bytes.min(limits::MODULE_CALL_BYTES_MAX / 2),
        }
    }

    pub(crate) fn is_used_up(self) -> bool {
        self.records == 0 || self.bytes == 0
    }

    /// Takes what a read brought out of it.
    pub(crate) fn take(&mut self, fetched: &Fetched) {
        if !fetched.is_empty() {
            let (records, bytes) = fetched.size();
            // Of the last batch not all may count.
            self.records = self.records.saturating_sub(records.min(fetched.max_records));
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// The part of one of so many that share it.
    pub(crate) fn share(self, among: usize) -> Self {
        Self { records: self.records.div_ceil(among), bytes: self.bytes.div_ceil(among) }
    }

    /// Twice as much, within that.
    pub(crate) fn doubled(self) -> Self {
        let (records, bytes) = (self.records.saturating_mul(2), self.bytes.saturating_mul(2));
        Self { records, bytes }.within_a_call()
    }
}

/// The sections of many reads in one row, and where each belongs.
struct Gathered {
    sections: Vec<CallSection>,
    /// For each read, its pieces in order.
    reads: Vec<Vec<Source>>,
}

/// Where a piece comes from.
enum Source {
    /// The next section.
    Section,
    /// A batch that cannot be taken apart.
    Broken(Batch),
}

/// Filters reads. The outputs are cut to the room that there is, though the first always comes, and to what comes before the
/// first record that the module fails over; a read that is cut says so by its `next_offset`, and reads behind it are left
/// out.
///
/// # Errors
/// [`FetchError::Filter`] when the module has no usable answer for what comes first.
pub(crate) async fn filter(
    by: &RecordFilter,
    reads: Vec<(TopicName, Fetched)>,
    room: Room,
    turn: Turn,
) -> Result<Vec<Fetched>, FetchError> {
    let batches = reads.iter().flat_map(|(_, fetched)| &fetched.batches);
    let bytes = batches.map(counting::unpacking_bytes).fold(0_usize, usize::saturating_add);
    let (mut reads, gathered) = compute(Work::Unpack, bytes, move || {
        let gathered = gather(&reads);
        (reads, gathered)
    })
    .await;
    let Gathered { sections, reads: sources } = gathered;
    let given_bytes: usize = sections.iter().map(|section| section.records.len()).sum();
    let Judged { outputs, stop } = ask(by, sections, room, turn).await?;
    let mut outputs = outputs.into_iter();
    let mut left = Left { room, is_first: true };
    let mut filtered: Vec<Fetched> = Vec::with_capacity(reads.len());
    for ((_, fetched), sources) in reads.drain(..).zip(sources) {
        if left.is_used_up() {
            break;
        }
        filtered.push(put(fetched, sources, &mut outputs, &mut left));
    }
    if let Some(Stop { fault, at }) = stop {
        // A read that begins with what stopped the module brings nothing.
        filtered.pop_if(|last| last.next_offset == last.from && last.gaps.is_empty());
        if filtered.is_empty() {
            return Err(FetchError::Filter { module: by.module.clone(), at: Some(Box::new(at)), fault });
        }
    }
    detach(&mut filtered, given_bytes);
    Ok(filtered)
}

/// Has the module judge the sections.
async fn ask(by: &RecordFilter, sections: Vec<CallSection>, room: Room, turn: Turn) -> Result<Judged, FetchError> {
    if sections.is_empty() {
        return Ok(Judged { outputs: Vec::new(), stop: None });
    }
    let batch = CallBatch { moment: by.modules.moment(None), sections };
    let judged = by.extension.call(&by.modules, move |transform| {
        let judged = judged(transform, &batch, room);
        // With the call, also where nobody waits for its answer any more.
        drop(turn);
        judged
    });
    judged.await.map_err(|fault| FetchError::Filter { module: by.module.clone(), at: None, fault })
}

/// The sections of what was read, without control records.
fn gather(reads: &[(TopicName, Fetched)]) -> Gathered {
    let mut gathered = Gathered { sections: Vec::new(), reads: Vec::with_capacity(reads.len()) };
    for (topic, fetched) in reads {
        let mut sources = Vec::new();
        let offsets = fetched.from..fetched.next_offset;
        for batch in fetched.batches.iter().filter(|batch| !batch.header().is_control()) {
            match section(topic, fetched.partition, batch, offsets.clone()) {
                Some(section) if section.record_count == 0 => (),
                Some(section) => {
                    gathered.sections.push(section);
                    sources.push(Source::Section);
                }
                None => sources.push(Source::Broken(batch.clone())),
            }
        }
        gathered.reads.push(sources);
    }
    gathered
}

/// A stored batch as a module is given it; none if it cannot be taken apart.
pub(crate) fn section(
    topic: &TopicName,
    partition: PartitionIndex,
    batch: &Batch,
    offsets: Range<Offset>,
) -> Option<CallSection> {
    Some(call_section(topic, partition, batch.header(), batch.section(offsets).ok()?))
}

/// The records of a batch with this head, as a module is given them.
pub(crate) fn call_section(
    topic: &TopicName,
    partition: PartitionIndex,
    header: &BatchHeader,
    RecordSection { records, record_count }: RecordSection,
) -> CallSection {
    CallSection {
        topic: topic.clone(),
        partition,
        base_offset: header.base_offset,
        base_timestamp: match header.timestamp_type() {
            TimestampType::CreateTime => header.base_timestamp,
            TimestampType::LogAppendTime => header.max_timestamp,
        },
        timestamp_type: header.timestamp_type(),
        record_count,
        records,
    }
}

/// What a module makes of sections.
struct Judged {
    /// Of each section, up to where it stopped.
    outputs: Vec<Outputs>,
    stop: Option<Stop>,
}

/// Where a module stopped, and why.
struct Stop {
    fault: ModuleFault,
    at: FilteredAt,
}

/// The outputs of a section, input by input; none of inputs that are dropped.
struct Outputs {
    of: Vec<Output>,
    /// The first input that was not judged.
    rest: Option<Offset>,
}

/// The outputs of one input; none where there was no room left.
struct Output {
    offset: Offset,
    records: Option<Vec<RecordRef>>,
}

/// The outputs are made as far as there is room, since little that a module says can mean much.
fn judged(transform: &dyn Transform, batch: &CallBatch, room: Room) -> Result<Judged, ModuleFault> {
    let Front { verdicts, mut fault } = judge_front(transform, batch)?;
    let mut verdicts = verdicts.into_iter().enumerate();
    let mut records = batch.records();
    let mut left = Left { room, is_first: true };
    let mut memory = OutputRoom::default();
    let mut outputs = Vec::with_capacity(batch.sections.len());
    for section in &batch.sections {
        let mut of = Vec::new();
        for record in records.by_ref().take(section.record_count as usize) {
            let record = record?;
            let made = match verdicts.next() {
                // What a filter rejects is none of the reader's.
                Some((_, Verdict::Drop | Verdict::Reject(_))) => continue,
                Some(_) if left.is_used_up() => Ok(None),
                Some((place, verdict)) => {
                    let input = passed(&record, section.timestamp_type)?;
                    match memory.take(place, &input.record, &verdict) {
                        Ok(()) => Ok(Some(instead(input, verdict)).filter(|outputs| left.take(outputs))),
                        // No read would ever come past it.
                        Err(error) if left.is_first => Err(error.into()),
                        Err(_) => {
                            left.close();
                            Ok(None)
                        }
                    }
                }
                None => Err(fault.take().expect("there is a verdict on each record before the fault")),
            };
            match made {
                Ok(records) => of.push(Output { offset: record.offset, records }),
                Err(fault) => {
                    let CallSection { topic, partition, .. } = section;
                    let at = FilteredAt { topic: topic.clone(), partition: *partition, offset: record.offset };
                    outputs.push(Outputs { of, rest: Some(record.offset) });
                    return Ok(Judged { outputs, stop: Some(Stop { fault, at }) });
                }
            }
        }
        outputs.push(Outputs { of, rest: None });
    }
    Ok(Judged { outputs, stop: None })
}

fn passed(record: &CallRecord<'_>, timestamp_type: TimestampType) -> Result<RecordRef, MalformedRecord> {
    let CallRecord { offset, timestamp, .. } = *record;
    Ok(RecordRef { offset, timestamp, timestamp_type, record: record.to_record()? })
}

/// What takes the place of a record, at its offset.
fn instead(input: RecordRef, verdict: Verdict) -> Vec<RecordRef> {
    let RecordRef { offset, timestamp_type, .. } = input;
    let emitted = |emitted: EmittedRecord| {
        let (timestamp, record) = emitted.in_place_of(input.timestamp, &input.record);
        RecordRef { offset, timestamp, timestamp_type, record }
    };
    match verdict {
        Verdict::Emit(records) => records.into_iter().map(emitted).collect(),
        Verdict::Pass => vec![input],
        Verdict::Drop | Verdict::Reject(_) => Vec::new(),
    }
}

/// The room that is left.
struct Left {
    room: Room,
    is_first: bool,
}

impl Left {
    fn is_used_up(&self) -> bool {
        self.room.is_used_up()
    }

    /// Takes room for the outputs of one input, which come together; false if there is none.
    fn take(&mut self, outputs: &[RecordRef]) -> bool {
        let bytes = outputs.iter().map(|output| output.record.size_bytes()).sum();
        let fits = outputs.len() <= self.room.records && bytes <= self.room.bytes;
        if outputs.is_empty() || fits || self.is_first {
            self.room.records = self.room.records.saturating_sub(outputs.len());
            self.room.bytes = self.room.bytes.saturating_sub(bytes);
            self.is_first &= outputs.is_empty();
            return true;
        }
        self.close();
        false
    }

    fn close(&mut self) {
        self.room = Room { records: 0, bytes: 0 };
    }
}

/// Puts the outputs of a read in the place of its batches, as many as there is room for.
fn put(mut fetched: Fetched, sources: Vec<Source>, outputs: &mut vec::IntoIter<Outputs>, left: &mut Left) -> Fetched {
    fetched.batches = Vec::new();
    let mut filtered = Vec::with_capacity(sources.len());
    let mut cut = None;
    for source in sources {
        let Outputs { of, rest } = match source {
            Source::Section => match outputs.next() {
                Some(outputs) => outputs,
                // Behind what stopped the module.
                None => break,
            },
            Source::Broken(batch) => {
                if cut.is_none() {
                    filtered.push(Piece::Batch(batch));
                }
                continue;
            }
        };
        let mut records = Vec::new();
        for output in of {
            match output.records.filter(|outputs| cut.is_none() && left.take(outputs)) {
                Some(outputs) => records.extend(outputs),
                None => {
                    left.close();
                    cut.get_or_insert(output.offset);
                }
            }
        }
        if !records.is_empty() {
            filtered.push(Piece::Records(records));
        }
        if let Some(rest) = rest {
            cut.get_or_insert(rest);
            left.close();
        }
    }
    if let Some(next) = cut {
        fetched.next_offset = next;
        fetched.gaps.retain(|gap| gap.from < next);
        fetched.aborted.retain(|aborted| aborted.first_offset < next);
    }
    fetched.filtered = Some(Filtered(filtered));
    fetched
}

/// Copies what is left where it is little beside what it was taken out of, and would keep alive.
fn detach(filtered: &mut [Fetched], given_bytes: usize) {
    let left_bytes: usize = filtered.iter().map(|fetched| fetched.size().1).sum();
    if left_bytes > given_bytes / LITTLE_PART {
        return;
    }
    let copy = |bytes: &mut Option<Bytes>| {
        if let Some(bytes) = bytes {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    };
    let pieces =
        filtered.iter_mut().filter_map(|fetched| fetched.filtered.as_mut()).flat_map(|filtered| &mut filtered.0);
    for piece in pieces {
        let Piece::Records(records) = piece else { continue };
        for Record { key, value, headers } in records.iter_mut().map(|record| &mut record.record) {
            copy(key);
            copy(value);
            headers.iter_mut().for_each(|header| copy(&mut header.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use crc_fast::CrcAlgorithm::Crc32Iscsi;
    use levada_extension::{Moment, Part, Verdicts};
    use levada_log::{BatchBuilder, NewBatch};
    use levada_model::{Header, LeaderEpoch, Timestamp};

    use super::*;

    struct All;

    impl Transform for All {
        fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
            Ok(Verdicts::Each(vec![Verdict::Pass; batch.record_count()]))
        }
    }

    /// Says a byte a record and means a hundred of them.
    struct Hundredfold;

    impl Transform for Hundredfold {
        fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
            let same =
                EmittedRecord { key: Part::Input, value: Part::Input, headers: Part::Input, timestamp: Part::Input };
            Ok(Verdicts::Each(vec![Verdict::Emit(vec![same; 100]); batch.record_count()]))
        }
    }

    #[test]
    fn no_more_is_made_of_records_than_there_is_room_for() {
        let headers = vec![Header { name: "a".to_owned(), value: None }; 1_000];
        let records = vec![(Timestamp(1), Record { headers, ..Record::default() }); 50];
        let topic = TopicName::new("t").expect("a name");
        let section = CallSection::unstored(topic, PartitionIndex(0), &records);
        let call = CallBatch { moment: Moment { time: Timestamp(1), seed: 0 }, sections: vec![section] };
        let made = |room: Room| {
            let outputs = judged(&Hundredfold, &call, room).expect("it answers").outputs;
            assert_eq!(outputs[0].of.len(), 50, "each is told of");
            let made = outputs[0].of.iter().take_while(|output| output.records.is_some()).count();
            assert!(outputs[0].of[made..].iter().all(|output| output.records.is_none()));
            made
        };
        assert_eq!(made(Room { records: 250, bytes: usize::MAX }), 2);
        assert_eq!(made(Room { records: 1, bytes: 1 }), 1, "the first always comes");
        // Each takes a thousand bytes of room, and far more of memory.
        let made = made(Room { records: usize::MAX, bytes: usize::MAX });
        assert!((1..10).contains(&made), "{made}");
    }

    fn batch(base: u64) -> Batch {
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        for _ in 0..2 {
            builder.push(Timestamp(1), &Record { value: Some("v".into()), ..Record::default() });
        }
        builder.finish().expect("nothing to compress").stamp(Offset(base), LeaderEpoch(0))
    }

    /// The same, said to be packed.
    fn broken(base: u64) -> Batch {
        let mut bytes = BytesMut::from(&batch(base).bytes()[..]);
        bytes[22] |= 4;
        let crc = u32::try_from(crc_fast::checksum(Crc32Iscsi, &bytes[21..])).expect("32 bits");
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        Batch::parse(&mut Bytes::from(bytes)).expect("its checksum is right")
    }

    #[test]
    fn a_batch_that_cannot_be_taken_apart_is_told_in_its_place() {
        let fetched = Fetched {
            partition: PartitionIndex(0),
            batches: vec![batch(0), broken(2), batch(4)],
            filtered: None,
            aborted: Vec::new(),
            from: Offset(1),
            max_records: 10,
            gaps: Vec::new(),
            next_offset: Offset(6),
            high_watermark: Offset(6),
            last_stable_offset: Offset(6),
            log_start_offset: Offset(0),
            leader_epoch: LeaderEpoch(0),
        };
        let topic = TopicName::new("t").expect("a name");
        let Gathered { sections, mut reads } = gather(&[(topic, fetched.clone())]);
        let call = CallBatch { moment: Moment { time: Timestamp(1), seed: 0 }, sections };
        let room = Room { records: 10, bytes: 100 };
        let mut outputs = judged(&All, &call, room).expect("it answers").outputs.into_iter();
        let mut left = Left { room, is_first: true };
        let mut filtered = put(fetched, reads.pop().expect("one read"), &mut outputs, &mut left);
        let records: Vec<_> = filtered.take_records().map(|record| record.map(|record| record.offset.0).ok()).collect();
        assert_eq!(records, [Some(1), None, Some(4), Some(5)]);
    }
}
