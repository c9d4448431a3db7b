//! The log of a coordinator of groups, said the slow way: every record that ever was, what of them counts, and what a
//! compaction leaves.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use levada_coordinator::{
    Coordinator, CoordinatorOptions, CoordinatorRecord, Now, OffsetsMarker, Outcome, Producer, Step,
    TransactionalAppend,
};
use levada_model::{ProducerEpoch, ProducerId};

/// One entry; its place is its offset.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Record { producer: Option<Producer>, key: Bytes, value: Option<Bytes> },
    Marker(OffsetsMarker),
}

/// All that was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(pub(crate) Vec<Entry>);

/// What a compaction may do as it likes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compaction {
    /// Whether markers stay of which nothing is left, unless they are the last of their producer, which always do.
    pub(crate) markers: bool,
    pub(crate) tombstones: bool,
}

pub(crate) const COMPACTIONS: [Compaction; 3] = [
    Compaction { markers: true, tombstones: true },
    Compaction { markers: false, tombstones: true },
    Compaction { markers: false, tombstones: false },
];

impl Log {
    /// Takes in what a step writes. Whether it is of a transaction.
    pub(crate) fn append<T>(&mut self, step: &Step<T>) -> bool {
        let record = |producer, CoordinatorRecord { key, value }: &CoordinatorRecord| Entry::Record {
            producer,
            key: key.clone(),
            value: value.clone(),
        };
        self.0.extend(step.records.iter().map(|plain| record(None, plain)));
        assert!(step.transactional.is_none() || step.records.is_empty(), "a step is one batch");
        match &step.transactional {
            Some(TransactionalAppend::Offsets { producer, records }) => {
                assert!(!records.is_empty(), "a batch has records");
                self.0.extend(records.iter().map(|record_of| record(Some(*producer), record_of)));
            }
            Some(TransactionalAppend::Marker(marker)) => self.0.push(Entry::Marker(*marker)),
            None => return false,
        }
        true
    }

    /// The place of the marker that ends the transaction of an entry.
    fn end(&self, producer: Producer, place: usize) -> Option<(usize, Outcome)> {
        self.0.iter().enumerate().skip(place).find_map(|(at, entry)| match entry {
            Entry::Marker(marker) if marker.producer.id == producer.id => {
                assert!(
                    marker.producer.epoch > producer.epoch,
                    "an end of an earlier transaction touches no later one"
                );
                Some((at, marker.outcome))
            }
            _ => None,
        })
    }

    /// The first place that is not decided.
    fn last_stable(&self) -> usize {
        let undecided = |(place, entry): &(usize, &Entry)| match entry {
            Entry::Record { producer: Some(producer), .. } => self.end(*producer, *place).is_none(),
            _ => false,
        };
        self.0.iter().enumerate().find(undecided).map_or(self.0.len(), |(place, _)| place)
    }

    fn counts(&self, place: usize) -> bool {
        match &self.0[place] {
            Entry::Record { producer: None, .. } => true,
            Entry::Record { producer: Some(producer), .. } => {
                self.end(*producer, place).is_some_and(|(_, outcome)| outcome == Outcome::Commit)
            }
            Entry::Marker(_) => false,
        }
    }

    /// The newest record of each key that counts.
    pub(crate) fn visible(&self) -> BTreeMap<Bytes, Bytes> {
        let mut visible = BTreeMap::new();
        for (place, entry) in self.0.iter().enumerate() {
            let Entry::Record { key, value, .. } = entry else { continue };
            match value {
                _ if !self.counts(place) => {}
                Some(value) => drop(visible.insert(key.clone(), value.clone())),
                None => drop(visible.remove(key)),
            }
        }
        visible
    }

    /// Whether a transaction that is open has, or had, something of the key.
    pub(crate) fn is_pending(&self, key: &Bytes) -> bool {
        self.0.iter().any(|entry| matches!(entry, Entry::Record { producer: Some(_), key: of, .. } if of == key))
    }

    /// What the log's compaction leaves: all from the last stable offset on, and below it the newest record of each key
    /// that counts, with the markers of what is left.
    pub(crate) fn compacted(&self, how: Compaction) -> Self {
        let last_stable = self.last_stable();
        let mut newest = BTreeMap::new();
        let mut last_markers = BTreeMap::new();
        for (place, entry) in self.0.iter().enumerate() {
            match entry {
                Entry::Record { key, .. } if place < last_stable && self.counts(place) => {
                    newest.insert(key.clone(), place);
                }
                Entry::Record { .. } => {}
                Entry::Marker(marker) => drop(last_markers.insert(marker.producer.id, place)),
            }
        }
        let mut kept: BTreeSet<usize> = newest.into_values().chain(last_stable..self.0.len()).collect();
        let is_tombstone = |place: &usize| matches!(&self.0[*place], Entry::Record { value: None, .. });
        kept.retain(|place| how.tombstones || *place >= last_stable || !is_tombstone(place));
        let ends = kept.iter().filter_map(|place| match &self.0[*place] {
            Entry::Record { producer: Some(producer), .. } => self.end(*producer, *place).map(|(end, _)| end),
            _ => None,
        });
        let ends: Vec<_> = ends.chain(last_markers.into_values()).collect();
        kept.extend(ends);
        if how.markers {
            kept.extend((0..self.0.len()).filter(|place| matches!(self.0[*place], Entry::Marker(_))));
        }
        Self(kept.into_iter().map(|place| self.0[place].clone()).collect())
    }

    /// A coordinator that has read it, and has not begun.
    pub(crate) fn replayed(&self, options: &CoordinatorOptions) -> Coordinator {
        let mut coordinator = Coordinator::new(options.clone());
        for entry in &self.0 {
            match entry {
                Entry::Record { producer: Some(producer), key, value } => {
                    let taken = coordinator.replay_transactional(*producer, key, value.as_deref());
                    taken.expect("it can be read");
                }
                Entry::Record { producer: None, key, value } => {
                    coordinator.replay(key, value.as_deref()).expect("it can be read");
                }
                Entry::Marker(marker) => coordinator.replay_marker(*marker),
            }
        }
        coordinator
    }

    /// The producers with an open transaction, and their epochs.
    pub(crate) fn open(&self) -> Vec<Producer> {
        let mut open = BTreeMap::new();
        for entry in &self.0 {
            match entry {
                Entry::Record { producer: Some(producer), .. } => drop(open.insert(producer.id, producer.epoch)),
                Entry::Marker(marker) => drop(open.remove(&marker.producer.id)),
                Entry::Record { .. } => {}
            }
        }
        open.into_iter().map(|(id, epoch)| Producer { id, epoch }).collect()
    }

    /// The epoch of the last write of a producer, and whether its transaction is open.
    pub(crate) fn last_write(&self, id: ProducerId) -> Option<(ProducerEpoch, bool)> {
        self.0.iter().rev().find_map(|entry| match entry {
            Entry::Record { producer: Some(producer), .. } if producer.id == id => Some((producer.epoch, true)),
            Entry::Marker(marker) if marker.producer.id == id => Some((marker.producer.epoch, false)),
            _ => None,
        })
    }

    /// The last marker of a producer.
    pub(crate) fn last_marker(&self, id: ProducerId) -> Option<OffsetsMarker> {
        self.0.iter().rev().find_map(|entry| match entry {
            Entry::Marker(marker) if marker.producer.id == id => Some(*marker),
            _ => None,
        })
    }

    /// A coordinator that reads the log, whatever a compaction has left of it, is the one that wrote it: it knows the same,
    /// however the open transactions end.
    pub(crate) fn check_replays(&self, live: &Coordinator, now: Now, options: &CoordinatorOptions) {
        let logs = COMPACTIONS.iter().map(|how| self.compacted(*how)).chain([self.clone()]);
        for log in logs {
            assert_eq!(log.visible(), self.visible(), "the compaction of the model is one");
            let replayed = log.replayed(options);
            same(live, &replayed, now, &self.open());
        }
    }
}

/// Whether two coordinators know the same, also when the open transactions end in any order, each in either way.
fn same(one: &Coordinator, other: &Coordinator, now: Now, open: &[Producer]) {
    assert_eq!(one.records(), other.records());
    let names =
        |coordinator: &Coordinator| coordinator.groups().into_iter().map(|group| group.group).collect::<Vec<_>>();
    assert_eq!(names(one), names(other));
    for group in names(one) {
        let members = one.group(&group).into_iter().flat_map(|group| group.members);
        for member in members.map(|member| member.view.member_id) {
            assert_eq!(one.holdings(&group, &member), other.holdings(&group, &member));
        }
    }
    for (place, producer) in open.iter().enumerate() {
        let rest: Vec<_> = open.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, rest)| *rest).collect();
        for outcome in [Outcome::Commit, Outcome::Abort] {
            let (mut one, mut other) = (one.clone(), other.clone());
            for coordinator in [&mut one, &mut other] {
                let next = Producer { epoch: ProducerEpoch(producer.epoch.0 + 1), ..*producer };
                let marker = OffsetsMarker { producer: next, coordinator_epoch: i32::MAX, outcome };
                let step = coordinator.end_transaction(now, marker);
                assert_eq!((step.answer, step.transactional), (Ok(()), Some(TransactionalAppend::Marker(marker))));
            }
            same(&one, &other, now, &rest);
        }
    }
}
