//! A naive model of the coordinator of transactions: what became of every epoch that was ever given out.

use std::collections::{BTreeMap, BTreeSet};

use levada_coordinator::{BeginError, Outcome, Participants, Producer, TransactionError};

use levada_model::ProducerEpoch;

use super::kit::{OPTIONS, TIMEOUT_MS};

/// What became of an epoch that was given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its transaction may begin.
    Given,
    /// Its transaction has begun.
    Open { since_wall: i64, participants: Participants, until: u64 },
    /// Its outcome stands.
    Ending { outcome: Outcome, fences: bool, missing: Participants },
    /// It was the last to end, and this was answered.
    Ended { outcome: Outcome, next: Producer },
    /// It is of no use any more.
    Fenced,
    /// Its id was forgotten.
    Forgotten,
}

/// What is known of one transactional id.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    pub(super) fates: BTreeMap<Producer, Fate>,
    /// When it is forgotten, while there is no transaction.
    pub(super) forget_at: u64,
    pub(super) written_at: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) ids: BTreeMap<&'static str, Named>,
    /// The outcome of every transaction that ever had something in it, from when it stood.
    pub(super) outcomes: BTreeMap<Producer, (Outcome, Participants)>,
}

/// What is answered at once or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<T> {
    Done(T),
    Wait,
}

impl Model {
    /// Whose the epoch is, if it was ever given out.
    pub(super) fn find(&self, producer: Producer) -> Option<&'static str> {
        let mut found = self.ids.iter().filter(|(_, named)| named.fates.contains_key(&producer));
        found.next().map(|(id, _)| *id)
    }

    fn fate(&mut self, producer: Producer) -> &mut Fate {
        let mut all = self.ids.values_mut();
        all.find_map(|named| named.fates.get_mut(&producer)).expect("it was given out")
    }

    /// What the start of a producer is answered: whether it waits. What it gets is told with [`Self::given`].
    pub(super) fn init(&mut self, now: (u64, i64), id: &'static str) -> Answer<()> {
        let named = self.ids.entry(id).or_default();
        for (producer, fate) in &mut named.fates {
            match fate {
                Fate::Ending { .. } => return Answer::Wait,
                Fate::Open { participants, .. } if !participants.is_empty() => {
                    let participants = participants.clone();
                    self.outcomes.insert(*producer, (Outcome::Abort, participants.clone()));
                    *fate = Fate::Ending { outcome: Outcome::Abort, fences: true, missing: participants };
                    return Answer::Wait;
                }
                _ => {}
            }
        }
        for fate in named.fates.values_mut() {
            if matches!(fate, Fate::Given | Fate::Open { .. }) {
                *fate = Fate::Fenced;
            }
        }
        named.forget_at = now.0 + OPTIONS.id_expiration_ms;
        Answer::Done(())
    }

    /// An epoch was given out: one that nobody had, above all others of its producer id.
    pub(super) fn given(&mut self, id: &'static str, producer: Producer) {
        assert_eq!(self.find(producer), None, "{producer:?} was given out before");
        let named = self.ids.get_mut(id).expect("it was started");
        let older = named.fates.keys().filter(|older| older.id == producer.id);
        assert!(older.max().is_none_or(|older| *older < producer), "{producer:?} is an old one");
        named.fates.insert(producer, Fate::Given);
    }

    pub(super) fn begin(&mut self, now: (u64, i64), producer: Producer) -> Result<(), BeginError> {
        let fate = self.fate(producer);
        match fate {
            Fate::Given => {
                *fate = opened(now);
                Ok(())
            }
            Fate::Open { .. } => Ok(()),
            Fate::Ending { fences: false, .. } => Err(BeginError::ConcurrentTransactions),
            Fate::Ending { .. } | Fate::Ended { .. } | Fate::Fenced => Err(BeginError::ProducerFenced),
            Fate::Forgotten => Err(BeginError::UnknownProducer),
        }
    }

    pub(super) fn add(
        &mut self,
        now: (u64, i64),
        producer: Producer,
        more: &Participants,
    ) -> Result<(), TransactionError> {
        let fate = self.fate(producer);
        admit(fate)?;
        if *fate == Fate::Given {
            *fate = opened(now);
        }
        let Fate::Open { participants, .. } = fate else { unreachable!("admitted") };
        participants.partitions.extend(&more.partitions);
        participants.groups.extend(more.groups.iter().cloned());
        Ok(())
    }

    /// What an end is answered: whether it waits. What it gets is told with [`Self::answered`].
    pub(super) fn end(
        &mut self,
        now: (u64, i64),
        producer: Producer,
        outcome: Outcome,
    ) -> Result<Answer<Option<Producer>>, TransactionError> {
        match self.fate(producer) {
            Fate::Ending { outcome: ending, fences: false, .. } if *ending == outcome => return Ok(Answer::Wait),
            Fate::Ended { outcome: ended, next } if *ended == outcome => return Ok(Answer::Done(Some(*next))),
            fate => admit(fate)?,
        }
        Ok(if self.finish(now, producer, outcome) { Answer::Wait } else { Answer::Done(None) })
    }

    /// Decides an outcome; whether markers are needed.
    fn finish(&mut self, now: (u64, i64), producer: Producer, outcome: Outcome) -> bool {
        let fate = self.fate(producer);
        let missing = match fate {
            Fate::Open { participants, .. } => participants.clone(),
            Fate::Given => Participants::default(),
            other => unreachable!("{other:?} does not end"),
        };
        *fate = Fate::Ending { outcome, fences: false, missing: missing.clone() };
        if missing.is_empty() {
            self.close(now, producer);
            return false;
        }
        self.outcomes.insert(producer, (outcome, missing));
        true
    }

    /// Markers were written; whether these were the last ones.
    pub(super) fn markers(&mut self, now: (u64, i64), producer: Producer, written: &Participants) -> bool {
        if self.find(producer).is_none() {
            return false;
        }
        let Fate::Ending { missing, .. } = self.fate(producer) else { return false };
        missing.partitions.retain(|partition| !written.partitions.contains(partition));
        missing.groups.retain(|group| !written.groups.contains(group));
        let is_done = missing.is_empty();
        if is_done {
            self.close(now, producer);
        }
        is_done
    }

    fn close(&mut self, now: (u64, i64), producer: Producer) {
        let id = self.find(producer).expect("it was given out");
        let named = self.ids.get_mut(id).expect("found");
        named.forget_at = now.0 + OPTIONS.id_expiration_ms;
        let Some(Fate::Ending { outcome, fences, .. }) = named.fates.get(&producer).cloned() else {
            unreachable!("only an end is closed")
        };
        for fate in named.fates.values_mut() {
            if matches!(fate, Fate::Ended { .. }) {
                *fate = Fate::Fenced;
            }
        }
        if fences {
            named.fates.insert(producer, Fate::Fenced);
            return;
        }
        let next = Producer { epoch: ProducerEpoch(producer.epoch.0 + 1), ..producer };
        named.fates.insert(producer, Fate::Ended { outcome, next });
        self.given(id, next);
    }

    /// Time has passed: what is over is aborted, and ids that were not used are forgotten.
    pub(super) fn tick(&mut self, now: (u64, i64)) {
        let over = |fate: &Fate| matches!(fate, Fate::Open { until, .. } if *until <= now.0);
        let all = self.ids.values().flat_map(|named| &named.fates);
        let over: Vec<_> = all.filter(|(_, fate)| over(fate)).map(|(producer, _)| *producer).collect();
        for producer in over {
            self.finish(now, producer, Outcome::Abort);
        }
        for named in self.ids.values_mut() {
            let rests = !named.fates.values().any(|fate| matches!(fate, Fate::Open { .. } | Fate::Ending { .. }));
            if rests && named.forget_at <= now.0 {
                named.fates.values_mut().for_each(|fate| *fate = Fate::Forgotten);
            }
        }
    }

    /// The coordinator was loaded anew: who was told to have begun and has nothing in it has to begin again.
    pub(super) fn restart(&mut self, now: (u64, i64)) {
        let rest = |since: i64, millis: u64| {
            let passed = u64::try_from(now.1 - since).unwrap_or(0);
            now.0 + millis.saturating_sub(passed)
        };
        for named in self.ids.values_mut() {
            named.forget_at = rest(named.written_at, OPTIONS.id_expiration_ms);
            for fate in named.fates.values_mut() {
                match fate {
                    Fate::Open { participants, .. } if participants.is_empty() => *fate = Fate::Given,
                    Fate::Open { since_wall, until, .. } => *until = rest(*since_wall, TIMEOUT_MS),
                    _ => {}
                }
            }
        }
    }

    /// What is open or being ended.
    pub(super) fn open(&self) -> BTreeSet<Producer> {
        let all = self.ids.values().flat_map(|named| &named.fates);
        let open = all.filter(|(_, fate)| matches!(fate, Fate::Open { .. } | Fate::Ending { .. }));
        open.map(|(producer, _)| *producer).collect()
    }

    /// Whether nothing is left of an id.
    pub(super) fn is_forgotten(&self, id: &str) -> bool {
        self.ids.get(id).is_none_or(|named| named.fates.values().all(|fate| *fate == Fate::Forgotten))
    }
}

fn opened(now: (u64, i64)) -> Fate {
    Fate::Open { since_wall: now.1, participants: Participants::default(), until: now.0 + TIMEOUT_MS }
}

fn admit(fate: &Fate) -> Result<(), TransactionError> {
    match fate {
        Fate::Given | Fate::Open { .. } => Ok(()),
        Fate::Ending { fences: true, .. } | Fate::Fenced => Err(TransactionError::ProducerFenced),
        Fate::Ending { outcome, .. } | Fate::Ended { outcome, .. } => {
            Err(TransactionError::TransactionEnded { outcome: *outcome })
        }
        Fate::Forgotten => Err(TransactionError::UnknownTransaction),
    }
}
