//! Which leader epoch began at which offset (KIP-101).

use std::sync::Arc;

use levada_model::{LeaderEpoch, Offset};

/// Most epochs that are kept; what lies before the oldest one is looked up in the log.
pub(super) const EPOCHS_MAX: usize = 32;

/// The first offset that was written under an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpochStart {
    pub(super) epoch: LeaderEpoch,
    pub(super) offset: Offset,
}

/// The newest epochs with their starts, both rising. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Epochs(Arc<Vec<EpochStart>>);

impl Epochs {
    /// The starts, oldest first.
    pub(super) fn newest(&self) -> &[EpochStart] {
        &self.0
    }

    /// The epoch of the last append, if any is known.
    pub(super) fn latest(&self) -> Option<LeaderEpoch> {
        self.0.last().map(|start| start.epoch)
    }

    /// The epoch in force at `offset`; none if it began before the oldest that is kept.
    pub(super) fn at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.0.partition_point(|start| start.offset <= offset);
        after.checked_sub(1).map(|index| self.0[index].epoch)
    }

    /// Whether a batch of `epoch` may lie at `offset`, given that newer epochs than those known may have begun there.
    pub(super) fn may_be(&self, offset: Offset, epoch: LeaderEpoch) -> bool {
        match (self.at(offset), self.0.last()) {
            (Some(_), Some(last)) if last.offset <= offset => last.epoch <= epoch,
            (known, _) => known.is_none_or(|known| known == epoch),
        }
    }

    /// Notes that a batch of `epoch` lies at `offset`; true if that began a new epoch.
    pub(super) fn note(&mut self, epoch: LeaderEpoch, offset: Offset) -> bool {
        if self.latest().is_some_and(|latest| latest >= epoch) {
            return false;
        }
        let starts = Arc::make_mut(&mut self.0);
        // An epoch under which nothing was written leaves no trace.
        starts.retain(|start| start.offset < offset);
        if starts.len() == EPOCHS_MAX {
            starts.remove(0);
        }
        starts.push(EpochStart { epoch, offset });
        true
    }

    /// Forgets epochs that begin at or beyond `end`: their batches are gone.
    pub(super) fn cut(&mut self, end: Offset) {
        Arc::make_mut(&mut self.0).retain(|start| start.offset < end);
    }
}

impl FromIterator<EpochStart> for Epochs {
    fn from_iter<I: IntoIterator<Item = EpochStart>>(starts: I) -> Self {
        Self(Arc::new(starts.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(notes: &[(i32, u64)]) -> Epochs {
        let mut epochs = Epochs::default();
        for (epoch, offset) in notes {
            epochs.note(LeaderEpoch(*epoch), Offset(*offset));
        }
        epochs
    }

    #[test]
    fn an_offset_has_the_epoch_that_began_last_before_it() {
        let epochs = noted(&[(1, 10), (1, 12), (4, 20)]);
        let at = |offset| epochs.at(Offset(offset)).map(|epoch| epoch.0);
        assert_eq!([at(9), at(10), at(19), at(20), at(99)], [None, Some(1), Some(1), Some(4), Some(4)]);
    }

    #[test]
    fn only_behind_the_last_start_may_a_newer_epoch_be() {
        let epochs = noted(&[(1, 10), (4, 20)]);
        let may_be = |offset, epoch| epochs.may_be(Offset(offset), LeaderEpoch(epoch));
        assert!(may_be(12, 1) && may_be(20, 4) && may_be(25, 5) && may_be(5, 7));
        assert!(!may_be(12, 0) && !may_be(12, 4) && !may_be(20, 1));
    }

    #[test]
    fn an_epoch_without_a_batch_leaves_no_trace() {
        assert_eq!(noted(&[(1, 0), (2, 5), (3, 5)]), noted(&[(1, 0), (3, 5)]));
        let mut epochs = noted(&[(1, 0), (2, 5)]);
        epochs.cut(Offset(5));
        assert_eq!(epochs, noted(&[(1, 0)]));
    }

    #[test]
    fn no_more_than_the_newest_epochs_are_kept() {
        let epochs = noted(&(0..100).map(|n| (n, u64::try_from(n).expect("positive"))).collect::<Vec<_>>());
        assert_eq!(epochs.newest().len(), EPOCHS_MAX);
        assert_eq!(epochs.at(Offset(99)), Some(LeaderEpoch(99)));
        assert_eq!(epochs.at(Offset(0)), None);
    }
}
