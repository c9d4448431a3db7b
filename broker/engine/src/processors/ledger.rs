//! What a task stores and has not committed yet: its outputs, its position, and the transaction of both under
//! `exactly-once`.
//!
//! A task begins under a transactional id of its own, so that whatever a task before it has left open is aborted first, and
//! nothing more comes of that one. Whether a commit whose answer was lost holds shows the position that is read then.

use std::sync::Arc;
use std::time::Duration;

use levada_coordinator::{Outcome, Producer, TransactionHandle};
use levada_extension::{ModuleFault, TopicPartition};
use levada_model::{Offset, PartitionIndex, Record, Timestamp, TopicName, TransactionalId, limits};
use tokio::time::Instant;

use super::halt::Halt;
use super::letters;
use super::pipeline::{Output, Refused};
use super::plan::Plan;
use super::positions::Position;
use super::progress::{Progress, Tally};
use super::terms::Guarantee;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::partition::Partition;
use crate::{Engine, Once, ProduceError, ProduceRecord, ProduceRequest};

/// What became of outputs.
pub(super) enum Stored {
    /// They are stored.
    All,
    /// None is: these cannot be, each with the reason.
    Refused(Vec<(usize, String)>),
    /// None is: it failed, perhaps for one of them alone.
    Failed(Refused),
}

/// A task's book.
pub(super) struct Ledger {
    plan: Arc<Plan>,
    topic: Arc<Topic>,
    partition: Arc<Partition>,
    progress: Arc<Progress>,
    position: Position,
    committed: Position,
    /// Since when there is something to commit.
    since: Option<Instant>,
    tally: Tally,
    /// Whether nothing is stored of what is behind the position.
    is_whole: bool,
    /// Under exactly-once.
    producer: Option<Producer>,
    transaction: Option<TransactionHandle>,
}

impl Ledger {
    /// Begins where the task before has committed.
    pub(super) async fn open(
        core: &Arc<Core>,
        plan: &Arc<Plan>,
        (topic, partition): (&Arc<Topic>, &Arc<Partition>),
        progress: &Arc<Progress>,
    ) -> Result<Self, Halt> {
        let producer = match plan.spec.guarantee {
            Guarantee::ExactlyOnce => {
                let id = TransactionalId::of_processor(&plan.name, topic.id(), partition.index());
                Some(core.start_producer(&id, limits::PROCESSOR_TRANSACTION_TIMEOUT_MS).await?)
            }
            Guarantee::AtLeastOnce => None,
        };
        let at = TopicPartition { topic: topic.id(), partition: partition.index() };
        let committed = core.own_offsets(&plan.group).await?.get(&at).map(Position::of);
        let committed = committed.ok_or(Halt::Over)?;
        Ok(Self {
            plan: plan.clone(),
            topic: topic.clone(),
            partition: partition.clone(),
            progress: progress.clone(),
            position: committed,
            committed,
            since: None,
            tally: Tally::default(),
            is_whole: true,
            producer,
            transaction: None,
        })
    }

    /// Next to process.
    pub(super) fn position(&self) -> Offset {
        self.position.next
    }

    /// When what was done is to be committed; none if nothing was.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + Duration::from_millis(self.plan.spec.commit_interval_ms))
    }

    pub(super) fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// What it counts until the next commit.
    pub(super) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// All before `next` is done.
    pub(super) fn move_to(&mut self, next: Offset) {
        self.is_whole = true;
        if self.position.next != next {
            self.position.next = next;
            self.note_change();
        }
    }

    /// Whether it may be committed: nothing is stored of what is behind the position.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Records up to this time were seen.
    pub(super) fn see(&mut self, time: Option<Timestamp>) {
        self.position.stream_time = self.position.stream_time.max(time);
    }

    /// Stores outputs in this topic, all or none.
    pub(super) async fn produce(
        &mut self,
        core: &Arc<Core>,
        sink: &Arc<Topic>,
        outputs: &[Output],
    ) -> Result<Stored, Halt> {
        let once = match self.begin(core).await? {
            Some(transaction) => Once::Transaction { transaction, sequence: None },
            None => Once::No,
        };
        let record = |output: &Output| ProduceRecord {
            record: output.record.clone(),
            timestamp: Some(output.timestamp),
            partition: None,
        };
        let request =
            ProduceRequest { records: outputs.iter().map(record).collect(), once, ..ProduceRequest::default() };
        let engine = Engine { core: core.clone() };
        let produced = match engine.produce_in_this(&self.plan.owner, sink, request).await {
            Err(ProduceError::Records(faults)) => {
                let faults = faults.into_iter().map(|(place, fault)| (place, fault.to_string()));
                return Ok(Stored::Refused(faults.collect()));
            }
            Err(ProduceError::Validator { module, fault }) if !matches!(fault, ModuleFault::Busy(_)) => {
                return Ok(Stored::Failed(Refused { module: Some(module), reason: fault.to_string() }));
            }
            produced => produced?,
        };
        if let Some(fault) = produced.records.iter().find_map(|placed| placed.as_ref().err()) {
            return Err((&**fault).into());
        }
        self.is_whole = false;
        self.tally.records_out += outputs.len() as u64;
        Ok(Stored::All)
    }

    /// Stores a dead letter.
    pub(super) async fn set_aside(
        &mut self,
        core: &Arc<Core>,
        to: &TopicName,
        letter: &Record,
        (topic, partition, offset): &(TopicName, PartitionIndex, Offset),
    ) -> Result<(), Halt> {
        let transaction = self.begin(core).await?;
        self.is_whole = false;
        letters::store(core, to, letter, &format!("{topic} {partition} {offset}"), transaction).await?;
        self.tally.dead_letters += 1;
        Ok(())
    }

    /// Commits what was done, if anything was.
    pub(super) async fn commit(&mut self, core: &Arc<Core>) -> Result<(), Halt> {
        assert!(self.is_whole, "what is stored of a batch is never committed without its position");
        if self.position == self.committed && self.transaction.is_none() {
            self.since = None;
            return Ok(());
        }
        let commits = vec![self.position.commit(core, &self.topic, &self.partition)];
        match self.begin(core).await? {
            Some(transaction) => {
                let pending = core.own_pending(&self.plan.group, commits).await?;
                core.add_offsets(transaction, pending).await?;
                self.producer = Some(core.end_of(transaction, Outcome::Commit).await?);
                self.transaction = None;
            }
            None => core.commit_own(&self.plan.group, commits).await?,
        }
        self.committed = self.position;
        self.since = None;
        self.progress.add(std::mem::take(&mut self.tally), core.directory.counters());
        Ok(())
    }

    /// Aborts what was not committed, so that nobody waits for its time to be over. Where that fails the next task does it.
    pub(super) async fn give_up(mut self, core: &Arc<Core>) {
        if let Some(transaction) = self.transaction.take()
            && let Err(error) = core.end_of(transaction, Outcome::Abort).await
        {
            tracing::debug!(processor = %self.plan.name, %transaction, %error, "a transaction is aborted later");
        }
    }

    /// The transaction in which something is about to be stored; none where there are none.
    async fn begin(&mut self, core: &Arc<Core>) -> Result<Option<TransactionHandle>, Halt> {
        self.note_change();
        if let (None, Some(producer)) = (self.transaction, self.producer) {
            self.transaction = Some(core.begin_of(producer).await?);
        }
        Ok(self.transaction)
    }

    fn note_change(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }
}
