//! What many records of a group add up to.

mod count;
mod extreme;
mod native;
mod sum;

use bytes::Bytes;
use levada_model::Timestamp;

use crate::{CallBatch, ModuleFault, Moment};

pub use native::NativeAggregator;

/// Folds the records of groups into accumulators, and says what these are worth.
///
/// Duties: it keeps nothing between calls, so that any call can be repeated; one answer a group, in order (with
/// `each_record` one a record, group by group); folding records in one call or in several is the same; `merge` of
/// accumulators is worth what folding all their records is, and `subtract` undoes `fold`. `merge`, `subtract` and `migrate`
/// may be [`Unsupported`](ModuleFault::Unsupported).
pub trait Aggregator: Send + Sync {
    /// The version of its accumulators.
    fn state_version(&self) -> u32;

    /// The accumulators after the groups' records, whose places are those of `batch`. A group brings one accumulator, or
    /// none when it is new.
    ///
    /// # Errors
    /// When there is no answer. One group or record may be the cause: smaller calls find it.
    fn fold(&self, groups: &Groups, batch: &CallBatch, each_record: bool) -> Result<Vec<Bytes>, ModuleFault>;

    /// The value of each group's one accumulator, as JSON text; none where there is no row.
    ///
    /// # Errors
    /// When there is no answer.
    fn result(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault>;

    /// One accumulator for each group out of its two or more, which come in order of time.
    ///
    /// # Errors
    /// When there is no answer.
    fn merge(&self, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault>;

    /// The accumulators without the groups' records, which were folded in before.
    ///
    /// # Errors
    /// When there is no answer.
    fn subtract(&self, groups: &Groups, batch: &CallBatch) -> Result<Vec<Bytes>, ModuleFault>;

    /// The last value of each group, whose window has closed.
    ///
    /// # Errors
    /// When there is no answer.
    fn close(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault>;

    /// The groups' accumulators, which `from_version` wrote, in the present version.
    ///
    /// # Errors
    /// When there is no answer.
    fn migrate(&self, from_version: u32, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault>;
}

/// The groups of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Time and seed.
    pub moment: Moment,
    /// In any order.
    pub groups: Vec<Group>,
}

/// A group that a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its key as text.
    pub key: String,
    /// Its window, if there are windows.
    pub window: Option<GroupWindow>,
    /// As many as the call takes.
    pub accumulators: Vec<Bytes>,
    /// Its records by their places in the batch, ascending; only in `fold` and `subtract`.
    pub records: Vec<u32>,
}

/// Which window a group is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupWindow {
    /// Its first millisecond.
    pub start: Timestamp,
    /// Where it ends, as its kind of window counts.
    pub end: Timestamp,
}

impl Groups {
    /// How many answers a `fold` of these has.
    #[must_use]
    pub fn fold_answers(&self, each_record: bool) -> usize {
        match each_record {
            true => self.groups.iter().map(|group| group.records.len()).sum(),
            false => self.groups.len(),
        }
    }
}
