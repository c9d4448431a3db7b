//! Reading the records of a rejection, as the dead letters that they will be.
//!
//! Each is copied out of its batch, so that no unpacked batch is held for the sake of one record, and all of them together
//! are bounded.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_model::{
    GroupName, Header, ModuleRef, Offset, PartitionIndex, Record, Timestamp, TopicId, TopicName, dead_letter, limits,
};

use super::terms::{GroupError, RejectRecords};
use crate::Isolation;
use crate::engine::Core;
use crate::fetch::{FetchError, Fetched, Reading};
use crate::heavy::{Work, compute};

/// A record's place.
pub(crate) type RecordPlace = (TopicName, PartitionIndex, Offset);

/// Where a dead letter comes from, and why.
pub(crate) struct Origin<'a> {
    /// Where its record is.
    pub(crate) place: &'a RecordPlace,
    /// The record's time.
    pub(crate) time: Timestamp,
    /// Who could not process it.
    pub(crate) group: &'a GroupName,
    /// Why not.
    pub(crate) error: &'a str,
    /// The module that could not.
    pub(crate) module: Option<&'a ModuleRef>,
    /// How often it was tried.
    pub(crate) attempts: Option<u32>,
}

/// A dead letter on its way.
pub(super) struct Letter {
    /// Where its record was.
    pub(super) from: RecordPlace,
    pub(super) record: Record,
    /// What makes it the same when it is asked for again.
    pub(super) key: Vec<u8>,
}

/// Records that were found, by offset.
type Found = BTreeMap<Offset, (Record, Timestamp)>;

impl Core {
    /// The letters of a rejection, in its order. Each batch is read and unpacked once.
    pub(super) async fn read_rejected(
        &self,
        group: &GroupName,
        reject: &RejectRecords,
        sources: &BTreeMap<TopicName, TopicId>,
    ) -> Result<Vec<Letter>, GroupError> {
        let mut order: Vec<_> = (0..reject.records.len()).collect();
        order.sort_by_key(|i| &reject.records[*i]);
        let (mut letters, mut faults) = (BTreeMap::new(), BTreeMap::new());
        let mut size_bytes = 0;
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let (topic, partition, _) = &reject.records[*first];
            let of_partition = |i: &&usize| (&reject.records[**i].0, &reject.records[**i].1) == (topic, partition);
            let wanted: Vec<_> = rest.iter().take_while(of_partition).map(|i| reject.records[*i].2).collect();
            let (found, count) = self.read_batch(sources[topic], *partition, wanted).await?;
            let here;
            (here, rest) = rest.split_at(count);
            for i in here {
                let from = &reject.records[*i];
                let Some((record, time)) = found.get(&from.2) else {
                    faults.insert(*i, format!("there is no record at offset {}", from.2));
                    continue;
                };
                let origin = Origin {
                    place: from,
                    time: *time,
                    group,
                    error: &reject.reason,
                    module: None,
                    attempts: reject.attempts,
                };
                let record = origin.on(record.clone());
                size_bytes += record.size_bytes();
                let key = format!("reject {group} {} {} {}", sources[topic], from.1, from.2).into_bytes();
                letters.insert(*i, Letter { from: from.clone(), record, key });
            }
            if size_bytes > limits::REJECT_BYTES_MAX && letters.len() > 1 {
                return Err(GroupError::RejectTooLarge { limit_bytes: limits::REJECT_BYTES_MAX });
            }
        }
        if faults.is_empty() {
            Ok(letters.into_values().collect())
        } else {
            Err(GroupError::Offsets(faults.into_iter().collect()))
        }
    }

    /// Of the batch that holds the first of some rising offsets, the records at these; and how many of the offsets it
    /// answers for, one at least.
    async fn read_batch(
        &self,
        topic: TopicId,
        index: PartitionIndex,
        wanted: Vec<Offset>,
    ) -> Result<(Found, usize), GroupError> {
        let none = (Found::new(), 1);
        let Some(topic) = self.catalog.topics().by_id(topic).cloned() else { return Ok(none) };
        let Some(partition) = topic.state().partition(index).cloned() else { return Ok(none) };
        let reading = Reading { core: self, topic: &topic, partition: &partition, isolation: Isolation::ReadCommitted };
        match reading.read(wanted[0], usize::MAX, 1).await {
            Ok(fetched) => {
                let count = wanted.iter().take_while(|offset| **offset < fetched.next_offset).count().max(1);
                let bytes = fetched.batches.iter().map(|batch| batch.bytes().len()).sum();
                let found = compute(Work::Unpack, bytes, move || copies(fetched, &wanted[..count])).await;
                Ok((found, count))
            }
            Err(FetchError::Closing) => Err(GroupError::Closing),
            Err(FetchError::Storage(error)) => Err(GroupError::Storage(error)),
            Err(_) => Ok(none),
        }
    }
}

/// Copies of the records at these offsets, which rise. One that cannot be unpacked is no record that could be set aside.
fn copies(mut fetched: Fetched, wanted: &[Offset]) -> Found {
    let last = *wanted.last().expect("there is one");
    let records = fetched.take_records().filter_map(Result::ok).take_while(|record| record.offset <= last);
    let wanted = records.filter(|record| wanted.binary_search(&record.offset).is_ok());
    wanted.map(|record| (record.offset, (copy(&record.record), record.timestamp))).collect()
}

/// The record in memory of its own.
fn copy(record: &Record) -> Record {
    let bytes = |bytes: &Option<Bytes>| bytes.as_deref().map(Bytes::copy_from_slice);
    let header = |header: &Header| Header { name: header.name.clone(), value: bytes(&header.value) };
    Record {
        key: bytes(&record.key),
        value: bytes(&record.value),
        headers: record.headers.iter().map(header).collect(),
    }
}

impl Origin<'_> {
    /// The record with its headers of origin; those of an earlier death are replaced.
    pub(crate) fn on(&self, mut record: Record) -> Record {
        let added = dead_letter::added_count(record.headers.iter().map(|header| header.name.as_str()));
        record.headers.truncate(record.headers.len() - added);
        let mut add = |name: &str, value: String| {
            record.headers.push(Header { name: name.to_owned(), value: Some(Bytes::from(value)) });
        };
        let (topic, partition, offset) = self.place;
        add(dead_letter::ERROR, self.error.to_owned());
        add(dead_letter::ORIGINAL_TOPIC, topic.to_string());
        add(dead_letter::ORIGINAL_PARTITION, partition.to_string());
        add(dead_letter::ORIGINAL_OFFSET, offset.to_string());
        add(dead_letter::ORIGINAL_TIMESTAMP, self.time.0.to_string());
        add(dead_letter::GROUP, self.group.to_string());
        if let Some(module) = self.module {
            add(dead_letter::MODULE, module.to_string());
        }
        if let Some(attempts) = self.attempts {
            add(dead_letter::ATTEMPTS, attempts.to_string());
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_does_not_hold_the_batch_that_it_was_in() {
        let batch = Bytes::from(vec![7u8; 64]);
        let header = Header { name: "h".to_owned(), value: Some(batch.slice(9..12)) };
        let record = Record { key: Some(batch.slice(0..4)), value: Some(batch.slice(4..8)), headers: vec![header] };
        let copied = copy(&record);
        assert_eq!(copied, record);
        let bytes = [&copied.key, &copied.value, &copied.headers[0].value];
        let of_batch = batch.as_ptr_range();
        assert!(bytes.into_iter().flatten().all(|bytes| !of_batch.contains(&bytes.as_ptr())));
    }
}
