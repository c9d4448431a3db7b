//! A producer of transactions: it keeps the epoch from one to the next and the sequences within each, and tries again
//! what is safe to try again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_api::{Effect, Placed, Placement, ProduceAnswer, Producer, TransactionOffsets};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::{Client, ClientError, NewRecord};

/// How long a call is tried anew while its failure may pass.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// A producer under a transactional id. Another one that starts under the same id fences it.
#[derive(Debug)]
pub struct TransactionalProducer {
    client: Client,
    /// Of the next transaction.
    producer: Producer,
    /// The transaction that was begun last and whose end nobody has heard yet.
    open: Option<String>,
    retry_for: Duration,
}

/// A transaction that is open. Dropped without an end it is aborted when the next one begins, when its producer is started
/// again, or by its time-out.
#[derive(Debug)]
pub struct Transaction<'p> {
    owner: &'p mut TransactionalProducer,
    id: String,
    /// Records so far, by topic and partition.
    sequences: BTreeMap<(String, u32), i32>,
    /// Whether something is under way, or failed, or was given up by its caller, that may have stored something: its numbers
    /// must not name other records.
    is_unsure: bool,
}

impl Client {
    /// A producer under a transactional id, started: all before it are fenced, and what they left open is aborted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn transactional_producer(
        &self,
        transactional_id: &str,
        timeout: Option<Duration>,
    ) -> Result<TransactionalProducer, ClientError> {
        let producer = retried(RETRY_FOR, || self.init_producer(transactional_id, timeout)).await?;
        Ok(TransactionalProducer { client: self.clone(), producer, open: None, retry_for: RETRY_FOR })
    }
}

impl TransactionalProducer {
    /// The same with another time for which calls are tried anew; 30 s if nothing else is said.
    #[must_use]
    pub fn retrying_for(self, retry_for: Duration) -> Self {
        Self { retry_for, ..self }
    }

    /// Begins the next transaction. The one before is aborted first where its end was not heard.
    ///
    /// # Errors
    /// See [`ClientError`]; `producer-fenced` where another producer started under the same id.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, ClientError> {
        if let Some(before) = self.open.clone() {
            self.settle(&before).await?;
        }
        let (client, producer) = (&self.client, self.producer);
        let id = retried(self.retry_for, || client.begin_transaction(producer)).await?;
        self.open = Some(id.clone());
        Ok(Transaction { owner: self, id, sequences: BTreeMap::new(), is_unsure: false })
    }

    async fn commit(&mut self, id: &str) -> Result<(), ClientError> {
        let client = &self.client;
        self.producer = retried(self.retry_for, || client.commit_transaction(id)).await?;
        self.open = None;
        Ok(())
    }

    async fn abort(&mut self, id: &str) -> Result<(), ClientError> {
        let client = &self.client;
        self.producer = retried(self.retry_for, || client.abort_transaction(id)).await?;
        self.open = None;
        Ok(())
    }

    /// Learns the next epoch, whichever way the transaction ends or has ended.
    async fn settle(&mut self, id: &str) -> Result<(), ClientError> {
        match self.abort(id).await {
            Err(error) if has_ended(&error) => self.commit(id).await,
            settled => settled,
        }
    }
}

impl Transaction<'_> {
    /// Its id, for calls that this type does not have.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Stores records; nobody who reads what is committed sees them before the commit. Where all name one partition they
    /// are numbered, and tried again until the answer is final; others are not tried again where they may have been
    /// stored.
    ///
    /// # Errors
    /// See [`ClientError`]. Where nothing was stored for sure the transaction goes on; after anything else it can only be
    /// aborted.
    pub async fn produce(&mut self, topic: &str, records: &[NewRecord]) -> Result<Vec<Placed>, ClientError> {
        self.check()?;
        let doubt = AtomicBool::new(false);
        // If this future is dropped, nobody knows.
        self.is_unsure = true;
        let placed = self.try_produce(topic, records, &doubt).await;
        self.is_unsure = placed.is_err() && doubt.into_inner();
        placed
    }

    /// `doubt` is raised by each try that may have stored something and failed: the last may be refused for sure.
    async fn try_produce(
        &mut self,
        topic: &str,
        records: &[NewRecord],
        doubt: &AtomicBool,
    ) -> Result<Vec<Placed>, ClientError> {
        let (client, id, retry_for) = (&self.owner.client, self.id.as_str(), self.owner.retry_for);
        let named = records.first().and_then(|first| first.partition);
        let one = named.filter(|one| records.iter().all(|record| record.partition == Some(*one)));
        let send = async |sequence| {
            let answer = client.produce_in(topic, records, id, sequence).await.and_then(all_placed);
            doubting(answer, doubt)
        };
        let placed = match one {
            Some(partition) => {
                let sequence = self.sequences.get(&(topic.to_owned(), partition)).copied().unwrap_or_default();
                retried(retry_for, || send(Some(sequence))).await?
            }
            None => send(None).await?,
        };
        for place in &placed {
            let next = self.sequences.entry((topic.to_owned(), place.partition)).or_default();
            // Kafka's sequences begin anew behind their largest.
            *next = next.checked_add(1).unwrap_or_default();
        }
        Ok(placed)
    }

    /// Takes offsets of a group in: they are committed with the transaction.
    ///
    /// # Errors
    /// See [`Client::add_transaction_offsets`]. As with [`produce`](Self::produce), where they may have been taken in all the
    /// same it can only be aborted.
    pub async fn add_offsets(&mut self, offsets: &TransactionOffsets) -> Result<(), ClientError> {
        self.check()?;
        let doubt = AtomicBool::new(false);
        // As in a produce: these must not come behind others that are sent later.
        self.is_unsure = true;
        let (client, id) = (&self.owner.client, self.id.as_str());
        let send = async || doubting(client.add_transaction_offsets(id, offsets).await, &doubt);
        let added = retried(self.owner.retry_for, send).await;
        self.is_unsure = added.is_err() && doubt.into_inner();
        added.map(drop)
    }

    /// Commits it: answers once all of it counts. Readers come to its records then, or in a partition where an earlier
    /// transaction is open when that one ends.
    ///
    /// # Errors
    /// See [`Client::commit_transaction`]. After `transaction-ended` it was aborted, by its time-out or an operator, and
    /// the producer may go on with the next. After an error that is retryable nobody knows how it ended or will.
    pub async fn commit(self) -> Result<(), ClientError> {
        self.check()?;
        self.owner.commit(&self.id).await
    }

    /// Aborts it: nothing of it counts.
    ///
    /// # Errors
    /// See [`Client::abort_transaction`].
    pub async fn abort(self) -> Result<(), ClientError> {
        self.owner.abort(&self.id).await
    }

    fn check(&self) -> Result<(), ClientError> {
        if self.is_unsure { Err(ClientError::OnlyAbort { transaction: self.id.clone() }) } else { Ok(()) }
    }
}

/// Makes a call that may safely be made again until its answer is final or the time is over.
pub(super) async fn retried<T, F>(retry_for: Duration, call: impl Fn() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let deadline = Instant::now() + retry_for;
    let mut backoff = Backoff::default();
    loop {
        let answer = call().await;
        let Err(error) = &answer else { return answer };
        let pause = backoff.next_pause(error.retry_after());
        if !error.is_retryable() || Instant::now() + pause > deadline {
            return answer;
        }
        tokio::time::sleep_until(Instant::now() + pause).await;
    }
}

/// The answer of a try, with a doubt raised if it is not certain that nothing came of it.
fn doubting<T>(answer: Result<T, ClientError>, doubt: &AtomicBool) -> Result<T, ClientError> {
    if let Err(error) = &answer
        && error.problem().is_none_or(|problem| problem.effect != Effect::None)
    {
        doubt.store(true, Ordering::Relaxed);
    }
    answer
}

/// The places of all records, or the first problem, beside which others were stored.
fn all_placed(answer: ProduceAnswer) -> Result<Vec<Placed>, ClientError> {
    let place = |placement| match placement {
        Placement::Placed(placed) => Ok(placed),
        Placement::Failed { problem } => {
            let problem = Box::new(problem.effect(Effect::Partial));
            Err(ClientError::Refused { problem, retry_after: None })
        }
    };
    answer.records.into_iter().map(place).collect()
}

fn has_ended(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == levada_api::ErrorCode::TransactionEnded)
}
