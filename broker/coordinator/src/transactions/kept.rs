//! The broker's own ids that have no transaction, and with them the answers that are kept: the oldest go first when they
//! take too much room.

use std::collections::BTreeMap;

use levada_model::TransactionalId;

/// Ids by the time when their last transaction ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    by_age: BTreeMap<u64, TransactionalId>,
    /// Where an id is in that order, and the bytes that it takes.
    places: BTreeMap<TransactionalId, (u64, usize)>,
    next: u64,
    bytes: usize,
}

impl Kept {
    /// Puts `id` in as the newest if it is not in there, or (none) takes it out.
    pub(super) fn set(&mut self, id: &TransactionalId, bytes: Option<usize>) {
        if bytes == self.places.get(id).map(|(_, bytes)| *bytes) {
            return;
        }
        if let Some((place, bytes)) = self.places.remove(id) {
            self.by_age.remove(&place);
            self.bytes -= bytes;
        }
        if let Some(bytes) = bytes {
            self.places.insert(id.clone(), (self.next, bytes));
            self.by_age.insert(self.next, id.clone());
            self.next += 1;
            self.bytes += bytes;
        }
    }

    /// The oldest, if all together take more than `bytes_max`. The newest is never too old.
    pub(super) fn excess(&self, bytes_max: usize) -> Option<TransactionalId> {
        let oldest = self.by_age.first_key_value().map(|(_, id)| id)?;
        (self.bytes > bytes_max && self.by_age.len() > 1).then(|| oldest.clone())
    }
}
