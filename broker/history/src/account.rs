//! A history put in order: who asked what when, and what was answered. No judgement yet.

use std::collections::BTreeMap;

use levada_coordinator::Outcome;
use levada_model::{GroupName, Offset};

use crate::event::{At, Event, Life, Look, Partition, Read, TransactionNumber, Value};

/// All that a history says, by its subject.
pub(crate) struct Account<'a> {
    pub(crate) events: &'a [Event],
    /// When each life was answered that it has started.
    pub(crate) started: BTreeMap<Life, At>,
    pub(crate) transactions: BTreeMap<TransactionNumber, Transaction>,
    pub(crate) sends: BTreeMap<Value, Send>,
    pub(crate) adds: Vec<Add>,
    pub(crate) reads: Vec<(At, &'a Read)>,
    pub(crate) looks: Vec<(At, &'a Look)>,
    pub(crate) unexpected: Vec<(At, &'a str)>,
    pub(crate) last_up: Option<At>,
    pub(crate) settled: Option<At>,
}

/// A transaction.
pub(crate) struct Transaction {
    pub(crate) life: Option<Life>,
    pub(crate) begun: At,
    /// When a commit was asked for first.
    pub(crate) commit_asked: Option<At>,
    pub(crate) ends: Vec<(At, Outcome)>,
}

/// A record.
pub(crate) struct Send {
    pub(crate) partition: Partition,
    /// When it was sent first.
    pub(crate) asked: At,
    pub(crate) acknowledged: Option<(At, Offset)>,
    pub(crate) refused: Option<At>,
}

/// A group's offset in a transaction.
pub(crate) struct Add {
    pub(crate) transaction: TransactionNumber,
    pub(crate) group: GroupName,
    pub(crate) partition: Partition,
    pub(crate) offset: Offset,
    pub(crate) asked: At,
    pub(crate) acknowledged: Option<At>,
}

impl<'a> Account<'a> {
    pub(crate) fn of(events: &'a [Event]) -> Self {
        let mut account = Self {
            events,
            started: BTreeMap::new(),
            transactions: BTreeMap::new(),
            sends: BTreeMap::new(),
            adds: Vec::new(),
            reads: Vec::new(),
            looks: Vec::new(),
            unexpected: Vec::new(),
            last_up: None,
            settled: None,
        };
        for (place, event) in events.iter().enumerate() {
            account.take(At(place), event);
        }
        account
    }

    fn take(&mut self, at: At, event: &'a Event) {
        match event {
            Event::StartAsked(_) | Event::Down(_) => (),
            Event::Unexpected(what) => self.unexpected.push((at, what)),
            Event::Started(life) => {
                self.started.entry(*life).or_insert(at);
            }
            Event::Begun(number, life) => {
                let new = Transaction { life: *life, begun: at, commit_asked: None, ends: Vec::new() };
                let before = self.transactions.insert(*number, new);
                assert!(before.is_none(), "{number} begins twice in this history");
            }
            Event::SendAsked(partition, values) => {
                for value in values {
                    let new = Send { partition: partition.clone(), asked: at, acknowledged: None, refused: None };
                    self.sends.entry(*value).or_insert(new);
                }
            }
            Event::Sent(_, placed) => {
                for (value, offset) in placed {
                    self.send(*value).acknowledged.get_or_insert((at, *offset));
                }
            }
            Event::Refused(values) => {
                for value in values {
                    self.send(*value).refused = Some(at);
                }
            }
            Event::OffsetAsked(number, group, partition, offset) => {
                let (group, partition) = (group.clone(), partition.clone());
                let offset = *offset;
                self.adds.push(Add { transaction: *number, group, partition, offset, asked: at, acknowledged: None });
            }
            Event::OffsetAdded(number, group, partition, offset) => {
                let is_it = |add: &&mut Add| {
                    (add.transaction, &add.group, &add.partition, add.offset) == (*number, group, partition, *offset)
                };
                let add = self.adds.iter_mut().rev().find(is_it).expect("an answer follows what was asked");
                add.acknowledged.get_or_insert(at);
            }
            Event::EndAsked(number, outcome) => {
                if *outcome == Outcome::Commit {
                    self.transaction(*number).commit_asked.get_or_insert(at);
                }
            }
            Event::Ended(number, outcome) => self.transaction(*number).ends.push((at, *outcome)),
            Event::Read(read) => self.reads.push((at, read)),
            Event::Looked(look) => self.looks.push((at, look)),
            Event::Up => self.last_up = Some(at),
            Event::Settled => self.settled = Some(at),
        }
    }

    fn send(&mut self, value: Value) -> &mut Send {
        self.sends.get_mut(&value).expect("an answer follows what was asked")
    }

    fn transaction(&mut self, number: TransactionNumber) -> &mut Transaction {
        self.transactions.get_mut(&number).expect("what ends was begun")
    }

    /// Whether a transaction is one of those that may be tried anew.
    pub(crate) fn is_tried_anew(&self, number: TransactionNumber) -> bool {
        self.transactions.get(&number).is_some_and(|transaction| transaction.life.is_none())
    }

    /// When a successor of a life was answered first.
    pub(crate) fn succeeded(&self, life: Life) -> Option<At> {
        let later = Life { number: life.number + 1, ..life }..=Life { number: u32::MAX, ..life };
        if life.number == u32::MAX { None } else { self.started.range(later).map(|(_, at)| *at).min() }
    }

    /// From when on the outcome of a transaction stands and can be read everywhere.
    pub(crate) fn resolved(&self, transaction: &Transaction) -> Option<At> {
        let ended = transaction.ends.first().map(|(at, _)| *at);
        let succeeded = transaction.life.and_then(|life| self.succeeded(life));
        [ended, succeeded, self.settled].into_iter().flatten().min()
    }
}
