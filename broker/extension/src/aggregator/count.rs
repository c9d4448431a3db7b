//! How many records there are. Accumulator: u64, little-endian.

use bytes::Bytes;

use super::native::Fold;
use crate::CallRecord;

pub(super) struct Count;

impl Fold for Count {
    type State = u64;

    fn empty(&self) -> u64 {
        0
    }

    fn read(&self, bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    fn write(&self, state: &u64) -> Bytes {
        Bytes::copy_from_slice(&state.to_le_bytes())
    }

    fn add(&self, state: &mut u64, _: &CallRecord<'_>) {
        *state = state.saturating_add(1);
    }

    fn remove(&self, state: &mut u64, _: &CallRecord<'_>) -> Option<()> {
        *state = state.saturating_sub(1);
        Some(())
    }

    fn merge(&self, state: &mut u64, later: u64) {
        *state = state.saturating_add(later);
    }

    fn value(&self, state: &u64) -> String {
        state.to_string()
    }
}
