//! Which records of the batches that were read count, and where to go on behind them: none of aborted transactions, for
//! whoever reads what is committed. Offsets are dense in what producers send; where a log was compacted they are not, and
//! a batch may hold any part of its records, or none.

use std::collections::HashMap;

use levada_log::{AbortedTransaction, Batch};
use levada_model::{Compression, Offset, ProducerId};

use crate::heavy::{Work, compute};

/// The batches that hold the first `max_records` records from `from` on, and the offset behind these: `end` if that is
/// all. Of batches that hold no such record only control batches stay, in their place.
pub(super) async fn keep_records(
    batches: Vec<Batch>,
    from: Offset,
    max_records: usize,
    end: Offset,
) -> (Vec<Batch>, Offset) {
    let bytes = to_unpack_bytes(&batches, from, max_records);
    compute(Work::Unpack, bytes, move || keep(batches, from, max_records, end)).await
}

/// The batches without those of aborted transactions, which are told by their first offsets. Control batches stay.
pub(super) fn without_aborted(mut batches: Vec<Batch>, aborted: &[AbortedTransaction]) -> Vec<Batch> {
    if aborted.is_empty() {
        return batches;
    }
    let mut begun = aborted.iter().peekable();
    // Of each producer the last that began: it has one at a time. Where markers were lost, the one that hides more.
    let mut open: HashMap<ProducerId, AbortedTransaction> = HashMap::new();
    batches.retain(|batch| {
        let header = batch.header();
        while let Some(next) = begun.next_if(|next| next.first_offset <= header.base_offset) {
            let last_offset =
                open.get(&next.producer_id).map_or(next.last_offset, |o| o.last_offset.max(next.last_offset));
            open.insert(next.producer_id, AbortedTransaction { last_offset, ..*next });
        }
        let of = header.producer_id.and_then(|id| open.get(&id));
        !of.is_some_and(|aborted| aborted.holds(header))
    });
    batches
}

/// How many bytes to judge the work of going through a batch's records by.
pub(crate) fn unpacking_bytes(batch: &Batch) -> usize {
    match batch.header().compression() {
        Compression::None => batch.bytes().len(),
        // A few may become any number, and nobody knows before.
        _ => usize::MAX,
    }
}

/// The same of those batches whose records may have to be counted one by one.
fn to_unpack_bytes(batches: &[Batch], from: Offset, max_records: usize) -> usize {
    let mut left = max_records as u64;
    let mut bytes = 0_usize;
    for batch in batches.iter().filter(|batch| !batch.header().is_control()) {
        let records = u64::from(batch.header().record_count);
        if !is_dense(batch) && (batch.header().base_offset < from || records > left) {
            bytes = bytes.saturating_add(unpacking_bytes(batch));
        }
        left = left.saturating_sub(records);
    }
    bytes
}

fn keep(batches: Vec<Batch>, from: Offset, max_records: usize, end: Offset) -> (Vec<Batch>, Offset) {
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
    if is_dense(batch) {
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

/// Whether all its records are there.
fn is_dense(batch: &Batch) -> bool {
    u64::from(batch.header().record_count) == u64::from(batch.header().last_offset_delta) + 1
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use bytes::{Bytes, BytesMut};
    use crc_fast::CrcAlgorithm::Crc32Iscsi;
    use levada_log::{BatchBuilder, NewBatch};
    use levada_model::{LeaderEpoch, ProducerEpoch, Record, Sequence, Timestamp};
    use tokio::runtime::Builder;

    use super::*;

    fn dense(base: u64, records: u32) -> Batch {
        packed(base, records, Compression::None)
    }

    fn packed(base: u64, records: u32, compression: Compression) -> Batch {
        let mut builder = BatchBuilder::new(NewBatch { compression, ..NewBatch::default() }, 0);
        for _ in 0..records {
            builder.push(Timestamp(1), &Record { value: Some("v".into()), ..Record::default() });
        }
        builder.finish().expect("nothing to compress").stamp(Offset(base), LeaderEpoch(0))
    }

    /// The same with offsets behind its records that are gone.
    fn thinned(base: u64, records: u32, compression: Compression) -> Batch {
        let mut bytes = BytesMut::from(&packed(base, records, compression).bytes()[..]);
        bytes[23..27].copy_from_slice(&(records + 9).to_be_bytes());
        let crc = u32::try_from(crc_fast::checksum(Crc32Iscsi, &bytes[21..])).expect("32 bits");
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        Batch::parse(&mut Bytes::from(bytes)).expect("its checksum is right")
    }

    /// Whether the counting is done where it is asked for: no other thread takes work meanwhile.
    fn is_done_in_place(batches: Vec<Batch>, from: u64, max_records: usize) -> bool {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
        let (release, released) = mpsc::channel::<()>();
        runtime.block_on(async {
            tokio::task::spawn_blocking(move || released.recv());
            let mut counting = pin!(keep_records(batches, Offset(from), max_records, Offset(1_000)));
            let is_done = counting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            drop(release);
            if !is_done {
                assert!(!counting.await.0.is_empty());
            }
            is_done
        })
    }

    #[test]
    fn what_has_to_be_unpacked_to_be_counted_is_unpacked_elsewhere() {
        let zstd = |records| vec![thinned(0, records, Compression::Zstd)];
        assert!(!is_done_in_place(zstd(10), 5, 100), "entered in its middle");
        assert!(!is_done_in_place(zstd(10), 0, 3), "not all of it is wanted");
        assert!(is_done_in_place(zstd(10), 0, 10), "its head says enough");
        assert!(is_done_in_place(vec![thinned(0, 10, Compression::None)], 5, 3), "a little work");
        assert!(!is_done_in_place(vec![thinned(0, 10_000, Compression::None)], 5, 3), "much work");
        assert!(is_done_in_place(vec![packed(0, 10, Compression::Zstd)], 5, 3), "nothing of it is gone");
        let second = vec![dense(0, 5), thinned(5, 5, Compression::Zstd)];
        assert!(!is_done_in_place(second.clone(), 0, 7), "the first leaves too few");
        assert!(is_done_in_place(second, 0, 10));
    }

    #[test]
    fn thinned_batches_are_cut_at_the_record_too() {
        let batches = || vec![thinned(0, 5, Compression::Zstd), dense(20, 5)];
        assert_eq!(kept(batches(), 2, 2, 25), (vec![0], 4));
        assert_eq!(kept(batches(), 2, 4, 25), (vec![0, 20], 21));
        assert_eq!(kept(batches(), 7, 4, 25), (vec![20], 24));
    }

    fn kept(batches: Vec<Batch>, from: u64, max_records: usize, end: u64) -> (Vec<u64>, u64) {
        let (kept, next) = keep(batches, Offset(from), max_records, Offset(end));
        (kept.iter().map(|batch| batch.header().base_offset.0).collect(), next.0)
    }

    #[test]
    fn batches_of_aborted_transactions_are_left_out_and_their_markers_stay() {
        let of = |base, id, control| {
            let producer = Some((ProducerId(id), ProducerEpoch(0), Sequence(0)));
            let new = NewBatch { producer, transactional: true, control, ..NewBatch::default() };
            let mut builder = BatchBuilder::new(new, 0);
            builder.push(Timestamp(1), &Record::default());
            builder.finish().expect("nothing to compress").stamp(Offset(base), LeaderEpoch(0))
        };
        let batches = vec![
            of(0, 1, false),
            of(1, 2, false),
            dense(2, 1),
            of(3, 1, false),
            of(4, 1, true),
            of(5, 1, false),
            of(6, 2, false),
        ];
        let aborted = |first, last, id| AbortedTransaction {
            first_offset: Offset(first),
            last_offset: Offset(last),
            producer_id: ProducerId(id),
        };
        let left = |aborted: &[AbortedTransaction]| -> Vec<u64> {
            let left = without_aborted(batches.clone(), aborted);
            left.iter().map(|batch| batch.header().base_offset.0).collect()
        };
        assert_eq!(left(&[]), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(left(&[aborted(0, 4, 1)]), [1, 2, 4, 5, 6]);
        assert_eq!(left(&[aborted(0, 4, 1), aborted(5, 9, 1), aborted(6, 9, 2)]), [1, 2, 4]);
        assert_eq!(left(&[aborted(1, 3, 2)]), [0, 2, 3, 4, 5, 6], "the later one is another transaction");
        // One whose marker is lost hides to its end, also behind a later one that is known.
        assert_eq!(left(&[aborted(0, 6, 1), aborted(3, 4, 1)]), [1, 2, 4, 6]);
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
