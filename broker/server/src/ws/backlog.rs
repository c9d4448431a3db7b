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
    Records(Part),
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
            StreamForm::Json => (topic, Left::Records(Part::new(fetched))),
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
