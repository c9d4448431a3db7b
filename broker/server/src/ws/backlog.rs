//! What a subscription has read and not sent yet, and how it becomes frames.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use levada_api::{FrameId, Gap, GapCause, Rendering, ServerFrame, SkipCause, StreamForm, StreamGap, ValueForm};
use levada_engine::Fetched;
use levada_log::{Batch, RecordsError};
use levada_model::{Offset, PartitionIndex, TopicName};
use serde::Serialize;

use super::allowance::Allowance;
use super::socket::Outgoing;
use crate::read::{Front, PIECE_BYTES, Part, gaps, new_piece, write_record};

/// A read of one partition of the topic of this number.
pub(super) struct Read {
    pub(super) topic: usize,
    pub(super) fetched: Fetched,
}

impl Read {
    /// First offset that it is about: a record's, or that of a gap before it.
    pub(super) fn begin(&self) -> Offset {
        begin(&self.fetched)
    }
}

/// Where a subscription's client stands.
pub(super) trait Places {
    /// Moves one partition's position.
    fn moved(&mut self, topic: usize, partition: PartitionIndex, next: Offset);

    /// All positions as text.
    fn cursor(&self) -> String;
}

/// Reads on their way into frames.
pub(super) struct Backlog {
    id: FrameId,
    topics: Vec<TopicName>,
    parts: VecDeque<(usize, Left)>,
    form: StreamForm,
}

/// What is left of a read.
enum Left {
    Records(Box<Part>),
    Batches(Batches),
}

impl Left {
    fn partition(&self) -> PartitionIndex {
        match self {
            Self::Records(part) => part.partition,
            Self::Batches(batches) => batches.partition,
        }
    }
}

/// A frame that is whole but for its marks.
enum Frame {
    Gap(StreamGap),
    Records(Vec<u8>),
    Batches { topic: usize, partition: PartitionIndex, next_offset: Offset, batches: Vec<Batch> },
}

impl Backlog {
    pub(super) fn new(id: FrameId, form: StreamForm) -> Self {
        Self { id, topics: Vec::new(), parts: VecDeque::new(), form }
    }

    /// Gives a topic the next number.
    pub(super) fn add_topic(&mut self, topic: TopicName) {
        self.topics.push(topic);
    }

    /// How many topics have numbers.
    pub(super) fn topics(&self) -> usize {
        self.topics.len()
    }

    /// Drops what is left of partitions that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&TopicName, PartitionIndex) -> bool) {
        let topics = &self.topics;
        self.parts.retain(|(topic, left)| keep(&topics[*topic], left.partition()));
    }

    /// Puts reads behind what there is.
    pub(super) fn push(&mut self, reads: Vec<Read>) {
        let left = |Read { topic, fetched }| match self.form {
            StreamForm::Json => (topic, Left::Records(Box::new(Part::new(fetched)))),
            StreamForm::Batches => (topic, Left::Batches(Batches::new(fetched))),
        };
        self.parts.extend(reads.into_iter().map(left));
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Offsets that are left.
    pub(super) fn left(&self) -> u64 {
        let left = |(_, part): &(usize, Left)| match part {
            Left::Records(part) => part.left(),
            Left::Batches(batches) => batches.left(),
        };
        self.parts.iter().map(left).sum()
    }

    /// Whether a gap comes next, which needs no credit.
    pub(super) fn begins_with_gap(&mut self) -> bool {
        match self.parts.front_mut() {
            Some((_, Left::Records(part))) => matches!(part.front(), Ok(Front::Gap(_))),
            Some((_, Left::Batches(batches))) => batches.gap().is_some(),
            None => false,
        }
    }

    /// The next frame that may be sent: a gap, or as many records as fit and are allowed. None where nothing is left, or
    /// nothing allowed. `lag` is that behind all that was read.
    ///
    /// # Errors
    /// Where a stored batch cannot be taken apart.
    pub(super) fn next(
        &mut self,
        allowance: &mut Allowance,
        places: &mut impl Places,
        lag: u64,
    ) -> Result<Option<Outgoing>, RecordsError> {
        let frame = match self.form {
            StreamForm::Json => self.next_records(allowance, places)?,
            StreamForm::Batches => self.next_batches(allowance, places),
        };
        let Some(frame) = frame else { return Ok(None) };
        let lag = lag + self.left();
        Ok(Some(match frame {
            Frame::Gap(gap) => ServerFrame::Gap(gap).to_json().into(),
            Frame::Records(mut out) => {
                out.extend_from_slice(b"],\"cursor\":\"");
                out.extend_from_slice(places.cursor().as_bytes());
                out.extend_from_slice(format!("\",\"lag\":{lag}}}").as_bytes());
                out.into()
            }
            Frame::Batches { topic, partition, next_offset, batches } => {
                let header = BatchesHeader {
                    kind: "records",
                    id: &self.id,
                    topic: self.topics[topic].as_str(),
                    partition: partition.0,
                    next_offset: next_offset.0,
                    cursor: places.cursor(),
                    lag,
                };
                Outgoing::Binary(header.before(&batches))
            }
        }))
    }

    fn next_records(
        &mut self,
        allowance: &mut Allowance,
        places: &mut impl Places,
    ) -> Result<Option<Frame>, RecordsError> {
        let rendering = Rendering { form: ValueForm::Auto, one_line: false };
        let mut frame = RecordsFrame::default();
        while let Some((topic, Left::Records(part))) = self.parts.front_mut() {
            let (topic, partition) = (*topic, part.partition);
            match part.front()? {
                Front::End => {
                    places.moved(topic, partition, part.pass());
                    self.parts.pop_front();
                }
                Front::Gap(_) if !frame.is_empty() => break,
                Front::Gap(gap) => {
                    let gap = told(&self.id, &self.topics[topic], gap);
                    places.moved(topic, partition, part.pass());
                    return Ok(Some(Frame::Gap(gap)));
                }
                Front::Record(_) if !allowance.is_open() => break,
                Front::Record(record) => {
                    let start = frame.begin(&self.id);
                    write_record(&mut frame.out, Some(&self.topics[topic]), partition, record, rendering);
                    if !allowance.spend(1, (frame.out.len() - start) as u64, frame.count == 0) {
                        frame.take_back(start);
                        break;
                    }
                    frame.count += 1;
                    places.moved(topic, partition, part.pass());
                    // Behind the last record of a read there may still be its end, which needs no room.
                    if frame.out.len() >= PIECE_BYTES && !matches!(part.front()?, Front::End) {
                        break;
                    }
                }
            }
        }
        Ok(if frame.is_empty() { None } else { Some(Frame::Records(frame.out)) })
    }

    fn next_batches(&mut self, allowance: &mut Allowance, places: &mut impl Places) -> Option<Frame> {
        let mut sent = Vec::new();
        let mut sent_bytes = 0;
        loop {
            let (topic, Left::Batches(left)) = self.parts.front_mut()? else { unreachable!("one form a subscription") };
            let (topic, partition) = (*topic, left.partition);
            if sent.is_empty()
                && let Some(gap) = left.gap()
            {
                let gap = told(&self.id, &self.topics[topic], gap);
                left.gaps.pop_front();
                left.at = Offset(gap.to);
                places.moved(topic, partition, left.at);
                return Some(Frame::Gap(gap));
            }
            if left.gap().is_none()
                && sent_bytes < PIECE_BYTES
                && let Some(batch) = left.batches.front()
                && allowance.spend(u64::from(batch.header().record_count), batch.bytes().len() as u64, sent.is_empty())
            {
                sent_bytes += batch.bytes().len();
                left.at = batch.header().next_offset();
                sent.extend(left.batches.pop_front());
                continue;
            }
            let is_over = left.gap().is_none() && left.batches.is_empty();
            let next_offset = if is_over { left.at.max(left.next_offset) } else { left.at };
            places.moved(topic, partition, next_offset);
            if is_over {
                self.parts.pop_front();
            }
            match (sent.is_empty(), is_over) {
                (false, _) => return Some(Frame::Batches { topic, partition, next_offset, batches: sent }),
                (true, true) => {}
                (true, false) => return None,
            }
        }
    }
}

/// A `records` frame that is being written.
#[derive(Default)]
struct RecordsFrame {
    out: Vec<u8>,
    count: usize,
}

impl RecordsFrame {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes what stands before the next record; where that begins.
    fn begin(&mut self, id: &FrameId) -> usize {
        if self.count == 0 {
            self.out = new_piece();
            self.out.extend_from_slice(b"{\"type\":\"records\",\"id\":");
            serde_json::to_writer(&mut self.out, id).expect("an id is plain data");
            self.out.extend_from_slice(b",\"records\":[");
        } else {
            self.out.push(b',');
        }
        self.out.len()
    }

    /// Takes the record that begins there back, and the comma before it.
    fn take_back(&mut self, start: usize) {
        self.out.truncate(start - usize::from(self.count > 0));
    }
}

/// What stands before the batches of a binary frame.
#[derive(Serialize)]
struct BatchesHeader<'b> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'b FrameId,
    topic: &'b str,
    partition: u32,
    next_offset: u64,
    cursor: String,
    lag: u64,
}

impl BatchesHeader<'_> {
    /// The whole frame: the header's length (32 bits, big-endian), the header, the batches.
    fn before(&self, batches: &[Batch]) -> Bytes {
        let header = serde_json::to_vec(self).expect("a header is plain data");
        let mut out =
            BytesMut::with_capacity(4 + header.len() + batches.iter().map(|it| it.bytes().len()).sum::<usize>());
        out.put_u32(u32::try_from(header.len()).expect("a header is short"));
        out.put_slice(&header);
        batches.iter().for_each(|batch| out.put_slice(batch.bytes()));
        out.freeze()
    }
}

/// Batches of one partition, and the gaps between them.
struct Batches {
    partition: PartitionIndex,
    batches: VecDeque<Batch>,
    gaps: VecDeque<Gap>,
    at: Offset,
    next_offset: Offset,
}

impl Batches {
    fn new(fetched: Fetched) -> Self {
        let (partition, at, gaps) = (fetched.partition, begin(&fetched), gaps(&fetched).collect());
        // The last batch comes whole, also where not all of its records count.
        let behind = fetched.batches.last().map_or(Offset(0), |batch| batch.header().next_offset());
        let next_offset = fetched.next_offset.max(behind);
        Self { partition, batches: fetched.batches.into(), gaps, at, next_offset }
    }

    /// The gap that comes next, if one does.
    fn gap(&self) -> Option<&Gap> {
        let until = self.batches.front().map_or(self.next_offset, |batch| batch.header().base_offset);
        self.gaps.front().filter(|gap| gap.to <= until.0.max(self.at.0))
    }

    fn left(&self) -> u64 {
        self.next_offset.0.saturating_sub(self.at.0)
    }
}

fn begin(fetched: &Fetched) -> Offset {
    fetched.gaps.first().map_or(fetched.from, |gap| fetched.from.min(gap.from))
}

fn told(id: &FrameId, topic: &TopicName, gap: &Gap) -> StreamGap {
    let cause = match gap.cause {
        GapCause::Removed => SkipCause::Retention,
        GapCause::Damaged => SkipCause::Damage,
    };
    let topic = topic.as_str().to_owned();
    StreamGap { id: id.clone(), topic, partition: gap.partition, from: Some(gap.from), to: gap.to, cause }
}

#[cfg(test)]
mod tests {
    use levada_api::Credit;
    use levada_log::{BatchBuilder, Damage, NewBatch};
    use levada_model::{LeaderEpoch, Record, Timestamp};
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// What a client sees of one partition: its position, and nothing else.
    struct Place(u64);

    impl Places for Place {
        fn moved(&mut self, topic: usize, partition: PartitionIndex, next: Offset) {
            assert_eq!((topic, partition), (0, PartitionIndex(0)));
            assert!(next.0 >= self.0, "positions only go on");
            self.0 = next.0;
        }

        fn cursor(&self) -> String {
            self.0.to_string()
        }
    }

    /// A stretch of a log: lost offsets, then records of these sizes in one batch.
    #[derive(Clone, Debug)]
    struct Stretch {
        lost: u64,
        sizes: Vec<usize>,
    }

    fn any_log() -> impl Strategy<Value = Vec<Stretch>> {
        let sizes = prop::collection::vec(prop_oneof![9 => 0..200_usize, 1 => 30_000..50_000_usize], 1..8);
        let lost = prop_oneof![4 => Just(0_u64), 1 => 1..5_u64];
        prop::collection::vec((lost, sizes).prop_map(|(lost, sizes)| Stretch { lost, sizes }), 0..6)
    }

    fn any_credits() -> impl Strategy<Value = Vec<Credit>> {
        let grant = prop_oneof![
            (0..6_u64).prop_map(|n| Credit { records: Some(n), bytes: None }),
            (0..60_000_u64).prop_map(|n| Credit { records: None, bytes: Some(n) }),
            ((0..6_u64), (0..60_000_u64)).prop_map(|(n, b)| Credit { records: Some(n), bytes: Some(b) }),
        ];
        prop::collection::vec(grant, 0..12)
    }

    fn fetched(log: &[Stretch]) -> Fetched {
        let (mut at, mut batches, mut gaps) = (0, Vec::new(), Vec::new());
        for Stretch { lost, sizes } in log {
            if *lost > 0 {
                gaps.push(Damage { from: Offset(at), to: Offset(at + lost) });
                at += lost;
            }
            let mut builder = BatchBuilder::new(NewBatch::default(), 0);
            for size in sizes {
                let value = Some(Bytes::from(format!("\"{}\"", "x".repeat(*size))));
                builder.push(Timestamp(1), &Record { key: None, value, headers: Vec::new() });
            }
            let built = builder.finish().expect("nothing is compressed");
            batches.push(built.stamp(Offset(at), LeaderEpoch(0)));
            at += sizes.len() as u64;
        }
        Fetched {
            partition: PartitionIndex(0),
            batches,
            from: Offset(0),
            max_records: usize::MAX,
            gaps,
            next_offset: Offset(at),
            high_watermark: Offset(at),
            last_stable_offset: Offset(at),
            log_start_offset: Offset(0),
            leader_epoch: LeaderEpoch(0),
        }
    }

    /// Offsets that a frame tells, each with whether it is there.
    fn told_by(frame: &Outgoing) -> (Vec<(u64, bool)>, usize) {
        let number = |value: &Value| value.as_u64().expect("a number");
        match frame {
            Outgoing::Text(text) => {
                let frame: Value = serde_json::from_slice(text).expect("JSON");
                match frame["records"].as_array() {
                    Some(records) => (records.iter().map(|it| (number(&it["offset"]), true)).collect(), text.len()),
                    None => ((number(&frame["from"])..number(&frame["to"])).map(|it| (it, false)).collect(), 0),
                }
            }
            Outgoing::Binary(bytes) => {
                let mut rest = bytes.clone();
                let header = rest.split_to(4);
                let header = u32::from_be_bytes(header[..].try_into().expect("four bytes"));
                let _: Value = serde_json::from_slice(&rest.split_to(header as usize)).expect("JSON");
                let mut offsets = Vec::new();
                while !rest.is_empty() {
                    let head = *Batch::parse(&mut rest).expect("a batch").header();
                    offsets.extend((head.base_offset.0..head.next_offset().0).map(|it| (it, true)));
                }
                (offsets, bytes.len())
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_is_granted_every_offset_is_told_once_and_in_order(
            log in any_log(),
            credits in any_credits(),
            form in prop_oneof![Just(StreamForm::Json), Just(StreamForm::Batches)],
        ) {
            let fetched = fetched(&log);
            let end = fetched.next_offset.0;
            let largest = log.iter().flat_map(|it| &it.sizes).max().map_or(0, |size| size + 1_000);
            let whole_batch = log.iter().map(|it| it.sizes.iter().sum::<usize>() + 1_000).max().unwrap_or(0);
            let mut backlog = Backlog::new(FrameId::Number(1), form);
            backlog.add_topic(TopicName::new("t").expect("a name"));
            if end > 0 {
                backlog.push(vec![Read { topic: 0, fetched }]);
            }
            let (mut allowance, mut place, mut told, mut granted) = (Allowance::default(), Place(0), Vec::new(), 0_u64);
            let all = Credit { records: Some(u64::MAX / 2), bytes: Some(u64::MAX / 2) };
            for (step, credit) in credits.iter().chain([&all]).enumerate() {
                allowance.add(*credit);
                granted += credit.records.unwrap_or(0);
                let named = credits[..credits.len().min(step + 1)].iter().all(|it| it.records.is_some());
                while let Some(frame) = backlog.next(&mut allowance, &mut place, 0).expect("sound") {
                    let (offsets, bytes) = told_by(&frame);
                    prop_assert!(bytes <= PIECE_BYTES + largest.max(whole_batch), "{bytes}");
                    prop_assert_eq!(backlog.left(), end - place.0);
                    told.extend(offsets);
                }
                let sent = told.iter().filter(|(_, is_there)| *is_there).count() as u64;
                // A batch comes whole.
                let slack = if form == StreamForm::Batches { 7 } else { 0 };
                prop_assert!(!named || credits.is_empty() || sent <= granted.saturating_add(slack * granted.min(20)));
            }
            prop_assert!(backlog.is_empty() && place.0 == end);
            let offsets: Vec<u64> = told.iter().map(|(offset, _)| *offset).collect();
            prop_assert_eq!(offsets, (0..end).collect::<Vec<_>>());
            let mut expected = Vec::new();
            for Stretch { lost, sizes } in &log {
                expected.extend((0..*lost).map(|_| false));
                expected.extend(sizes.iter().map(|_| true));
            }
            prop_assert_eq!(told.into_iter().map(|(_, is_there)| is_there).collect::<Vec<_>>(), expected);
        }
    }
}
