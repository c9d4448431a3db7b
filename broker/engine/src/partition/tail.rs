//! The tail cache: recent batches as shared bytes, so that readers at the tail touch no file. One budget for the whole
//! broker; the group of batches that came first, of whichever partition, goes first.
//!
//! A group is what one write brought. It is kept and dropped as a whole, because its batches may be slices of one
//! request body, and one slice alone would hold all of it in memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use levada_log::{AbortedTransaction, Batch, ReadChunk};
use levada_model::Offset;
use parking_lot::Mutex;

/// What a batch costs besides its bytes: its decoded head and the places in the lists.
const BATCH_OVERHEAD_BYTES: usize = 192;

/// Groups are noted up to here before the first look for those that are gone.
const ORDER_MIN: usize = 1 << 10;

/// The budget, and all groups in the order in which they came.
#[derive(Debug)]
pub(crate) struct TailBudget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    next_id: AtomicU64,
    order: Mutex<Order>,
}

/// Groups of all tails; some may be gone already.
#[derive(Debug)]
struct Order {
    groups: VecDeque<(Weak<Tail>, u64)>,
    /// At so many those that are gone are let go.
    prune_at: usize,
}

impl Order {
    fn prune(&mut self) {
        if self.groups.len() >= self.prune_at {
            self.groups.retain(|(tail, id)| tail.upgrade().is_some_and(|tail| tail.has(*id)));
            self.prune_at = ORDER_MIN.max(2 * self.groups.len());
        }
    }
}

impl TailBudget {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        let order = Mutex::new(Order { groups: VecDeque::new(), prune_at: ORDER_MIN });
        Self { limit_bytes, used_bytes: AtomicUsize::new(0), next_id: AtomicU64::new(0), order }
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Takes the oldest groups from their tails, so that the budget is kept after one more of `tail`.
    fn admit(&self, tail: &Arc<Tail>, id: u64, size_bytes: usize) {
        self.used_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        let mut order = self.order.lock();
        order.groups.push_back((Arc::downgrade(tail), id));
        while self.used_bytes() > self.limit_bytes
            && let Some((oldest, id)) = order.groups.pop_front()
        {
            if let Some(oldest) = oldest.upgrade() {
                oldest.drop_group(id);
            }
        }
        order.prune();
    }

    fn release(&self, size_bytes: usize) {
        self.used_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }
}

/// The recent batches of one partition, without holes, and which of their transactions were aborted.
#[derive(Debug)]
pub(crate) struct Tail {
    budget: Arc<TailBudget>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    groups: VecDeque<Group>,
    /// By their markers, which lie among the batches: where a batch is kept, all behind it is.
    aborted: VecDeque<AbortedTransaction>,
}

impl Kept {
    /// All aborted transactions with offsets from `from` on and below `to`, by their first offsets.
    fn aborted_within(&self, from: Offset, to: Offset) -> Vec<AbortedTransaction> {
        let behind = self.aborted.partition_point(|aborted| aborted.last_offset < from);
        let mut within: Vec<_> =
            self.aborted.range(behind..).filter(|aborted| aborted.first_offset < to).copied().collect();
        within.sort_unstable();
        within
    }

    /// Forgets what ended before the first batch that is left.
    fn forget_aborted(&mut self) {
        let Some(first) = self.groups.front() else { return self.aborted.clear() };
        let from = first.batches[0].header().base_offset;
        let ended = self.aborted.partition_point(|aborted| aborted.last_offset < from);
        self.aborted.drain(..ended);
    }

    /// Forgets all; so many bytes were kept.
    fn clear(&mut self) -> usize {
        self.aborted.clear();
        self.groups.drain(..).map(|group| group.size_bytes).sum()
    }
}

#[derive(Debug)]
struct Group {
    /// Rises from group to group.
    id: u64,
    batches: Vec<Batch>,
    size_bytes: usize,
}

impl Group {
    fn next_offset(&self) -> Offset {
        self.batches.last().expect("a group has a batch").header().next_offset()
    }
}

impl Tail {
    pub(crate) fn new(budget: Arc<TailBudget>) -> Self {
        Self { budget, kept: Mutex::default() }
    }

    /// Keeps a group of batches, which follow one another and the last group, with the transactions that it aborts.
    pub(crate) fn push(self: &Arc<Self>, batches: Vec<Batch>, aborted: Vec<AbortedTransaction>) {
        if batches.is_empty() {
            return;
        }
        let size_bytes = batches.iter().map(|batch| batch.bytes().len() + BATCH_OVERHEAD_BYTES).sum();
        let mut kept = self.kept.lock();
        if size_bytes > self.budget.limit_bytes {
            // What lies before it no longer touches the tail.
            self.budget.release(kept.clear());
            return;
        }
        let id = self.budget.next_id.fetch_add(1, Ordering::Relaxed);
        kept.groups.push_back(Group { id, batches, size_bytes });
        kept.aborted.extend(aborted);
        drop(kept);
        self.budget.admit(self, id, size_bytes);
    }

    /// Batches from the one that holds `from`, at least one, else at most `max_bytes`, none at or beyond `bound`; none
    /// at all if `from` is not kept here. What was aborted among them is told.
    pub(crate) fn read(&self, from: Offset, max_bytes: usize, bound: Offset) -> Option<ReadChunk> {
        let kept = self.kept.lock();
        let groups = &kept.groups;
        if groups.front()?.batches[0].header().base_offset > from {
            return None;
        }
        let first = groups.partition_point(|group| group.next_offset() <= from);
        let mut chunk = ReadChunk { batches: Vec::new(), gaps: Vec::new(), next_offset: from, aborted: Vec::new() };
        let mut size_bytes = 0;
        let batches = groups.iter().skip(first).flat_map(|group| &group.batches);
        for batch in batches.skip_while(|batch| batch.header().next_offset() <= from) {
            size_bytes += batch.bytes().len();
            let fits = chunk.batches.is_empty() || size_bytes <= max_bytes;
            if batch.header().base_offset >= bound || !fits {
                break;
            }
            chunk.next_offset = batch.header().next_offset();
            chunk.batches.push(batch.clone());
        }
        if chunk.batches.iter().any(|batch| batch.header().is_transactional()) {
            chunk.aborted = kept.aborted_within(from, chunk.next_offset);
        }
        (!chunk.batches.is_empty()).then_some(chunk)
    }

    /// Forgets all groups that hold something below `end`: the log now holds something else there.
    pub(crate) fn drop_below(&self, end: Offset) {
        let mut kept = self.kept.lock();
        while let Some(group) = kept.groups.pop_front_if(|group| group.batches[0].header().base_offset < end) {
            self.budget.release(group.size_bytes);
        }
        kept.forget_aborted();
    }

    /// Whether the group is kept. They go oldest first.
    fn has(&self, id: u64) -> bool {
        self.kept.lock().groups.front().is_some_and(|oldest| oldest.id <= id)
    }

    /// Drops the group, which is the oldest if it is there.
    fn drop_group(&self, id: u64) {
        let mut kept = self.kept.lock();
        if let Some(group) = kept.groups.pop_front_if(|oldest| oldest.id == id) {
            self.budget.release(group.size_bytes);
            kept.forget_aborted();
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.budget.release(self.kept.get_mut().clear());
    }
}

#[cfg(test)]
mod tests {
    use levada_log::{BatchBuilder, NewBatch};
    use levada_model::{LeaderEpoch, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

    use super::*;

    fn batch(base: u64, records: u32) -> Batch {
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        for _ in 0..records {
            builder.push(Timestamp(1), &Record { value: Some("v".into()), ..Record::default() });
        }
        builder.finish().expect("nothing to compress").stamp(Offset(base), LeaderEpoch(0))
    }

    fn transactional(base: u64) -> Batch {
        let producer = Some((ProducerId(7), ProducerEpoch(0), Sequence(0)));
        let mut builder = BatchBuilder::new(NewBatch { producer, transactional: true, ..NewBatch::default() }, 0);
        builder.push(Timestamp(1), &Record::default());
        builder.finish().expect("nothing to compress").stamp(Offset(base), LeaderEpoch(0))
    }

    fn bases(chunk: Option<ReadChunk>) -> Vec<u64> {
        chunk.map_or(Vec::new(), |chunk| chunk.batches.iter().map(|batch| batch.header().base_offset.0).collect())
    }

    #[test]
    fn a_read_starts_in_the_batch_that_holds_the_offset_and_stops_at_the_bound() {
        let tail = Arc::new(Tail::new(Arc::new(TailBudget::new(1 << 20))));
        tail.push(vec![batch(10, 5), batch(15, 2)], Vec::new());
        tail.push(vec![batch(17, 1)], Vec::new());
        assert_eq!(bases(tail.read(Offset(12), usize::MAX, Offset(100))), [10, 15, 17]);
        assert_eq!(bases(tail.read(Offset(15), usize::MAX, Offset(17))), [15]);
        assert_eq!(bases(tail.read(Offset(16), 1, Offset(100))), [15], "the first comes whatever its size");
        assert_eq!(bases(tail.read(Offset(9), usize::MAX, Offset(100))), [0_u64; 0], "not kept here");
        assert_eq!(bases(tail.read(Offset(18), usize::MAX, Offset(100))), [0_u64; 0]);
    }

    #[test]
    fn the_oldest_group_of_any_partition_makes_room() {
        let size = batch(0, 1).bytes().len() + BATCH_OVERHEAD_BYTES;
        let budget = Arc::new(TailBudget::new(2 * size));
        let (idle, busy) = (Arc::new(Tail::new(budget.clone())), Arc::new(Tail::new(budget.clone())));
        idle.push(vec![batch(0, 1)], Vec::new());
        busy.push(vec![batch(0, 1)], Vec::new());
        busy.push(vec![batch(1, 1)], Vec::new());
        assert_eq!(bases(idle.read(Offset(0), 1, Offset(9))), [0_u64; 0], "it was the oldest");
        assert_eq!(bases(busy.read(Offset(0), usize::MAX, Offset(9))), [0, 1]);
        assert_eq!(budget.used_bytes(), 2 * size);
        drop(busy);
        assert_eq!(budget.used_bytes(), 0, "a partition that goes gives its bytes back");
    }

    #[test]
    fn what_was_compacted_is_forgotten_with_all_of_its_group() {
        let budget = Arc::new(TailBudget::new(1 << 20));
        let tail = Arc::new(Tail::new(budget.clone()));
        tail.push(vec![batch(0, 2)], Vec::new());
        tail.push(vec![batch(2, 2), batch(4, 2)], Vec::new());
        tail.push(vec![batch(6, 2)], Vec::new());
        tail.drop_below(Offset(4));
        assert_eq!(bases(tail.read(Offset(0), usize::MAX, Offset(9))), [0_u64; 0]);
        assert_eq!(bases(tail.read(Offset(4), usize::MAX, Offset(9))), [0_u64; 0], "its group held something else too");
        assert_eq!(bases(tail.read(Offset(6), usize::MAX, Offset(9))), [6]);
        tail.drop_below(Offset(9));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn what_was_aborted_is_told_for_as_long_as_a_batch_of_it_may_be_kept() {
        let one = batch(0, 1).bytes().len() + BATCH_OVERHEAD_BYTES;
        let tail = Arc::new(Tail::new(Arc::new(TailBudget::new(4 * one))));
        let aborted = |first, last| AbortedTransaction {
            first_offset: Offset(first),
            last_offset: Offset(last),
            producer_id: ProducerId(7),
        };
        let told = |from, max_bytes| tail.read(Offset(from), max_bytes, Offset(100)).map(|chunk| chunk.aborted);
        tail.push(vec![transactional(0)], vec![]);
        tail.push(vec![batch(1, 1)], vec![]);
        tail.push(vec![transactional(2), transactional(3)], vec![aborted(0, 1), aborted(2, 3)]);
        assert_eq!(told(0, usize::MAX), Some(vec![aborted(0, 1), aborted(2, 3)]));
        assert_eq!(told(0, 1), Some(vec![aborted(0, 1)]), "of what is read alone");
        assert_eq!(told(1, 1), Some(vec![]), "nothing of it can be of a transaction");
        assert_eq!(told(2, 1), Some(vec![aborted(2, 3)]));
        tail.push(vec![batch(4, 1), batch(5, 1)], vec![]);
        assert_eq!(told(1, 1), None, "it made room");
        assert_eq!(tail.kept.lock().aborted, [aborted(2, 3)], "no batch of it is left");
        tail.drop_below(Offset(4));
        assert_eq!(tail.kept.lock().aborted, []);
    }

    #[test]
    fn what_is_gone_is_not_noted_for_ever() {
        let budget = Arc::new(TailBudget::new(1 << 20));
        let lasting = Arc::new(Tail::new(budget.clone()));
        lasting.push(vec![batch(0, 1)], Vec::new());
        for _ in 0..3 * ORDER_MIN {
            Arc::new(Tail::new(budget.clone())).push(vec![batch(0, 1)], Vec::new());
        }
        assert!(budget.order.lock().groups.len() <= ORDER_MIN);
        assert_eq!(bases(lasting.read(Offset(0), 1, Offset(9))), [0]);
    }

    #[test]
    fn a_group_that_was_not_kept_leaves_no_hole() {
        let size = batch(0, 1).bytes().len() + BATCH_OVERHEAD_BYTES;
        let budget = Arc::new(TailBudget::new(2 * size));
        let tail = Arc::new(Tail::new(budget.clone()));
        tail.push(vec![batch(0, 1)], Vec::new());
        tail.push(vec![batch(1, 1), batch(2, 1), batch(3, 1)], Vec::new());
        assert_eq!(budget.used_bytes(), 0);
        tail.push(vec![batch(4, 1)], Vec::new());
        assert_eq!(bases(tail.read(Offset(0), usize::MAX, Offset(9))), [0_u64; 0]);
        assert_eq!(bases(tail.read(Offset(4), usize::MAX, Offset(9))), [4]);
    }
}
