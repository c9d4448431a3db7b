//! How a cleaned segment takes the place of its sources, and how an opening finishes what a crash cut off.
//!
//! One rename is the moment from which the new segment counts; its name then says which offsets it replaces. Steps and
//! reasons: `broker/docs/formats/log-directory.md`.

use std::path::{Path, PathBuf};

use levada_model::Offset;

use crate::partition::listing::{Kind, Listing, Swap};
use crate::partition::recovery;
use crate::partition::state::State;
use crate::{Storage, StorageError};

/// Where a pass writes the segment that begins at `base`.
pub(super) fn cleaned_path(dir: &Path, base: Offset) -> PathBuf {
    Kind::Cleaned.path(dir, base)
}

/// Where a pass writes the index of that segment.
pub(super) fn cleaned_index_path(dir: &Path, base: Offset) -> PathBuf {
    Kind::CleanedIndex.path(dir, base)
}

/// Removes what a pass wrote, if there is something.
pub(super) fn remove_cleaned(state: &State, base: Offset) -> Result<(), StorageError> {
    recovery::remove(&*state.storage, &cleaned_path(&state.dir, base))?;
    recovery::remove(&*state.storage, &cleaned_index_path(&state.dir, base))
}

/// From here on the new segment counts.
pub(in crate::partition) fn commit(storage: &dyn Storage, dir: &Path, swap: Swap) -> Result<(), StorageError> {
    rename(storage, &cleaned_path(dir, swap.base), &swap.path(dir))?;
    sync_dir(storage, dir)
}

/// Removes the sources but the first, and gives the new segment that one's name. All of it can be done again.
pub(in crate::partition) fn finish(
    storage: &dyn Storage,
    dir: &Path,
    swap: Swap,
    sources: impl IntoIterator<Item = Offset>,
) -> Result<(), StorageError> {
    for source in sources {
        recovery::remove(storage, &Kind::Index.path(dir, source))?;
        if source != swap.base {
            recovery::remove(storage, &Kind::Log.path(dir, source))?;
        }
    }
    rename_if_there(storage, &Kind::CleanedIndex.path(dir, swap.base), &Kind::SwapIndex.path(dir, swap.base))?;
    // No old index may meet the new segment, and no old segment stand beside it.
    sync_dir(storage, dir)?;
    rename(storage, &swap.path(dir), &Kind::Log.path(dir, swap.base))?;
    sync_dir(storage, dir)?;
    finish_index(storage, dir, swap.base)
}

/// Gives the new index its name, once the new segment has its own.
fn finish_index(storage: &dyn Storage, dir: &Path, base: Offset) -> Result<(), StorageError> {
    rename_if_there(storage, &Kind::SwapIndex.path(dir, base), &Kind::Index.path(dir, base))
}

/// Finishes the swaps that a crash cut off, and brings the listing up to date.
pub(in crate::partition) fn finish_all(
    storage: &dyn Storage,
    dir: &Path,
    listing: &mut Listing,
) -> Result<(), StorageError> {
    for swap in std::mem::take(&mut listing.swaps) {
        let listed = listing.segments.iter().chain(&listing.indexes).copied();
        let mut sources: Vec<Offset> = listed.filter(|offset| swap.replaces(*offset)).collect();
        sources.sort_unstable();
        sources.dedup();
        finish(storage, dir, swap, sources)?;
        listing.put(swap);
        listing.swap_indexes.retain(|base| *base != swap.base);
        listing.cleaned_indexes.retain(|base| *base != swap.base);
    }
    for base in std::mem::take(&mut listing.swap_indexes) {
        if listing.segments.binary_search(&base).is_ok() {
            finish_index(storage, dir, base)?;
        } else {
            recovery::remove(storage, &Kind::SwapIndex.path(dir, base))?;
        }
    }
    for base in std::mem::take(&mut listing.cleaned_indexes) {
        recovery::remove(storage, &Kind::CleanedIndex.path(dir, base))?;
    }
    Ok(())
}

fn rename(storage: &dyn Storage, from: &Path, to: &Path) -> Result<(), StorageError> {
    storage.rename(from, to).map_err(StorageError::at("rename", from))
}

fn rename_if_there(storage: &dyn Storage, from: &Path, to: &Path) -> Result<(), StorageError> {
    match storage.rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(StorageError::at("rename", from)),
    }
}

fn sync_dir(storage: &dyn Storage, dir: &Path) -> Result<(), StorageError> {
    storage.sync_dir(dir).map_err(StorageError::at("sync", dir))
}
