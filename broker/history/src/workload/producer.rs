//! Producers: each lives again and again under its transactional id. Some of its lives end in the middle of a transaction,
//! and the one that died haunts its successor.

use std::collections::HashMap;

use futures_util::future::join;
use levada_coordinator::Outcome;

use super::{Workload, until_answered};
use crate::broker::{Broker, Refusal};
use crate::dice::Dice;
use crate::event::{Event, Life, Partition, TransactionNumber, Value};

/// Most transactions of a life.
const TRANSACTIONS_MAX: usize = 6;
/// Most requests with records of a transaction.
const SENDS_MAX: usize = 4;
/// Most records of one of them.
const RECORDS_MAX: usize = 3;

/// A transaction at work.
struct Open<B: Broker> {
    number: TransactionNumber,
    handle: B::Transaction,
    producer: B::Producer,
    next_value: u32,
    /// The next sequence of each partition, if the producer counts.
    sequences: Option<HashMap<Partition, u32>>,
    /// Where its records were acknowledged.
    touched: Vec<Partition>,
    is_commit_asked: bool,
}

/// How a transaction goes on after a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Course {
    Open,
    /// Nobody knows whether the last request was done.
    Doubtful,
    /// The producer is fenced.
    Fenced,
    /// It was ended by somebody else.
    Ended,
    /// The answer was none of these.
    Lost,
}

/// What a producer means to do with a transaction in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    End(Outcome),
    /// Ask for a commit, and die before the answer.
    CommitUnheard,
    /// Die.
    Leave,
    /// Wait until it is aborted by time.
    Hang,
}

impl<B: Broker> Workload<B> {
    /// A producer at work. Ends when the load is stopped.
    pub async fn produce(&self, producer: u32, seed: u64) {
        let mut dice = Dice::new(seed);
        let mut left: Option<Open<B>> = None;
        for number in 0.. {
            let life = Life { producer, number };
            let mut ghost_dice = dice.fork();
            let haunt = async {
                if let Some(open) = &mut left {
                    self.haunt(open, &mut ghost_dice).await;
                }
            };
            let (started, ()) = join(self.start(life), haunt).await;
            if let Some(open) = &mut left {
                self.try_late(open, &mut ghost_dice).await;
            }
            left = match started {
                Some(producer) => self.live(life, producer, &mut dice).await,
                None => None,
            };
            if self.is_stopped() {
                return;
            }
        }
    }

    pub(super) async fn start(&self, life: Life) -> Option<B::Producer> {
        self.history.note(Event::StartAsked(life));
        let id = format!("producer-{}", life.producer);
        match until_answered(|| self.broker.start(&id, self.setting.timeout_ms)).await {
            Ok(producer) => {
                self.history.note(Event::Started(life));
                Some(producer)
            }
            Err(error) => {
                self.unexpected(format!("{life} has no rival: {error:?}"));
                None
            }
        }
    }

    /// Some transactions; the one that is left open, if the life ends in one.
    async fn live(&self, life: Life, mut producer: B::Producer, dice: &mut Dice) -> Option<Open<B>> {
        for _ in 0..=dice.below(TRANSACTIONS_MAX) {
            if self.is_stopped() {
                return None;
            }
            let mut open = self.begin(life, producer, dice).await?;
            let plan = match dice.below(100) {
                0..55 => Plan::End(Outcome::Commit),
                55..75 => Plan::End(Outcome::Abort),
                75..80 => Plan::CommitUnheard,
                80..95 => Plan::Leave,
                _ => Plan::Hang,
            };
            let course = self.fill(&mut open, dice).await;
            let outcome = match (course, plan) {
                (Course::Fenced, _) => {
                    self.unexpected(format!("{life} has no rival, and {} is fenced", open.number));
                    return None;
                }
                (Course::Lost, _) => return None,
                (Course::Ended, _) => Outcome::Abort,
                (_, Plan::End(outcome)) => outcome,
                (_, Plan::CommitUnheard) => {
                    open.is_commit_asked = true;
                    self.history.note(Event::EndAsked(open.number, Outcome::Commit));
                    // Whatever the answer is, nobody hears it.
                    drop(self.broker.end(&open.handle, Outcome::Commit).await);
                    return Some(open);
                }
                (_, Plan::Leave) => return Some(open),
                (Course::Doubtful, Plan::Hang) => Outcome::Abort,
                (Course::Open, Plan::Hang) => {
                    self.hang(&mut open).await;
                    Outcome::Abort
                }
            };
            producer = match self.end(&mut open, outcome).await {
                Some(producer) => producer,
                None => {
                    self.unexpected(format!("{life} has no rival, and {} is fenced", open.number));
                    return None;
                }
            };
        }
        None
    }

    async fn begin(&self, life: Life, producer: B::Producer, dice: &mut Dice) -> Option<Open<B>> {
        let number = self.begun(Some(life));
        let begun = until_answered(|| self.broker.begin(&producer)).await;
        let refused = |error| self.unexpected(format!("{number} of {life} is the only one: {error:?}"));
        let handle = begun.map_err(refused).ok()?;
        let sequences = dice.falls(50).then(HashMap::new);
        Some(Open { number, handle, producer, next_value: 0, sequences, touched: Vec::new(), is_commit_asked: false })
    }

    async fn fill(&self, open: &mut Open<B>, dice: &mut Dice) -> Course {
        for _ in 0..dice.below(SENDS_MAX + 1) {
            let course = if dice.falls(25) { self.add(open, dice).await } else { self.send(open, dice).await };
            if course != Course::Open {
                return course;
            }
        }
        Course::Open
    }

    async fn send(&self, open: &mut Open<B>, dice: &mut Dice) -> Course {
        let partition = dice.pick(&self.setting.partitions).clone();
        let values: Vec<Value> = (0..=dice.below(RECORDS_MAX)).map(|_| open.next_value()).collect();
        self.history.note(Event::SendAsked(partition.clone(), values.clone()));
        let sequence = open.sequences.as_ref().map(|next| next.get(&partition).copied().unwrap_or(0));
        let mut is_first = true;
        loop {
            let course = match self.broker.send(&open.handle, &partition, sequence, &values).await {
                Ok(offsets) => {
                    let placed = values.iter().copied().zip(offsets).collect();
                    self.history.note(Event::Sent(partition.clone(), placed));
                    if let Some(next) = &mut open.sequences {
                        *next.entry(partition.clone()).or_default() += u32::try_from(values.len()).expect("few");
                    }
                    open.touched.push(partition);
                    return Course::Open;
                }
                Err(Refusal::Unknown) if sequence.is_none() => return Course::Doubtful,
                Err(Refusal::Unknown) => {
                    is_first = false;
                    continue;
                }
                Err(Refusal::Later) => continue,
                Err(Refusal::Fenced) => Course::Fenced,
                Err(Refusal::Ended) => Course::Ended,
                Err(Refusal::Wrong(what)) => {
                    self.unexpected(format!("{} to {partition}: {what}", values[0]));
                    return Course::Lost;
                }
            };
            if is_first {
                self.history.note(Event::Refused(values));
            }
            return course;
        }
    }

    /// Takes an offset of a group into a transaction.
    async fn add(&self, open: &mut Open<B>, dice: &mut Dice) -> Course {
        let Some((group, partition, offset)) = self.next_offset(dice) else { return Course::Open };
        self.look(&group).await;
        self.history.note(Event::OffsetAsked(open.number, group.clone(), partition.clone(), offset));
        loop {
            return match self.broker.add_offset(&open.handle, &group, &partition, offset).await {
                Ok(()) => {
                    self.history.note(Event::OffsetAdded(open.number, group, partition, offset));
                    Course::Open
                }
                // It may be asked again: the same offset twice is the same.
                Err(Refusal::Unknown | Refusal::Later) => continue,
                Err(Refusal::Fenced) => Course::Fenced,
                Err(Refusal::Ended) => Course::Ended,
                Err(Refusal::Wrong(what)) => {
                    self.unexpected(format!("offset {offset} of {group}: {what}"));
                    Course::Lost
                }
            };
        }
    }

    /// Ends a transaction, or learns how it was ended; what its producer goes on with, unless it is fenced.
    async fn end(&self, open: &mut Open<B>, mut outcome: Outcome) -> Option<B::Producer> {
        loop {
            open.is_commit_asked |= outcome == Outcome::Commit;
            self.history.note(Event::EndAsked(open.number, outcome));
            match until_answered(|| self.broker.end(&open.handle, outcome)).await {
                Ok(producer) => {
                    self.note_end(open.number, outcome);
                    return Some(producer);
                }
                Err(Refusal::Ended) => {
                    outcome = match outcome {
                        Outcome::Commit => Outcome::Abort,
                        Outcome::Abort => Outcome::Commit,
                    };
                }
                Err(Refusal::Fenced) => return None,
                Err(other) => {
                    self.unexpected(format!("{} ends: {other:?}", open.number));
                    return None;
                }
            }
        }
    }

    /// Sends its last records again until the broker ends the transaction by time.
    async fn hang(&self, open: &mut Open<B>) {
        let Some(partition) = self.setting.partitions.first() else { return };
        let value = open.next_value();
        let sequence = open.sequences.get_or_insert_default().get(partition).copied().unwrap_or(0);
        if sequence == 0 && open.touched.contains(partition) {
            // It did not count before, so nothing that it sends again would be recognised.
            return;
        }
        self.history.note(Event::SendAsked(partition.clone(), vec![value]));
        let mut is_noted = false;
        while !self.is_stopped() {
            match self.broker.send(&open.handle, partition, Some(sequence), &[value]).await {
                Ok(offsets) if !is_noted => {
                    self.history.note(Event::Sent(partition.clone(), vec![(value, offsets[0])]));
                    is_noted = true;
                }
                Ok(_) | Err(Refusal::Unknown | Refusal::Later) => (),
                Err(Refusal::Ended) => return,
                Err(other) => return self.unexpected(format!("{value} to {partition}: {other:?}")),
            }
        }
    }

    /// Goes on with a transaction while the producer's successor starts.
    async fn haunt(&self, open: &mut Open<B>, dice: &mut Dice) {
        for _ in 0..dice.below(SENDS_MAX) {
            if !open.is_commit_asked && self.send(open, dice).await != Course::Open {
                return;
            }
        }
        if dice.falls(30) {
            self.end(open, Outcome::Commit).await;
        }
    }

    /// Tries what must be refused: the successor has started.
    async fn try_late(&self, open: &mut Open<B>, dice: &mut Dice) {
        self.send(open, dice).await;
        if let Some(partition) = open.touched.last().cloned() {
            let value = open.next_value();
            self.history.note(Event::SendAsked(partition.clone(), vec![value]));
            if let Ok(offset) = self.broker.send_outside(&open.producer, &partition, value).await {
                self.history.note(Event::Sent(partition, vec![(value, offset)]));
            }
        }
        if !open.is_commit_asked {
            self.end(open, Outcome::Commit).await;
        }
    }
}

impl<B: Broker> Open<B> {
    fn next_value(&mut self) -> Value {
        let number = self.next_value;
        self.next_value += 1;
        Value { transaction: self.number, number }
    }
}
