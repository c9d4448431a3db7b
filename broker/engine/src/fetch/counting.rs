//! Which records of the batches that were read count, and where to go on behind them. Offsets are dense in what producers
//! send; where a log was compacted they are not, and a batch may hold any part of its records, or none.

use levada_log::Batch;
use levada_model::Offset;

/// The batches that hold the first `max_records` records from `from` on, and the offset behind these: `end` if that is
/// all. Of batches that hold no such record only control batches stay, in their place.
pub(super) fn keep_records(batches: Vec<Batch>, from: Offset, max_records: usize, end: Offset) -> (Vec<Batch>, Offset) {
    let mut kept = Vec::with_capacity(batches.len());
    let mut left = max_records as u64;
    for batch in batches {
        if batch.header().is_control() {
            kept.push(batch);
            continue;
        }
        if left == 0 {
            return (kept, batch.header().base_offset.max(from));
        }
        match count(&batch, from, left) {
            Counted::Cut(next) => {
                kept.push(batch);
                return (kept, next);
            }
            Counted::Whole(0) => (),
            Counted::Whole(count) => {
                kept.push(batch);
                left -= count;
            }
        }
    }
    (kept, end)
}

/// How much of a batch is wanted.
enum Counted {
    /// All its records from the first offset on that counts; so many.
    Whole(u64),
    /// Not all of these; where to go on.
    Cut(Offset),
}

/// How many records of a batch count from `from` on, of which `left` are wanted.
fn count(batch: &Batch, from: Offset, left: u64) -> Counted {
    let header = batch.header();
    let first = header.base_offset.max(from);
    let offsets = header.next_offset().0.saturating_sub(first.0);
    let records = u64::from(header.record_count);
    if records == u64::from(header.last_offset_delta) + 1 {
        return if offsets > left { Counted::Cut(first.advance(left)) } else { Counted::Whole(offsets) };
    }
    if first == header.base_offset && records <= left {
        return Counted::Whole(records);
    }
    // Some of it is missing, so only its records tell which. One that cannot be read is told in its place.
    let Ok(all) = batch.records() else { return Counted::Whole(1) };
    let mut counted = 0;
    for record in all {
        let Ok(record) = record else { return Counted::Whole(counted + 1) };
        if record.offset < from {
            continue;
        }
        if counted == left {
            return Counted::Cut(record.offset);
        }
        counted += 1;
    }
    Counted::Whole(counted)
}

#[cfg(test)]
mod tests {
    use levada_log::{BatchBuilder, NewBatch};
    use levada_model::{LeaderEpoch, Record, Timestamp};

    use super::*;

    fn dense(base: u64, records: u32) -> Batch {
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        for _ in 0..records {
            builder.push(Timestamp(1), &Record { value: Some("v".into()), ..Record::default() });
        }
        builder.finish().expect("nothing to compress").stamp(Offset(base), LeaderEpoch(0))
    }

    fn kept(batches: Vec<Batch>, from: u64, max_records: usize, end: u64) -> (Vec<u64>, u64) {
        let (kept, next) = keep_records(batches, Offset(from), max_records, Offset(end));
        (kept.iter().map(|batch| batch.header().base_offset.0).collect(), next.0)
    }

    #[test]
    fn dense_batches_are_cut_at_the_record() {
        let batches = || vec![dense(0, 5), dense(5, 5)];
        assert_eq!(kept(batches(), 0, 100, 10), (vec![0, 5], 10));
        assert_eq!(kept(batches(), 0, 3, 10), (vec![0], 3));
        assert_eq!(kept(batches(), 3, 2, 10), (vec![0], 5));
        assert_eq!(kept(batches(), 3, 4, 10), (vec![0, 5], 7));
    }
}
