//! The producers' state up to an offset, as a file.
//!
//! Format: `broker/docs/formats/log-directory.md`. Not here: what the state means (`producers`), and when a snapshot is
//! due.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::path::Path;

use bytes::{Buf, BufMut};
use crc_fast::crc32_iscsi;
use levada_model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::listing::{Kind, UNFINISHED};
use crate::producers::{KeyedAppend, Producer, Producers, Remembered, RememberedMarker};
use crate::{CoordinatorEpoch, Storage, StorageError, TransactionEnd};

const MAGIC: u32 = u32::from_be_bytes(*b"LVPS");
/// The second version knows transactions.
const VERSIONS: std::ops::RangeInclusive<u16> = 1..=2;
const CRC_BYTES: usize = 4;
/// What is written where no transaction is open.
const NOT_OPEN: i64 = -1;
/// Whether a producer has a marker, and what it says.
const NO_MARKER: u8 = 0;
const ABORT: u8 = 1;
const COMMIT: u8 = 2;

/// The bytes of a snapshot.
pub(super) fn encode(producers: &Producers, offset: Offset) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u32(MAGIC);
    bytes.put_u16(*VERSIONS.end());
    bytes.put_u64(offset.0);
    let all = producers.producers();
    bytes.put_u32(u32::try_from(all.len()).expect("fewer producers than memory holds"));
    for (id, producer) in all {
        bytes.put_i64(id.0);
        bytes.put_i16(producer.epoch.0);
        bytes.put_i64(producer.last_append.0);
        bytes.put_u8(u8::try_from(producer.batches.len()).expect("five at most"));
        for batch in &producer.batches {
            bytes.put_i32(batch.base_sequence.0);
            bytes.put_i32(batch.last_sequence.0);
            bytes.put_u64(batch.base_offset.0);
            bytes.put_i64(batch.timestamp.0);
        }
        encode_transactions(&mut bytes, producer);
    }
    for (id, key) in producers.keys() {
        bytes.put_i64(id.0);
        bytes.put_i16(key.digest.0.0);
        bytes.put_i32(key.digest.1.0);
        bytes.put_u64(key.base_offset.0);
        bytes.put_i64(key.timestamp.0);
        bytes.put_i64(key.last_append.0);
    }
    bytes.put_u32(crc32_iscsi(&bytes));
    bytes
}

/// Writes and syncs the snapshot file of `offset`, name included.
pub(super) fn write(storage: &dyn Storage, dir: &Path, offset: Offset, bytes: &[u8]) -> Result<(), StorageError> {
    let path = Kind::Snapshot.path(dir, offset);
    let unfinished = path.with_extension(format!("snapshot-{UNFINISHED}"));
    let file = storage.open(&unfinished).map_err(StorageError::at("open", &unfinished))?;
    file.set_len(0).map_err(StorageError::at("cut", &unfinished))?;
    file.write_at(&[IoSlice::new(bytes)], 0).map_err(StorageError::at("write", &unfinished))?;
    file.sync_data().map_err(StorageError::at("sync", &unfinished))?;
    storage.rename(&unfinished, &path).map_err(StorageError::at("rename", &unfinished))?;
    storage.sync_dir(dir).map_err(StorageError::at("sync", dir))
}

/// Reads the snapshot file of `offset`; none if it is missing or damaged.
pub(super) fn read(storage: &dyn Storage, dir: &Path, offset: Offset) -> Result<Option<Producers>, StorageError> {
    let path = Kind::Snapshot.path(dir, offset);
    let file = match storage.open_existing(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(StorageError::at("open", &path))?,
    };
    let len = file.len().map_err(StorageError::at("measure", &path))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    let have = file.read_at(&mut bytes, 0).map_err(StorageError::at("read", &path))?;
    bytes.truncate(have);
    let producers = decode(&bytes, offset);
    if producers.is_none() {
        tracing::warn!(path = %path.display(), "producer snapshot is damaged: an older one or the log takes its place");
    }
    Ok(producers)
}

fn decode(bytes: &[u8], offset: Offset) -> Option<Producers> {
    let (mut body, mut stored) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
    if stored.get_u32() != crc32_iscsi(body) {
        return None;
    }
    // Behind a CRC that matches, the getters can only fail for a program that wrote something else: still no panic.
    let (magic, version) = (body.try_get_u32().ok()?, body.try_get_u16().ok()?);
    if magic != MAGIC || !VERSIONS.contains(&version) || body.try_get_u64().ok()? != offset.0 {
        return None;
    }
    let mut producers = Producers::default();
    for _ in 0..body.try_get_u32().ok()? {
        let id = ProducerId(body.try_get_i64().ok()?);
        let epoch = ProducerEpoch(body.try_get_i16().ok()?);
        let last_append = Timestamp(body.try_get_i64().ok()?);
        let count = body.try_get_u8().ok()?;
        let batches = (0..count).map(|_| decode_batch(&mut body)).collect::<Option<VecDeque<_>>>()?;
        let (open_since, marker) = if version == 1 { (None, None) } else { decode_transactions(&mut body)? };
        producers.insert_producer(id, Producer { epoch, batches, last_append, open_since, marker });
    }
    while body.has_remaining() {
        let id = ProducerId(body.try_get_i64().ok()?);
        let digest = (ProducerEpoch(body.try_get_i16().ok()?), Sequence(body.try_get_i32().ok()?));
        let base_offset = Offset(body.try_get_u64().ok()?);
        let timestamp = Timestamp(body.try_get_i64().ok()?);
        let last_append = Timestamp(body.try_get_i64().ok()?);
        producers.insert_key(id, KeyedAppend { digest, base_offset, timestamp, last_append });
    }
    Some(producers)
}

fn decode_batch(body: &mut &[u8]) -> Option<Remembered> {
    Some(Remembered {
        base_sequence: Sequence(body.try_get_i32().ok()?),
        last_sequence: Sequence(body.try_get_i32().ok()?),
        base_offset: Offset(body.try_get_u64().ok()?),
        timestamp: Timestamp(body.try_get_i64().ok()?),
    })
}

fn encode_transactions(bytes: &mut Vec<u8>, producer: &Producer) {
    bytes.put_i64(producer.open_since.map_or(NOT_OPEN, |first| first.0.cast_signed()));
    let Some(marker) = producer.marker else { return bytes.put_u8(NO_MARKER) };
    bytes.put_u8(match marker.end {
        TransactionEnd::Abort => ABORT,
        TransactionEnd::Commit => COMMIT,
    });
    bytes.put_i16(marker.epoch.0);
    bytes.put_i32(marker.coordinator_epoch.0);
    bytes.put_u64(marker.offset.0);
    bytes.put_i64(marker.timestamp.0);
}

fn decode_transactions(body: &mut &[u8]) -> Option<(Option<Offset>, Option<RememberedMarker>)> {
    let first = body.try_get_i64().ok()?;
    let open_since = (first != NOT_OPEN).then(|| Offset(first.cast_unsigned()));
    let end = match body.try_get_u8().ok()? {
        NO_MARKER => return Some((open_since, None)),
        ABORT => TransactionEnd::Abort,
        COMMIT => TransactionEnd::Commit,
        _ => return None,
    };
    let marker = RememberedMarker {
        end,
        epoch: ProducerEpoch(body.try_get_i16().ok()?),
        coordinator_epoch: CoordinatorEpoch(body.try_get_i32().ok()?),
        offset: Offset(body.try_get_u64().ok()?),
        timestamp: Timestamp(body.try_get_i64().ok()?),
    };
    Some((open_since, Some(marker)))
}
