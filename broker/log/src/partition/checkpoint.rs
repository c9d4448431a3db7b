//! The checkpoint: what a partition's log knows of itself, in two slots of one small file.
//!
//! Format and reasons: `broker/docs/formats/log-directory.md`. Not here: when a checkpoint is due.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut};
use crc_fast::crc32_iscsi;
use levada_model::{LeaderEpoch, Offset, Timestamp};

use super::epochs::{EpochStart, Epochs};
use crate::{File, OpenError, Storage, StorageError};

/// The file's name in the partition's directory.
pub(super) const CHECKPOINT: &str = "checkpoint";

const MAGIC: u32 = u32::from_be_bytes(*b"LVCP");
const VERSION: u16 = 1;
const SLOT_BYTES: usize = 512;
/// Slots lie in blocks of their own, so that no torn block takes both.
const SLOT_STRIDE_BYTES: u64 = 4096;
const CRC_AT: usize = SLOT_BYTES - 4;
/// Zeros here, as an older program left them, are a log that was never compacted.
const COMPACTION_AT: usize = CRC_AT - 16;
const NO_HORIZON: i64 = 0;
const CLEAN: u16 = 1;
const SNAPSHOT_FILE: u16 = 2;
const SNAPSHOT_EMPTY: u16 = 4;

/// Where the producers' state up to an offset is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotAt {
    /// Nowhere.
    Unknown,
    /// Nothing was remembered at that offset, so there is no file.
    Empty(Offset),
    /// In the snapshot file of that offset.
    File(Offset),
}

/// What one slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// All below is synced.
    pub(super) recovery_point: Offset,
    /// First readable offset.
    pub(super) log_start: Offset,
    /// The log was closed; the active segment ends as said below, at the recovery point.
    pub(super) clean: bool,
    /// Base offset of the active segment.
    pub(super) active_base: Offset,
    /// Valid bytes of the active segment up to the recovery point.
    pub(super) active_bytes: u64,
    /// First append to the active segment; none if it is empty.
    pub(super) first_append: Option<Timestamp>,
    /// Last append to the active segment.
    pub(super) last_append: Timestamp,
    pub(super) snapshot: SnapshotAt,
    /// The newest leader epochs.
    pub(super) epochs: Epochs,
    /// All below is compacted.
    pub(super) first_dirty: Offset,
    /// When the last of the tombstones that the last pass kept may go; none is never.
    pub(super) latest_horizon: Option<Timestamp>,
}

/// The checkpoint file. The slot that was synced last is never written over without a sync of the other one first.
pub(super) struct CheckpointFile {
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    sequence: u64,
    /// The slot that may be written now.
    next_slot: u64,
    /// Whether the newest slot's log start may be on the disk in no slot yet.
    is_start_unsure: bool,
}

impl CheckpointFile {
    /// The file as it will be when first written.
    pub(super) fn new(dir: &Path) -> Self {
        Self { path: dir.join(CHECKPOINT), file: None, sequence: 0, next_slot: 0, is_start_unsure: false }
    }

    /// Reads the newest valid slot; none if there is none.
    pub(super) fn open(storage: &dyn Storage, dir: &Path) -> Result<(Self, Option<Checkpoint>), OpenError> {
        let mut this = Self::new(dir);
        let file = storage.open_existing(&this.path).map_err(StorageError::at("open", &this.path))?;
        let mut bytes = vec![0; SLOT_STRIDE_BYTES as usize + SLOT_BYTES];
        let have = file.read_at(&mut bytes, 0).map_err(StorageError::at("read", &this.path))?;
        bytes.truncate(have);
        let mut newest: Option<Checkpoint> = None;
        let mut starts = Vec::new();
        for slot in 0..2 {
            let from = (slot * SLOT_STRIDE_BYTES) as usize;
            let Some(bytes) = bytes.get(from..from + SLOT_BYTES) else { continue };
            let Some((sequence, checkpoint)) = decode(bytes, &this.path)? else { continue };
            starts.push(checkpoint.log_start);
            if newest.is_none() || sequence > this.sequence {
                this.sequence = sequence;
                this.next_slot = 1 - slot;
                newest = Some(checkpoint);
            }
        }
        // After a kill, the newest slot may be in the page cache alone. The other one was synced.
        this.is_start_unsure = starts.len() < 2 || starts[0] != starts[1];
        Ok((this, newest))
    }

    /// Whether a power cut could take back the log start that was read. A reader has seen it, so it must be saved.
    pub(super) fn is_start_unsure(&self) -> bool {
        self.is_start_unsure
    }

    /// Writes the checkpoint without a sync. A power cut may take it back to the last one that was synced.
    pub(super) fn note(&mut self, storage: &dyn Storage, checkpoint: &Checkpoint) -> Result<(), StorageError> {
        self.sequence += 1;
        let bytes = encode(checkpoint, self.sequence);
        let file = self.file(storage)?;
        let position = self.next_slot * SLOT_STRIDE_BYTES;
        file.write_at(&[std::io::IoSlice::new(&bytes)], position).map_err(StorageError::at("write", &self.path))
    }

    /// Writes the checkpoint and syncs it. The name in the directory is the caller's duty.
    pub(super) fn save(&mut self, storage: &dyn Storage, checkpoint: &Checkpoint) -> Result<(), StorageError> {
        self.note(storage, checkpoint)?;
        self.file(storage)?.sync_data().map_err(StorageError::at("sync", &self.path))?;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, so that the next checkpoint needs no file descriptor.
    pub(super) fn warm(&mut self, storage: &dyn Storage) -> Result<(), StorageError> {
        self.file(storage).map(drop)
    }

    /// Lets go of the open file.
    pub(super) fn cool(&mut self) {
        self.file = None;
    }

    fn file(&mut self, storage: &dyn Storage) -> Result<Arc<dyn File>, StorageError> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = storage.open(&self.path).map_err(StorageError::at("open", &self.path))?;
        Ok(self.file.insert(file).clone())
    }
}

/// The epochs that a checkpoint's bytes know; none where no slot can be read.
pub(super) fn epochs_in(file: &dyn File, path: &Path) -> io::Result<Epochs> {
    let mut bytes = vec![0; SLOT_STRIDE_BYTES as usize + SLOT_BYTES];
    let have = file.read_at(&mut bytes, 0)?;
    let slots = [0, SLOT_STRIDE_BYTES as usize].map(|from| bytes[..have].get(from..from + SLOT_BYTES));
    let valid = slots.into_iter().flatten().filter_map(|slot| decode(slot, path).ok().flatten());
    Ok(valid.max_by_key(|(sequence, _)| *sequence).map(|(_, checkpoint)| checkpoint.epochs).unwrap_or_default())
}

fn encode(checkpoint: &Checkpoint, sequence: u64) -> Vec<u8> {
    let (snapshot_flag, snapshot) = match checkpoint.snapshot {
        SnapshotAt::Unknown => (0, Offset(0)),
        SnapshotAt::Empty(offset) => (SNAPSHOT_EMPTY, offset),
        SnapshotAt::File(offset) => (SNAPSHOT_FILE, offset),
    };
    let clean_flag = if checkpoint.clean { CLEAN } else { 0 };
    let mut bytes = Vec::with_capacity(SLOT_BYTES);
    bytes.put_u32(MAGIC);
    bytes.put_u16(VERSION);
    bytes.put_u16(clean_flag | snapshot_flag);
    bytes.put_u64(sequence);
    bytes.put_u64(checkpoint.recovery_point.0);
    bytes.put_u64(checkpoint.log_start.0);
    bytes.put_u64(checkpoint.active_base.0);
    bytes.put_u64(checkpoint.active_bytes);
    bytes.put_i64(checkpoint.first_append.map_or(i64::MIN, |at| at.0));
    bytes.put_i64(checkpoint.last_append.0);
    bytes.put_u64(snapshot.0);
    let epochs = checkpoint.epochs.newest();
    bytes.put_u32(u32::try_from(epochs.len()).expect("at most EPOCHS_MAX"));
    for start in epochs {
        bytes.put_i32(start.epoch.0);
        bytes.put_u64(start.offset.0);
    }
    assert!(bytes.len() <= COMPACTION_AT, "a checkpoint fits its slot");
    bytes.resize(COMPACTION_AT, 0);
    bytes.put_u64(checkpoint.first_dirty.0);
    bytes.put_i64(checkpoint.latest_horizon.map_or(NO_HORIZON, |horizon| horizon.0));
    bytes.put_u32(crc32_iscsi(&bytes));
    bytes
}

/// Decodes one slot; none if it is not valid.
fn decode(slot: &[u8], path: &Path) -> Result<Option<(u64, Checkpoint)>, OpenError> {
    let (body, mut stored) = slot.split_at(CRC_AT);
    if stored.get_u32() != crc32_iscsi(body) {
        return Ok(None);
    }
    let (mut body, mut compaction) = body.split_at(COMPACTION_AT);
    if body.get_u32() != MAGIC {
        return Ok(None);
    }
    let version = body.get_u16();
    if version != VERSION {
        return Err(OpenError::Inconsistent {
            path: path.display().to_string(),
            detail: format!("checkpoint version {version} is of a newer program; this one knows {VERSION}"),
        });
    }
    let flags = body.get_u16();
    let sequence = body.get_u64();
    let recovery_point = Offset(body.get_u64());
    let log_start = Offset(body.get_u64());
    let active_base = Offset(body.get_u64());
    let active_bytes = body.get_u64();
    let first_append = Some(body.get_i64()).filter(|at| *at != i64::MIN).map(Timestamp);
    let last_append = Timestamp(body.get_i64());
    let snapshot_offset = Offset(body.get_u64());
    let snapshot = match flags & (SNAPSHOT_EMPTY | SNAPSHOT_FILE) {
        SNAPSHOT_EMPTY => SnapshotAt::Empty(snapshot_offset),
        SNAPSHOT_FILE => SnapshotAt::File(snapshot_offset),
        _ => SnapshotAt::Unknown,
    };
    let count = body.get_u32() as usize;
    if body.len() < count.saturating_mul(12) {
        return Ok(None);
    }
    let starts = (0..count).map(|_| EpochStart { epoch: LeaderEpoch(body.get_i32()), offset: Offset(body.get_u64()) });
    let checkpoint = Checkpoint {
        recovery_point,
        log_start,
        clean: flags & CLEAN != 0,
        active_base,
        active_bytes,
        first_append,
        last_append,
        snapshot,
        epochs: starts.collect(),
        first_dirty: Offset(compaction.get_u64()),
        latest_horizon: Some(compaction.get_i64()).filter(|horizon| *horizon != NO_HORIZON).map(Timestamp),
    };
    Ok(Some((sequence, checkpoint)))
}
