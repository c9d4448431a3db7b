//! What a processor has read of a partition, as its steps are given it: without control records, and with the time that its
//! document asks for.

use levada_extension::{CallBatch, CallSection, JsonPointer, Moment};
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
    /// Records that have no time where it should be.
    pub(super) skipped: u64,
    /// A stored batch there that cannot be taken apart.
    pub(super) is_broken: bool,
}

impl Input {
    /// Of a read.
    pub(super) async fn of(
        topic: &TopicName,
        fetched: Fetched,
        moment: Moment,
        timestamp: Option<&JsonPointer>,
    ) -> Self {
        let bytes = fetched.batches.iter().map(unpacking_bytes).fold(0_usize, usize::saturating_add);
        let (topic, timestamp) = (topic.clone(), timestamp.cloned());
        compute(Work::Unpack, bytes, move || gather(&topic, &fetched, moment, timestamp.as_ref())).await
    }

    /// Highest time of the records.
    pub(super) fn latest(batch: &CallBatch) -> Option<Timestamp> {
        batch.records().filter_map(Result::ok).map(|record| record.timestamp).max()
    }

    /// The offset of the first record.
    pub(super) fn first_offset(batch: &CallBatch) -> Option<Offset> {
        Some(batch.records().next()?.ok()?.offset)
    }
}

fn gather(topic: &TopicName, fetched: &Fetched, moment: Moment, timestamp: Option<&JsonPointer>) -> Input {
    let (mut sections, mut next, mut skipped, mut is_broken) = (Vec::new(), fetched.next_offset, 0, false);
    let offsets = fetched.from..fetched.next_offset;
    for batch in fetched.batches.iter().filter(|batch| !batch.header().is_control()) {
        let Some(section) = section(topic, fetched.partition, batch, offsets.clone()) else {
            (next, is_broken) = (batch.header().base_offset.max(fetched.from), true);
            break;
        };
        match timestamp {
            _ if section.record_count == 0 => (),
            None => sections.push(section),
            Some(pointer) => {
                let (timed, without) = with_time(topic, fetched.partition, section, pointer);
                sections.extend(timed);
                skipped += without;
            }
        }
    }
    Input { batch: CallBatch { moment, sections }, next, skipped, is_broken }
}

/// The section with the times that the values say, and how many say none.
fn with_time(
    topic: &TopicName,
    partition: PartitionIndex,
    section: CallSection,
    pointer: &JsonPointer,
) -> (Option<CallSection>, u64) {
    let count = u64::from(section.record_count);
    let batch = CallBatch { moment: Moment { time: Timestamp(0), seed: 0 }, sections: vec![section] };
    let records = batch.records().filter_map(|record| {
        let record = record.ok()?;
        let time = time_of(pointer.find(record.value?)?)?;
        Some((record.offset, time, record.to_record().ok()?))
    });
    let records: Vec<_> = records.collect();
    let skipped = count - records.len() as u64;
    let is_empty = records.is_empty();
    ((!is_empty).then(|| CallSection::at_offsets(topic.clone(), partition, &records)), skipped)
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
