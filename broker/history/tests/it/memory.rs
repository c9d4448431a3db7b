//! A broker in memory: one lock around the simplest thing that keeps all promises, and mistakes that can be planted in it.

use std::collections::HashMap;

use levada_history::{Broker, Dice, Found, Marks, Outcome, Partition, Refusal, Value, View};
use levada_model::{GroupName, Offset};
use parking_lot::Mutex;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// Records of aborted transactions are shown.
    ForgetAborted,
    /// What is fenced or ended goes on.
    IgnoreEpoch,
    /// The last record of a partition is lost with some crashes.
    LoseTail,
    /// A retry is stored again.
    StoreTwice,
    /// Undecided records are shown.
    ShowUndecided,
    /// Offsets count at once.
    CountOffsets,
}

/// Name of a transaction: its producer and epoch.
pub(crate) type Name = (String, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ended(Outcome),
}

enum Entry {
    Record(Value, Option<Name>),
    Marker,
}

/// A group's offset, and the transaction with which it counts, if it has one.
type Committed = (Offset, Option<Name>);

#[derive(Default)]
struct Inside {
    epochs: HashMap<String, u32>,
    transactions: HashMap<Name, (State, bool)>,
    partitions: HashMap<Partition, Vec<Entry>>,
    sequences: HashMap<(Name, Partition), HashMap<u32, Vec<Offset>>>,
    offsets: HashMap<(GroupName, Partition), Vec<Committed>>,
    executed: HashMap<String, Vec<Offset>>,
}

/// The broker.
pub(crate) struct Memory {
    inside: Mutex<Inside>,
    dice: Mutex<Dice>,
    mistake: Mistake,
}

impl Memory {
    pub(crate) fn new(seed: u64, mistake: Mistake) -> Self {
        Self { inside: Mutex::default(), dice: Mutex::new(Dice::new(seed)), mistake }
    }

    /// Does something, unless it is lost on the way there; its answer may be lost on the way back.
    fn ask<T>(&self, work: impl FnOnce(&mut Inside) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let (lost, unheard) = {
            let mut dice = self.dice.lock();
            (dice.falls(3), dice.falls(3))
        };
        if lost {
            return Err(Refusal::Unknown);
        }
        let mut inside = self.inside.lock();
        let answer = work(&mut inside);
        if unheard {
            return Err(Refusal::Unknown);
        }
        answer
    }

    /// A kill, which loses nothing.
    pub(crate) fn crash(&self) {
        let mut inside = self.inside.lock();
        if self.mistake == Mistake::LoseTail {
            inside.partitions.values_mut().for_each(|entries| drop(entries.pop()));
        }
    }
}

impl Inside {
    /// Whether a transaction takes more.
    fn takes(&mut self, name: &Name, mistake: Mistake) -> Result<(), Refusal> {
        if mistake == Mistake::IgnoreEpoch {
            return Ok(());
        }
        match self.transactions.get(name) {
            Some((State::Open, _)) => Ok(()),
            Some((_, false)) => Err(Refusal::Ended),
            _ => Err(Refusal::Fenced),
        }
    }

    fn push(&mut self, partition: &Partition, entry: Entry) -> Offset {
        let entries = self.partitions.entry(partition.clone()).or_default();
        entries.push(entry);
        Offset(entries.len() as u64 - 1)
    }

    fn end(&mut self, name: &Name, outcome: Outcome, is_fenced: bool) {
        self.transactions.insert(name.clone(), (State::Ended(outcome), is_fenced));
        let has_some = |entries: &&mut Vec<Entry>| {
            entries.iter().any(|entry| matches!(entry, Entry::Record(_, Some(of)) if of == name))
        };
        self.partitions.values_mut().filter(has_some).for_each(|entries| entries.push(Entry::Marker));
    }

    fn counts(&self, name: Option<&Name>) -> bool {
        name.is_none_or(|name| {
            self.transactions.get(name).is_some_and(|(state, _)| *state == State::Ended(Outcome::Commit))
        })
    }

    fn is_open(&self, name: Option<&Name>) -> bool {
        name.is_some_and(|name| self.transactions.get(name).is_some_and(|(state, _)| *state == State::Open))
    }
}

impl Broker for Memory {
    type Producer = Name;
    type Transaction = Name;

    async fn start(&self, id: &str, _timeout_ms: u64) -> Result<Name, Refusal> {
        self.ask(|inside| {
            let epoch = *inside.epochs.entry(id.to_owned()).and_modify(|epoch| *epoch += 1).or_default();
            let of_id: Vec<Name> = inside.transactions.keys().filter(|name| name.0 == id).cloned().collect();
            for name in of_id {
                match inside.transactions[&name].0 {
                    State::Open => inside.end(&name, Outcome::Abort, true),
                    State::Ended(outcome) => drop(inside.transactions.insert(name, (State::Ended(outcome), true))),
                }
            }
            Ok((id.to_owned(), epoch))
        })
    }

    async fn begin(&self, producer: &Name) -> Result<Name, Refusal> {
        self.ask(|inside| {
            inside.transactions.entry(producer.clone()).or_insert((State::Open, false));
            Ok(producer.clone())
        })
    }

    async fn send(
        &self,
        name: &Name,
        partition: &Partition,
        sequence: Option<u32>,
        values: &[Value],
    ) -> Result<Vec<Offset>, Refusal> {
        self.ask(|inside| {
            inside.takes(name, self.mistake)?;
            let key = (name.clone(), partition.clone());
            let before = sequence.and_then(|sequence| inside.sequences.get(&key)?.get(&sequence).cloned());
            if let Some(before) = before {
                // Time passes for who sends the same again and again.
                if self.dice.lock().falls(20) {
                    if inside.is_open(Some(name)) {
                        inside.end(name, Outcome::Abort, false);
                        inside.epochs.insert(name.0.clone(), name.1 + 1);
                    }
                    return Err(Refusal::Ended);
                }
                if self.mistake != Mistake::StoreTwice {
                    return Ok(before);
                }
            }
            let entry = |value: &Value| Entry::Record(*value, Some(name.clone()));
            let offsets: Vec<Offset> = values.iter().map(|value| inside.push(partition, entry(value))).collect();
            if let Some(sequence) = sequence {
                inside.sequences.entry(key).or_default().insert(sequence, offsets.clone());
            }
            Ok(offsets)
        })
    }

    async fn add_offset(
        &self,
        name: &Name,
        group: &GroupName,
        partition: &Partition,
        offset: Offset,
    ) -> Result<(), Refusal> {
        self.ask(|inside| {
            inside.takes(name, self.mistake)?;
            let of = (self.mistake != Mistake::CountOffsets).then(|| name.clone());
            inside.offsets.entry((group.clone(), partition.clone())).or_default().push((offset, of));
            Ok(())
        })
    }

    async fn end(&self, name: &Name, outcome: Outcome) -> Result<Name, Refusal> {
        self.ask(|inside| {
            let next = (name.0.clone(), name.1 + 1);
            match inside.transactions.get(name) {
                Some((State::Open, _)) => {
                    inside.end(name, outcome, false);
                    inside.epochs.insert(next.0.clone(), next.1);
                    Ok(next)
                }
                Some((State::Ended(known), false)) if *known == outcome => Ok(next),
                Some((State::Ended(_), false)) => Err(Refusal::Ended),
                _ => Err(Refusal::Fenced),
            }
        })
    }

    async fn send_outside(&self, producer: &Name, partition: &Partition, value: Value) -> Result<Offset, Refusal> {
        self.ask(|inside| {
            inside.takes(producer, self.mistake)?;
            Ok(inside.push(partition, Entry::Record(value, None)))
        })
    }

    async fn store(&self, partition: &Partition, value: Value) -> Result<Offset, Refusal> {
        self.ask(|inside| Ok(inside.push(partition, Entry::Record(value, None))))
    }

    async fn commit_offset(&self, group: &GroupName, partition: &Partition, offset: Offset) -> Result<(), Refusal> {
        self.ask(|inside| {
            inside.offsets.entry((group.clone(), partition.clone())).or_default().push((offset, None));
            Ok(())
        })
    }

    async fn execute(
        &self,
        key: &str,
        records: &[(Partition, Value)],
        offset: Option<&(GroupName, Partition, Offset)>,
    ) -> Result<Vec<Offset>, Refusal> {
        self.ask(|inside| {
            if let Some(before) = inside.executed.get(key).filter(|_| self.mistake != Mistake::StoreTwice) {
                return Ok(before.clone());
            }
            let store = |(partition, value): &(Partition, Value)| inside.push(partition, Entry::Record(*value, None));
            let offsets: Vec<Offset> = records.iter().map(store).collect();
            if let Some((group, partition, offset)) = offset {
                inside.offsets.entry((group.clone(), partition.clone())).or_default().push((*offset, None));
            }
            inside.executed.insert(key.to_owned(), offsets.clone());
            Ok(offsets)
        })
    }

    async fn read(&self, view: View, partition: &Partition, from: Offset) -> Result<Found, Refusal> {
        std::thread::yield_now();
        self.ask(|inside| {
            let entries = inside.partitions.get(partition).map_or(&[][..], Vec::as_slice);
            let is_open = |entry: &Entry| matches!(entry, Entry::Record(_, name) if inside.is_open(name.as_ref()));
            let high_watermark = entries.len() as u64;
            let last_stable = entries.iter().position(is_open).map_or(high_watermark, |place| place as u64);
            let bound = match view {
                View::Committed if self.mistake != Mistake::ShowUndecided => last_stable,
                _ => high_watermark,
            };
            let shows = |name: Option<&Name>| {
                view == View::Uncommitted
                    || inside.counts(name)
                    || self.mistake == Mistake::ForgetAborted
                    || self.mistake == Mistake::ShowUndecided && inside.is_open(name)
            };
            let place = |(place, entry): (u64, &Entry)| match entry {
                Entry::Record(value, name) if shows(name.as_ref()) => Some((Offset(place), *value)),
                _ => None,
            };
            let records = (0..bound).zip(entries).skip_while(|(place, _)| *place < from.0).filter_map(place).collect();
            let last_stable = if self.mistake == Mistake::ShowUndecided { high_watermark } else { last_stable };
            Ok(Found {
                records,
                next: Offset(bound).max(from),
                marks: Marks { high_watermark: Offset(high_watermark), last_stable: Offset(last_stable) },
            })
        })
    }

    async fn group_offset(&self, group: &GroupName, partition: &Partition) -> Result<Option<Offset>, Refusal> {
        self.ask(|inside| {
            let all = inside.offsets.get(&(group.clone(), partition.clone()));
            let mut newest = all.into_iter().flatten().rev();
            Ok(newest.find(|(_, name)| inside.counts(name.as_ref())).map(|(offset, _)| *offset))
        })
    }
}
