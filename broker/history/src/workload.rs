//! The load: producers that begin, send, commit, abort, hang, die and haunt; readers; and the last look at everything.
//!
//! Every call is noted before it is made and every answer as it comes, so that the history can be judged. A test runs
//! these tasks on a runtime of its own, crashes the broker meanwhile, and calls [`Workload::settle`] in the end.

mod producer;
mod reader;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use levada_coordinator::Outcome;
use levada_model::{GroupName, Offset};
use parking_lot::Mutex;

use crate::broker::{Broker, Refusal};
use crate::dice::Dice;
use crate::event::{Event, Life, Partition, TransactionNumber, Value};
use crate::history::History;

/// What the load is made of.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where records go.
    pub partitions: Vec<Partition>,
    /// Groups whose offsets are committed with transactions.
    pub groups: Vec<GroupName>,
    /// The partition that these groups are said to read; nothing of it is read or written here.
    pub source: Partition,
    /// How many offsets it has.
    pub source_end: Offset,
    /// After how long the broker aborts a transaction.
    pub timeout_ms: u64,
}

/// A load on a broker, with its history.
#[derive(Debug)]
pub struct Workload<B> {
    broker: B,
    history: History,
    setting: Setting,
    next_transaction: AtomicU64,
    /// By group: no offset is committed twice.
    next_offsets: Mutex<HashMap<GroupName, u64>>,
    stopped: AtomicBool,
    committed: AtomicU64,
    aborted: AtomicU64,
}

impl<B: Broker> Workload<B> {
    /// A load that has not begun.
    #[must_use]
    pub fn new(broker: B, setting: Setting) -> Self {
        Self {
            broker,
            history: History::default(),
            setting,
            next_transaction: AtomicU64::new(0),
            next_offsets: Mutex::default(),
            stopped: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
        }
    }

    /// The broker.
    pub fn broker(&self) -> &B {
        &self.broker
    }

    /// The history.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The setting.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Transactions whose end was answered so far: committed, and aborted.
    pub fn ended(&self) -> (u64, u64) {
        (self.committed.load(Ordering::Relaxed), self.aborted.load(Ordering::Relaxed))
    }

    /// Lets the tasks end, once each has finished what it is at.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the load is to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Transactions of one request, each tried with its key until it is answered; now and then records and offsets
    /// outside of transactions. Ends when the load is stopped.
    pub async fn execute(&self, seed: u64) {
        let mut dice = Dice::new(seed);
        while !self.is_stopped() {
            match dice.below(4) {
                0 => self.store(&mut dice).await,
                1 => self.commit_offset(&mut dice).await,
                _ => self.execute_one(&mut dice).await,
            }
        }
    }

    async fn execute_one(&self, dice: &mut Dice) {
        let number = self.begun(None);
        let records: Vec<_> = (0..=u32::try_from(dice.below(4)).expect("small"))
            .map(|n| (dice.pick(&self.setting.partitions).clone(), Value { transaction: number, number: n }))
            .collect();
        let offset = if dice.falls(40) { self.next_offset(dice) } else { None };
        for (partition, value) in &records {
            self.history.note(Event::SendAsked(partition.clone(), vec![*value]));
        }
        if let Some((group, partition, offset)) = &offset {
            self.history.note(Event::OffsetAsked(number, group.clone(), partition.clone(), *offset));
        }
        self.history.note(Event::EndAsked(number, Outcome::Commit));
        let key = format!("execute-{number}");
        let asked = || self.broker.execute(&key, &records, offset.as_ref());
        let offsets = loop {
            match until_answered(asked).await {
                Ok(offsets) => break offsets,
                // It took too long; the same may be tried anew.
                Err(Refusal::Ended) => (),
                Err(other) => return self.unexpected(format!("{number} is nobody else's: {other:?}")),
            }
        };
        for ((partition, value), offset) in records.iter().zip(offsets) {
            self.history.note(Event::Sent(partition.clone(), vec![(*value, offset)]));
        }
        if let Some((group, partition, offset)) = offset {
            self.history.note(Event::OffsetAdded(number, group, partition, offset));
        }
        self.note_end(number, Outcome::Commit);
    }

    async fn store(&self, dice: &mut Dice) {
        let number = self.begun(None);
        let (partition, value) = (dice.pick(&self.setting.partitions), Value { transaction: number, number: 0 });
        self.history.note(Event::SendAsked(partition.clone(), vec![value]));
        self.history.note(Event::EndAsked(number, Outcome::Commit));
        match self.broker.store(partition, value).await {
            Ok(offset) => {
                self.history.note(Event::Sent(partition.clone(), vec![(value, offset)]));
                self.history.note(Event::Ended(number, Outcome::Commit));
            }
            Err(Refusal::Unknown) => (),
            Err(Refusal::Later) => self.history.note(Event::Refused(vec![value])),
            Err(other) => self.unexpected(format!("{value} is nobody else's: {other:?}")),
        }
    }

    async fn commit_offset(&self, dice: &mut Dice) {
        let Some((group, partition, offset)) = self.next_offset(dice) else { return };
        let number = self.begun(None);
        self.history.note(Event::OffsetAsked(number, group.clone(), partition.clone(), offset));
        self.history.note(Event::EndAsked(number, Outcome::Commit));
        match self.broker.commit_offset(&group, &partition, offset).await {
            Ok(()) => {
                self.history.note(Event::OffsetAdded(number, group.clone(), partition, offset));
                self.history.note(Event::Ended(number, Outcome::Commit));
            }
            Err(Refusal::Unknown | Refusal::Later) => (),
            Err(other) => self.unexpected(format!("{number} is nobody else's: {other:?}")),
        }
        self.look(&group).await;
    }

    fn begun(&self, life: Option<Life>) -> TransactionNumber {
        let number = TransactionNumber(self.next_transaction.fetch_add(1, Ordering::Relaxed));
        self.history.note(Event::Begun(number, life));
        number
    }

    fn unexpected(&self, what: String) {
        self.history.note(Event::Unexpected(what));
    }

    fn note_end(&self, number: TransactionNumber, outcome: Outcome) {
        self.history.note(Event::Ended(number, outcome));
        let count = if outcome == Outcome::Commit { &self.committed } else { &self.aborted };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// An offset that was not asked for yet, as long as there is one.
    fn next_offset(&self, dice: &mut Dice) -> Option<(GroupName, Partition, Offset)> {
        let group = dice.pick(&self.setting.groups).clone();
        let mut next_offsets = self.next_offsets.lock();
        let next = next_offsets.entry(group.clone()).or_default();
        *next += 1;
        (*next <= self.setting.source_end.0).then(|| (group, self.setting.source.clone(), Offset(*next)))
    }
}

/// Asks again until there is an answer other than [`Refusal::Later`], or than [`Refusal::Unknown`].
async fn until_answered<T, F: Future<Output = Result<T, Refusal>>>(mut ask: impl FnMut() -> F) -> Result<T, Refusal> {
    loop {
        match ask().await {
            Err(Refusal::Unknown | Refusal::Later) => (),
            answer => return answer,
        }
    }
}
