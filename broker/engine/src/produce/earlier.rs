//! Requests with an idempotency key that came before: their records go where they went then, also where they would be placed
//! otherwise by now, since a module has another answer, murmur2 stands in for it, or there are other partitions.
//!
//! Not here: the judgement of the appends themselves, which each partition gives once more (`levada-log`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use levada_log::{Batch, SequenceCheck};
use levada_model::{Offset, PartitionIndex, ProducerId, Record};

use super::{ProduceRecord, ProduceRequest, Producer};
use crate::catalog::TopicState;
use crate::fetch::{Isolation, unpacking_bytes};
use crate::heavy::{Work, compute};
use crate::partition::blocking;

/// What there is of a request already.
#[derive(Default)]
pub(super) struct Earlier {
    /// Who the key is to the partitions.
    id: Option<ProducerId>,
    /// The partitions that hold a part of it, and where that begins.
    parts: BTreeMap<PartitionIndex, Offset>,
    /// Whether it could be told which of its records they hold.
    is_told: bool,
}

/// The key came before with another body.
pub(super) struct Reused;

impl Earlier {
    /// Asks the partitions, retiring ones too, for the key of a request.
    ///
    /// # Errors
    /// When one of them has it for another body.
    pub(super) async fn find(state: &Arc<TopicState>, producer: Producer) -> Result<Self, Reused> {
        // Where there is one partition, its own judgement is enough.
        let is_asked = state.partitions().nth(1).is_some() || state.validator.is_some();
        let (Some((id, epoch, sequence)), SequenceCheck::Key, true) = (producer.0, producer.1, is_asked) else {
            return Ok(Self::default());
        };
        let state = state.clone();
        let found = blocking(move || {
            let found = state.partitions().map(|partition| (partition.index(), partition.keyed_append(id)));
            found.filter_map(|(index, append)| Some((index, append?))).collect::<Vec<_>>()
        });
        let mut parts = BTreeMap::new();
        for (index, (digest, offset)) in found.await {
            if digest != (epoch, sequence) {
                return Err(Reused);
            }
            parts.insert(index, offset);
        }
        Ok(Self { id: Some(id), parts, is_told: false })
    }

    /// Names for each record that is held the partition that holds it.
    pub(super) async fn name(&mut self, state: &TopicState, mut request: ProduceRequest) -> ProduceRequest {
        let Some(first) = self.parts.keys().next().copied() else { return request };
        if let [record] = &mut request.records[..] {
            record.partition.get_or_insert(first);
            self.is_told = true;
            return request;
        }
        let Some(stored) = self.stored(state).await else { return request };
        let bytes = stored.iter().map(|(_, batch)| unpacking_bytes(batch)).fold(0, usize::saturating_add);
        let mut records = request.records;
        (request.records, self.is_told) = compute(Work::Unpack, bytes, move || {
            let found = found(&records, &stored);
            let is_told = found.is_some();
            for (place, partition) in found.unwrap_or_default() {
                records[place].partition = Some(partition);
            }
            (records, is_told)
        })
        .await;
        request
    }

    /// Takes what is stored for the first time out of the partitions that hold a part of the request: they would take it
    /// for a repeat.
    pub(super) fn keep_apart(
        &self,
        records: &[ProduceRecord],
        placements: &mut [PartitionIndex],
        partition_count: u32,
    ) {
        if !self.is_told {
            return;
        }
        for (record, placement) in records.iter().zip(placements) {
            if record.partition.is_none() {
                let mut others =
                    (0..partition_count).map(|step| PartitionIndex((placement.0 + step) % partition_count));
                *placement = others.find(|other| !self.is_held_by(*other)).unwrap_or(*placement);
            }
        }
    }

    /// Whether a partition holds all of the request that goes there.
    pub(super) fn is_held_by(&self, partition: PartitionIndex) -> bool {
        self.parts.contains_key(&partition)
    }

    /// Whether anything may stand in for the partitioner. Not where it alone can say where records went.
    pub(super) fn lets_stand_in(&self) -> bool {
        self.parts.is_empty() || self.is_told
    }

    /// The batches that the partitions hold; none if one is not readable yet, was compacted or is gone.
    async fn stored(&self, state: &TopicState) -> Option<Vec<(PartitionIndex, Batch)>> {
        let mut stored = Vec::with_capacity(self.parts.len());
        for (index, offset) in &self.parts {
            let partition = state.partition(*index)?;
            let bound = partition.high_watermark();
            if *offset >= bound {
                return None;
            }
            let read = partition.read(*offset, 1, bound, Isolation::ReadUncommitted).await.ok()?;
            let batch = read.batches.into_iter().next()?;
            let header = batch.header();
            let is_whole = u64::from(header.record_count) == u64::from(header.last_offset_delta) + 1;
            if header.base_offset != *offset || header.producer_id != self.id || !is_whole {
                return None;
            }
            stored.push((*index, batch));
        }
        Some(stored)
    }
}

/// The places in the request of the records that are stored, and their partitions; none if one is not of the request. Equal
/// records without a partition are each other's.
fn found(records: &[ProduceRecord], stored: &[(PartitionIndex, Batch)]) -> Option<Vec<(usize, PartitionIndex)>> {
    let mut held = Vec::new();
    for (partition, batch) in stored {
        for record in batch.records().ok()? {
            held.push((*partition, record.ok()?.record));
        }
    }
    let mut left: HashMap<(Option<PartitionIndex>, &Record), Vec<usize>> = HashMap::with_capacity(records.len());
    for (place, ProduceRecord { record, partition, .. }) in records.iter().enumerate().rev() {
        left.entry((*partition, record)).or_default().push(place);
    }
    let mut found = Vec::with_capacity(held.len());
    for (partition, record) in &held {
        let mut take = |named| left.get_mut(&(named, record)).and_then(Vec::pop);
        found.push((take(Some(*partition)).or_else(|| take(None))?, *partition));
    }
    Some(found)
}
