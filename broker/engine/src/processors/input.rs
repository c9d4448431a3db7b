//! What a processor has read of a partition, as its steps are given it: without control records, and with the time that its
//! document asks for.

use std::collections::BTreeMap;
use std::ops::Range;

use levada_extension::{CallBatch, CallRecord, CallSection, JsonPointer, Moment};
use levada_model::{Offset, PartitionIndex, Timestamp, TopicName};

use crate::Fetched;
use crate::fetch::{section, unpacking_bytes};
use crate::heavy::{Work, compute};

/// Records of one partition.
pub(super) struct Input {
    /// Perhaps without a section.
    pub(super) batch: CallBatch,
    /// Where to go on behind them.
    pub(super) next: Offset,
    /// Records that have no time where it should be; they are not in the batch.
    pub(super) timeless: Vec<Offset>,
    /// Offsets on the way that are lost to damage.
    pub(super) gaps: Vec<Range<Offset>>,
    /// The offsets of a stored batch at `next` that cannot be taken apart.
    pub(super) broken: Option<Range<Offset>>,
    /// The stored times of the records of the batch, where theirs are others.
    stored_times: BTreeMap<Offset, Timestamp>,
}

impl Input {
    /// Of a read, up to an offset.
    pub(super) async fn of(
        topic: &TopicName,
        fetched: Fetched,
        until: Option<Offset>,
        moment: Moment,
        timestamp: Option<&JsonPointer>,
    ) -> Self {
        let bytes = fetched.batches.iter().map(unpacking_bytes).fold(0_usize, usize::saturating_add);
        let (topic, timestamp) = (topic.clone(), timestamp.cloned());
        let gather = move || {
            let next = until.map_or(fetched.next_offset, |until| until.min(fetched.next_offset));
            let gaps = fetched.gaps.iter().map(|gap| gap.from..gap.to).collect();
            let batch = CallBatch { moment, sections: Vec::new() };
            let (timeless, stored_times) = (Vec::new(), BTreeMap::new());
            let mut input = Self { batch, next, timeless, gaps, broken: None, stored_times };
            input.gather(&topic, &fetched, timestamp.as_ref());
            input
        };
        compute(Work::Unpack, bytes, gather).await
    }

    /// The records of the batch.
    pub(super) fn records(&self) -> impl Iterator<Item = CallRecord<'_>> {
        self.batch.records().filter_map(Result::ok)
    }

    /// The offset of the first record, and of the one in the middle if there are several; none where one cannot be taken
    /// apart.
    pub(super) fn first_and_middle(&self) -> Option<(Offset, Option<Offset>)> {
        let offsets: Vec<_> = self.records().map(|record| record.offset).collect();
        let (first, middle) = (*offsets.first()?, offsets[offsets.len() / 2]);
        (offsets.len() == self.batch.record_count()).then(|| (first, Some(middle).filter(|middle| *middle > first)))
    }

    /// The time that a record is stored with.
    pub(super) fn stored_time(&self, record: &CallRecord<'_>) -> Timestamp {
        self.stored_times.get(&record.offset).copied().unwrap_or(record.timestamp)
    }

    fn gather(&mut self, topic: &TopicName, fetched: &Fetched, timestamp: Option<&JsonPointer>) {
        let offsets = fetched.from..self.next;
        for batch in fetched.batches.iter().filter(|batch| !batch.header().is_control()) {
            let header = batch.header();
            if header.base_offset >= offsets.end {
                break;
            }
            let Some(section) = section(topic, fetched.partition, batch, offsets.clone()) else {
                self.next = header.base_offset.max(fetched.from);
                self.broken = Some(self.next..header.next_offset());
                break;
            };
            match timestamp {
                _ if section.record_count == 0 => (),
                None => self.batch.sections.push(section),
                Some(pointer) => self.gather_timed(topic, fetched.partition, section, pointer),
            }
        }
    }

    /// Takes in a section with the times that the values say.
    fn gather_timed(
        &mut self,
        topic: &TopicName,
        partition: PartitionIndex,
        section: CallSection,
        pointer: &JsonPointer,
    ) {
        let batch = CallBatch { moment: self.batch.moment, sections: vec![section] };
        let mut timed = Vec::new();
        for record in batch.records().filter_map(Result::ok) {
            let time = record.value.and_then(|value| time_of(pointer.find(value)?));
            match (time, record.to_record()) {
                (Some(time), Ok(taken)) => {
                    self.stored_times.insert(record.offset, record.timestamp);
                    timed.push((record.offset, time, taken));
                }
                _ => self.timeless.push(record.offset),
            }
        }
        if !timed.is_empty() {
            self.batch.sections.push(CallSection::at_offsets(topic.clone(), partition, &timed));
        }
    }
}

/// The time that JSON text says: a number of milliseconds since 1970, or a text of RFC 3339.
fn time_of(json: &str) -> Option<Timestamp> {
    if json.starts_with('"') {
        let text: String = serde_json::from_str(json).ok()?;
        return Some(Timestamp(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()));
    }
    json.parse().ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_or_rfc_3339() {
        assert_eq!(time_of("1700000000123"), Some(Timestamp(1_700_000_000_123)));
        assert_eq!(time_of(r#""2023-11-14T22:13:20.123Z""#), Some(Timestamp(1_700_000_000_123)));
        assert_eq!(time_of(r#""2023-11-14T23:13:20.123+01:00""#), Some(Timestamp(1_700_000_000_123)));
        for none in ["1.5", "true", "null", r#""soon""#, "{}", "99999999999999999999"] {
            assert_eq!(time_of(none), None, "{none}");
        }
    }
}
