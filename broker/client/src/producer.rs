//! Gathers records into requests: the one knob is how long to gather (`linger`) and how much (`batch`). Retries what
//! may be retried, stored once. Not here: how a batch is sent until each record is decided (`sender.rs`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use levada_api::Placed;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::sender::{Sender, Waiting};
use crate::{AcksWord, Client, ClientError, NewRecord};

/// How a [`Producer`] gathers and sends.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// How long the first record of a request waits for others. Zero gathers nothing: every record is a request.
    pub linger: Duration,
    /// A request is sent before its linger is over when it has this many records.
    pub batch_records: usize,
    /// A request is sent before its linger is over when its records have about this many bytes.
    pub batch_bytes: usize,
    /// Requests that may be under way at once. Only with one is the order in the log the order of `send`.
    pub in_flight_max: usize,
    /// When the server answers.
    pub acks: AcksWord,
    /// How long one request is tried anew while its failure may pass.
    pub retry_for: Duration,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(5),
            batch_records: 1_000,
            batch_bytes: 1 << 20,
            in_flight_max: 1,
            acks: AcksWord::All,
            retry_for: Duration::from_secs(30),
        }
    }
}

impl ProducerOptions {
    fn records_max(&self) -> usize {
        if self.linger.is_zero() { 1 } else { self.batch_records.max(1) }
    }
}

/// Where a record was stored, or why it was not. Several records of one request share one error.
pub type Answer = Result<Placed, Arc<ClientError>>;

/// The answer to one record, when it is there.
#[derive(Debug)]
pub struct Delivery(oneshot::Receiver<Answer>);

impl Delivery {
    /// Waits for the answer.
    ///
    /// # Errors
    /// When the record was not stored, or it is unknown whether it was.
    ///
    /// # Panics
    /// When the runtime was shut down before.
    pub async fn answer(self) -> Answer {
        self.0.await.expect("the producer's task answers every record it took")
    }
}

/// What a producer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerTotals {
    /// Requests that were answered, retries not counted.
    pub requests: u64,
    /// Records that were answered, stored or not.
    pub records: u64,
}

/// Sends records to one topic. Dropping it sends what it has taken, but nobody waits for that; [`close`](Self::close)
/// does.
#[derive(Debug)]
pub struct Producer {
    queue: mpsc::Sender<Waiting>,
    task: JoinHandle<ProducerTotals>,
}

impl Producer {
    /// A producer to `topic`; must be called within a tokio runtime.
    #[must_use]
    pub fn new(client: Client, topic: &str, options: ProducerOptions) -> Self {
        // One more batch may wait while one is under way.
        let (queue, waiting) = mpsc::channel(options.records_max());
        let sender = Sender::new(client, topic.to_owned(), options.acks, options.retry_for);
        let task = tokio::spawn(run(Arc::new(sender), options, waiting));
        Self { queue, task }
    }

    /// Hands a record over; waits while the queue is full. The answer comes through the [`Delivery`].
    ///
    /// # Panics
    /// When the runtime was shut down before.
    pub async fn send(&self, record: NewRecord) -> Delivery {
        let (answer, delivery) = oneshot::channel();
        self.queue.send(Waiting { record, answer }).await.expect("the producer's task lives as long as the producer");
        Delivery(delivery)
    }

    /// Sends what is left, waits for all answers, and says what was done in all.
    ///
    /// # Panics
    /// When the runtime was shut down before.
    pub async fn close(self) -> ProducerTotals {
        drop(self.queue);
        self.task.await.expect("the producer's task does not panic")
    }
}

/// One request to be.
#[derive(Debug, Default)]
struct Gathered {
    waiting: Vec<Waiting>,
    bytes: usize,
    due: Option<Instant>,
}

impl Gathered {
    fn push(&mut self, waiting: Waiting, linger: Duration) {
        self.bytes += waiting.record.size_hint();
        self.waiting.push(waiting);
        self.due.get_or_insert_with(|| Instant::now() + linger);
    }
}

async fn run(sender: Arc<Sender>, options: ProducerOptions, mut queue: mpsc::Receiver<Waiting>) -> ProducerTotals {
    let mut totals = ProducerTotals::default();
    let mut under_way = FuturesOrdered::new();
    let mut gathered = Gathered::default();
    let mut open = true;
    while open || !under_way.is_empty() || !gathered.waiting.is_empty() {
        let full = gathered.waiting.len() >= options.records_max() || gathered.bytes >= options.batch_bytes;
        let may_send = under_way.len() < options.in_flight_max.max(1);
        if may_send && !gathered.waiting.is_empty() && (full || !open) {
            under_way.push_back(Arc::clone(&sender).send(std::mem::take(&mut gathered).waiting));
            continue;
        }
        let due = gathered.due.filter(|_| may_send);
        tokio::select! {
            biased;
            Some(decided) = under_way.next(), if !under_way.is_empty() => {
                totals.requests += decided.requests;
                totals.records += deliver(decided.answers);
            }
            waiting = queue.recv(), if open && !full => match waiting {
                Some(waiting) => gathered.push(waiting, options.linger),
                None => open = false,
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                under_way.push_back(Arc::clone(&sender).send(std::mem::take(&mut gathered).waiting));
            }
        }
    }
    totals
}

fn deliver(answers: Vec<(oneshot::Sender<Answer>, Answer)>) -> u64 {
    let count = answers.len();
    for (to, answer) in answers {
        // Whoever dropped its delivery does not want to know.
        let _: Result<(), Answer> = to.send(answer);
    }
    u64::try_from(count).expect("a batch is small")
}
