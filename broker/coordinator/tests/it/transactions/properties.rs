//! Random events against the naive model, with invariants after every step.

use std::collections::BTreeSet;

use levada_coordinator::{AddError, EndError, Outcome, Participants, Producer, Progress, WriteMarkers};
use levada_model::{ProducerEpoch, ProducerId};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};

use super::kit::{OPTIONS, PATIENCE_MS, TIMEOUT_MS, World, handle, off, participants, transactional_id};
use super::model::{Answer, Fate, Model};

const IDS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Event {
    Init {
        id: usize,
    },
    Begin {
        who: usize,
    },
    Add {
        who: usize,
        partition: u32,
    },
    AddGroup {
        who: usize,
    },
    End {
        who: usize,
        commits: bool,
    },
    Write {
        which: usize,
    },
    WritePart {
        which: usize,
    },
    Fail {
        which: usize,
    },
    Lose {
        which: usize,
    },
    Late {
        who: usize,
    },
    /// Somebody makes up an epoch, this far from one that was given out.
    Forged {
        who: usize,
        by: i16,
        commits: bool,
    },
    Pass {
        millis: u64,
    },
    SetWall {
        by: i64,
    },
    Restart,
}

fn events() -> impl Strategy<Value = Event> {
    // Of whom: the place among all that were ever given out, the newest first.
    let who = || prop_oneof![6 => 0usize..2, 2 => 2usize..6];
    let which = || 0usize..4;
    prop_oneof![
        3 => (0usize..2).prop_map(|id| Event::Init { id }),
        5 => who().prop_map(|who| Event::Begin { who }),
        6 => (who(), 0u32..3).prop_map(|(who, partition)| Event::Add { who, partition }),
        2 => who().prop_map(|who| Event::AddGroup { who }),
        6 => (who(), any::<bool>()).prop_map(|(who, commits)| Event::End { who, commits }),
        6 => which().prop_map(|which| Event::Write { which }),
        2 => which().prop_map(|which| Event::WritePart { which }),
        2 => which().prop_map(|which| Event::Fail { which }),
        1 => which().prop_map(|which| Event::Lose { which }),
        1 => who().prop_map(|who| Event::Late { who }),
        2 => (who(), -2i16..4, any::<bool>()).prop_map(|(who, by, commits)| Event::Forged { who, by, commits }),
        4 => (1u64..6).prop_map(|steps| Event::Pass { millis: steps * 1_000 }),
        1 => Just(Event::Pass { millis: TIMEOUT_MS }),
        1 => Just(Event::Pass { millis: OPTIONS.id_expiration_ms }),
        1 => (-30i64..30).prop_map(|by| Event::SetWall { by: by * 1_000 }),
        3 => Just(Event::Restart),
    ]
}

/// The coordinator and the model side by side.
struct Both {
    real: World,
    model: Model,
    /// All that were ever given out.
    given: Vec<Producer>,
}

impl Both {
    fn new() -> Self {
        Self { real: World::new(), model: Model::default(), given: Vec::new() }
    }

    fn now(&self) -> (u64, i64) {
        (self.real.tick, self.real.wall)
    }

    fn who(&self, who: usize) -> Option<Producer> {
        self.given.iter().rev().nth(who).copied()
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Init { id } => self.init(IDS[id]),
            Event::Pass { millis } => self.pass(millis),
            Event::SetWall { by } => self.real.wall += by,
            Event::Restart => {
                self.real.restart();
                self.model.restart(self.now());
                self.tick();
            }
            Event::Forged { who, by, commits } => {
                let nobody = Producer { id: ProducerId(5), epoch: ProducerEpoch(0) };
                self.forged(self.who(who).map_or(nobody, |producer| off(producer, by)), commits);
            }
            Event::Write { which } | Event::WritePart { which } | Event::Fail { which } | Event::Lose { which } => {
                if !self.real.sent.is_empty() {
                    self.marker(event, which % self.real.sent.len());
                }
            }
            Event::Begin { who }
            | Event::Add { who, .. }
            | Event::AddGroup { who }
            | Event::End { who, .. }
            | Event::Late { who } => {
                if let Some(producer) = self.who(who) {
                    self.of(event, producer);
                }
            }
        }
        self.check();
    }

    /// What a producer does, or somebody does to its transaction.
    fn of(&mut self, event: &Event, producer: Producer) {
        let (now, transaction) = (self.now(), handle(producer));
        match *event {
            Event::Begin { .. } => {
                let expected = self.model.begin(now, producer).map(|()| transaction);
                assert_eq!(self.real.begin(producer), expected);
            }
            Event::Add { partition, .. } => {
                let expected = self.model.add(now, producer, &participants(&[partition], &[]));
                assert_eq!(self.real.add(transaction, &[partition]), expected.map_err(AddError::from));
            }
            Event::AddGroup { .. } => {
                let expected = self.model.add(now, producer, &participants(&[], &["g"]));
                assert_eq!(self.real.add_group(transaction, "g"), expected.map_err(AddError::from));
            }
            Event::End { commits, .. } => self.end(producer, if commits { Outcome::Commit } else { Outcome::Abort }),
            Event::Late { .. } if !matches!(self.fate(producer), Fate::Ending { .. }) => {
                let all = participants(&[0, 1, 2], &["g"]);
                let step = self.real.coordinator.markers_written(self.real.now(), transaction, &all);
                assert!(step.records.is_empty() && step.completed.is_empty());
            }
            _ => {}
        }
    }

    fn fate(&self, producer: Producer) -> Fate {
        let id = self.model.find(producer).expect("it was given out");
        self.model.ids[id].fates[&producer].clone()
    }

    fn init(&mut self, id: &'static str) {
        let (now, was_forgotten) = (self.now(), self.model.is_forgotten(id));
        let expected = self.model.init(now, id);
        let answer = self.real.init(id).expect("it may start");
        if let Progress::Done(producer) = answer {
            self.model.given(id, producer);
            assert!(!was_forgotten || producer.epoch == ProducerEpoch(0), "{producer:?}");
        }
        assert_eq!(simple(answer).map(drop), expected);
    }

    fn end(&mut self, producer: Producer, outcome: Outcome) {
        let expected = self.model.end(self.now(), producer, outcome);
        let answer = self.real.end(handle(producer), outcome);
        match (answer, expected) {
            (Ok(Progress::Done(next)), Ok(Answer::Done(expected))) => {
                assert_eq!(Some(next), expected.or_else(|| self.next(producer)));
            }
            (Ok(Progress::Wait(id)), Ok(Answer::Wait)) => {
                assert_eq!(Some(id), self.model.find(producer).map(transactional_id));
            }
            (answer, expected) => assert_eq!(answer.err(), expected.err().map(EndError::from)),
        }
    }

    /// What was answered to the end of a transaction.
    fn next(&self, producer: Producer) -> Option<Producer> {
        match self.fate(producer) {
            Fate::Ended { next, .. } => Some(next),
            _ => None,
        }
    }

    /// A producer id and epoch that somebody made up.
    fn forged(&mut self, producer: Producer, commits: bool) {
        if self.model.find(producer).is_some() {
            return;
        }
        let before = (self.real.written, self.real.sent.len());
        self.real.begin(producer).expect_err("nobody was given it");
        self.real.add(handle(producer), &[0]).expect_err("nobody was given it");
        let outcome = if commits { Outcome::Commit } else { Outcome::Abort };
        self.real.end(handle(producer), outcome).expect_err("nobody was given it");
        assert_eq!((self.real.written, self.real.sent.len()), before);
    }

    fn marker(&mut self, event: &Event, index: usize) {
        let sent = self.real.sent[index].clone();
        let of = sent.transaction;
        let producer = Producer { id: of.producer_id, epoch: of.producer_epoch };
        let (outcome, all) = self.model.outcomes.get(&producer).expect("an outcome stands");
        assert_eq!(sent.outcome, *outcome, "one outcome a transaction");
        assert!(sent.participants.partitions.is_subset(&all.partitions));
        assert!(sent.participants.groups.is_subset(&all.groups));
        let completed = self.real.completed.len();
        let mut is_done = false;
        match event {
            Event::Write { .. } => {
                is_done = self.model.markers(self.now(), producer, &sent.participants);
                self.real.write(index);
            }
            Event::WritePart { .. } => {
                let part = sent.participants.partitions.first().copied();
                let part = Participants { partitions: part.into_iter().collect(), ..Participants::default() };
                is_done = self.model.markers(self.now(), producer, &part);
                self.real.note_written(&WriteMarkers { participants: part.clone(), ..sent });
                let step = self.real.coordinator.markers_written(self.real.now(), of, &part);
                self.real.take(step);
            }
            Event::Fail { .. } => self.real.fail(index),
            _ => drop(self.real.sent.remove(index)),
        }
        assert_eq!(self.real.completed.len() > completed, is_done);
    }

    fn pass(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(1_000) {
            self.real.pass(1_000);
            self.tick();
            self.note_written();
        }
    }

    fn tick(&mut self) {
        self.model.tick(self.now());
        let step = self.real.coordinator.tick(self.real.now());
        self.real.take(step);
    }

    /// Notes when the ids' records were written, and what was given out.
    fn note_written(&mut self) {
        for (id, named) in &mut self.model.ids {
            let written = self.real.written_at.iter().find(|(key, _)| key.ends_with(id.as_bytes()));
            named.written_at = written.map_or(0, |(_, wall)| *wall);
        }
        let all = self.model.ids.values().flat_map(|named| named.fates.keys().copied());
        let new: Vec<_> = all.filter(|producer| !self.given.contains(producer)).collect();
        self.given.extend(new);
    }

    fn check(&mut self) {
        self.note_written();
        self.real.check_log();
        let open: BTreeSet<_> =
            self.real.open().into_iter().map(|open| (open.producer_id, open.producer_epoch)).collect();
        let expected = self.model.open().into_iter().map(|producer| (producer.id, producer.epoch)).collect();
        assert_eq!(open, expected);
        for id in IDS {
            let is_known = self.real.log.keys().any(|key| key.ends_with(id.as_bytes()));
            assert_eq!(is_known, !self.model.is_forgotten(id), "{id}");
        }
        let open = self.real.coordinator.open_ids(None, usize::MAX);
        assert_eq!(self.real.coordinator.open_count(), open.len());
        let rests = open.is_empty();
        assert!(rests || self.real.coordinator.next_due().is_some(), "something is due as long as something is open");
    }

    /// With markers that are written and time that passes everything comes to its end.
    fn come_to_rest(&mut self) {
        self.pass(TIMEOUT_MS);
        for _ in 0..2 {
            while !self.real.sent.is_empty() {
                self.marker(&Event::Write { which: 0 }, 0);
            }
            self.pass(PATIENCE_MS);
        }
        self.check();
        assert!(self.real.open().is_empty(), "nothing is stuck");
        for (producer, (outcome, all)) in &self.model.outcomes {
            let marked = self.real.marked(handle(*producer)).expect("it has markers");
            assert_eq!(marked, (all.clone(), *outcome), "all have its marker, and nobody else has");
        }
        let added = self.given.iter().filter(|producer| self.real.markers.contains_key(&handle(**producer)));
        assert_eq!(added.count(), self.model.outcomes.len());
        for id in IDS {
            self.real.started(id);
        }
    }
}

fn simple<T>(progress: Progress<T>) -> Answer<T> {
    match progress {
        Progress::Done(done) => Answer::Done(done),
        Progress::Wait(_) => Answer::Wait,
    }
}

impl<T> Answer<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Done(done) => Answer::Done(with(done)),
            Self::Wait => Answer::Wait,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_model_says_the_same_and_everything_comes_to_its_end(
        events in proptest::collection::vec(events(), 1..80),
    ) {
        let mut both = Both::new();
        events.iter().for_each(|event| both.apply(event));
        both.come_to_rest();
    }
}
