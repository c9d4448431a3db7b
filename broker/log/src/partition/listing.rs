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
    /// A segment that a compaction writes.
    Cleaned,
    /// Its index.
    CleanedIndex,
    /// Its index once it counts, until it has its name.
    SwapIndex,
}

/// Behind the name of a file that is being written, before it gets its name.
pub(super) const UNFINISHED: &str = "new";

/// Before the digits of the offset that the segment in a swap file ends at: `<20 digits>.swap-<20 digits>`.
const SWAP: &str = "swap-";

/// A cleaned segment that counts and has not its name yet. It stands for all segments that begin in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    pub(super) base: Offset,
    pub(super) next: Offset,
}

/// What a directory holds, each list in rising order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) segments: Vec<Offset>,
    pub(super) indexes: Vec<Offset>,
    pub(super) snapshots: Vec<Offset>,
    pub(super) swaps: Vec<Swap>,
    pub(super) swap_indexes: Vec<Offset>,
    pub(super) cleaned_indexes: Vec<Offset>,
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
            Self::Cleaned => "cleaned",
            Self::CleanedIndex => "cleaned-index",
            Self::SwapIndex => "swap-index",
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
            let Some(offset) = offset_of(digits) else { continue };
            match extension {
                "log" => listing.segments.push(offset),
                "index" => listing.indexes.push(offset),
                "snapshot" => listing.snapshots.push(offset),
                "swap-index" => listing.swap_indexes.push(offset),
                "cleaned-index" => listing.cleaned_indexes.push(offset),
                "cleaned" => listing.unfinished.push(name),
                other if other.ends_with(UNFINISHED) => listing.unfinished.push(name),
                other => {
                    let next = other.strip_prefix(SWAP).and_then(offset_of);
                    listing.swaps.extend(next.map(|next| Swap { base: offset, next }));
                }
            }
        }
        listing.segments.sort_unstable();
        listing.indexes.sort_unstable();
        listing.snapshots.sort_unstable();
        listing.swaps.sort_unstable_by_key(|swap| swap.base);
        listing
    }

    /// Puts the segment of a swap in place of those that it stands for.
    pub(super) fn put(&mut self, swap: Swap) {
        self.segments.retain(|base| !swap.replaces(*base));
        self.indexes.retain(|base| !swap.replaces(*base));
        let place = self.segments.partition_point(|base| *base < swap.base);
        self.segments.insert(place, swap.base);
    }
}

impl Swap {
    pub(super) fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{:020}.{SWAP}{:020}", self.base.0, self.next.0))
    }

    /// Whether it stands for the segment that begins there.
    pub(super) fn replaces(self, base: Offset) -> bool {
        self.base <= base && base < self.next
    }
}

/// The offset that a name's 20 digits say; one beyond what a signed number holds is none of ours.
fn offset_of(digits: &str) -> Option<Offset> {
    let is_ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|n| is_ours && *n <= i64::MAX as u64).map(Offset)
}
