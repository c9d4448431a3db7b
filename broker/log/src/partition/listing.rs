//! The files of a partition's directory by their names.

use std::path::{Path, PathBuf};

use levada_model::Offset;

use super::checkpoint::CHECKPOINT;

/// A file that belongs to an offset: `<20 digits>.<kind>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Index,
    Snapshot,
}

/// Behind the name of a file that is being written, before it gets its name.
pub(super) const UNFINISHED: &str = "new";

/// What a directory holds, each list in rising order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) segments: Vec<Offset>,
    pub(super) indexes: Vec<Offset>,
    pub(super) snapshots: Vec<Offset>,
    pub(super) has_checkpoint: bool,
    /// Files that were being written when the machine stopped.
    pub(super) unfinished: Vec<String>,
}

impl Kind {
    fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Index => "index",
            Self::Snapshot => "snapshot",
        }
    }

    /// The path of this kind of file of `offset`.
    pub(super) fn path(self, dir: &Path, offset: Offset) -> PathBuf {
        dir.join(format!("{:020}.{}", offset.0, self.extension()))
    }
}

impl Listing {
    /// Sorts names by what they are; others are left alone.
    pub(super) fn of(names: Vec<String>) -> Self {
        let mut listing = Self::default();
        for name in names {
            if name == CHECKPOINT {
                listing.has_checkpoint = true;
                continue;
            }
            let Some((digits, extension)) = name.split_once('.') else { continue };
            if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            // Offsets beyond what a signed number holds are none of ours.
            let Some(offset) = digits.parse().ok().filter(|n| *n <= i64::MAX as u64).map(Offset) else { continue };
            match extension {
                "log" => listing.segments.push(offset),
                "index" => listing.indexes.push(offset),
                "snapshot" => listing.snapshots.push(offset),
                other if other.ends_with(UNFINISHED) => listing.unfinished.push(name),
                _ => (),
            }
        }
        listing.segments.sort_unstable();
        listing.indexes.sort_unstable();
        listing.snapshots.sort_unstable();
        listing
    }
}
