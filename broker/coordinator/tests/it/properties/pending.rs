//! Offsets of transactions among the random events.

use levada_coordinator::{MarkerError, OffsetsMarker, Outcome, PendingError, StandaloneError};
use levada_model::ProducerId;
use proptest::prelude::{Just, Strategy, prop_oneof};

use super::Both;
use super::events::Event;
use crate::kit::producer;

pub(super) fn adds() -> impl Strategy<Value = Event> {
    (0i64..3, epochs(), 0usize..8, 0usize..6, 0u64..20)
        .prop_map(|(producer, epoch, who, partition, offset)| Event::Add { producer, epoch, who, partition, offset })
}

pub(super) fn ends() -> impl Strategy<Value = Event> {
    let coordinator_epoch = prop_oneof![9 => Just(1), 1 => Just(0), 1 => Just(2)];
    let outcome = prop_oneof![3 => Just(Outcome::Commit), 2 => Just(Outcome::Abort)];
    (0i64..3, epochs(), coordinator_epoch, outcome).prop_map(|(producer, epoch, coordinator_epoch, outcome)| {
        Event::End { producer, epoch, coordinator_epoch, outcome }
    })
}

/// How far an epoch is from the one that is right: most often not at all.
fn epochs() -> impl Strategy<Value = i16> {
    prop_oneof![8 => Just(0i16), 1 => Just(-1), 1 => Just(1)]
}

impl Both {
    pub(super) fn add(&mut self, id: i64, step: i16, who: usize, place: usize, offset: u64) {
        let Some(partition) = self.partition(place) else { return };
        let last = self.real.log.last_write(ProducerId(id));
        let right = last.map_or(1, |(epoch, _)| epoch.0);
        let producer = producer(id, (right + step).max(0));
        let holder = self.model.hold.get(&partition).map(|(holder, _)| holder.clone());
        let anybody = self.model.members.keys().nth(who).cloned();
        let by = if who < 3 { holder.or(anybody) } else { anybody };
        let answer = self.real.add_as(by.as_ref().map(|id| id.as_str()), producer, vec![(partition, offset)]);
        let refusal = match &by {
            Some(by) => {
                self.model.alive(by, false);
                let is_held = self.model.hold.get(&partition).is_some_and(|(holder, _)| holder == by);
                (!is_held).then_some(PendingError::NotHeld(vec![0]))
            }
            None => {
                let active = self.model.members.len();
                (active > 0).then_some(PendingError::Standalone(StandaloneError::Active(active)))
            }
        };
        let fenced = match last {
            Some((epoch, _)) if producer.epoch < epoch => Some(PendingError::ProducerFenced),
            Some((epoch, true)) if producer.epoch > epoch => Some(PendingError::TransactionOpen(producer.id)),
            _ => None,
        };
        match refusal.or(fenced) {
            Some(refusal) => assert_eq!((answer, self.real.written), (Err(refusal), 0)),
            None => {
                answer.expect("it is taken");
                self.model.add(id, partition, offset);
            }
        }
    }

    pub(super) fn end(&mut self, id: i64, step: i16, coordinator_epoch: i32, outcome: Outcome) {
        let last = self.real.log.last_write(ProducerId(id));
        let last_marker = self.real.log.last_marker(ProducerId(id));
        let right = last.map_or(1, |(epoch, _)| epoch.0 + 1);
        let marker = OffsetsMarker { producer: producer(id, (right + step).max(0)), coordinator_epoch, outcome };
        let answer = self.real.end_by(marker);
        let epoch = marker.producer.epoch;
        if let Some(before) = last_marker.filter(|before| coordinator_epoch < before.coordinator_epoch) {
            let current = before.coordinator_epoch;
            return assert_eq!(answer, Err(MarkerError::CoordinatorFenced { current }));
        }
        if last_marker.is_some_and(|before| before.producer.epoch == epoch && before.outcome != outcome) {
            return assert_eq!(answer, Err(MarkerError::OtherOutcome));
        }
        assert_eq!(answer, Ok(()));
        let is_new = last.is_none_or(|(last, _)| epoch > last);
        assert_eq!(self.real.written > 0, is_new);
        if is_new {
            self.model.end(id, outcome);
        }
    }
}
