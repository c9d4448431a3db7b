//! Gathers records into requests: the one knob is how long to gather (`linger`) and how much (`batch`). Retries what
//! may be retried, stored once. Not here: how one request is sent (`produce.rs`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use levada_api::{Placed, Placement, ProduceAnswer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::{Acks, Client, ClientError, NewRecord};

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
    pub acks: Acks,
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
            acks: Acks::All,
            retry_for: Duration::from_secs(30),
        }
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

#[derive(Debug)]
struct Waiting {
    record: NewRecord,
    answer: oneshot::Sender<Answer>,
}

impl Producer {
    /// A producer to `topic`; must be called within a tokio runtime.
    #[must_use]
    pub fn new(client: Client, topic: &str, options: ProducerOptions) -> Self {
        let sender = Sender { client, topic: topic.to_owned(), options, id: Uuid::new_v4() };
        // One more batch may wait while one is under way.
        let (queue, waiting) = mpsc::channel(sender.batch_records_max());
        let task = tokio::spawn(run(Arc::new(sender), waiting));
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

async fn run(sender: Arc<Sender>, mut queue: mpsc::Receiver<Waiting>) -> ProducerTotals {
    let mut totals = ProducerTotals::default();
    let mut under_way = FuturesOrdered::new();
    let mut gathered = Gathered::default();
    let mut open = true;
    while open || !under_way.is_empty() || !gathered.waiting.is_empty() {
        let full = gathered.waiting.len() >= sender.batch_records_max() || gathered.bytes >= sender.options.batch_bytes;
        let may_send = under_way.len() < sender.options.in_flight_max.max(1);
        let due = gathered.due.filter(|_| may_send);
        if may_send && !gathered.waiting.is_empty() && (full || !open) {
            under_way.push_back(Arc::clone(&sender).send(std::mem::take(&mut gathered)));
            totals.requests += 1;
            continue;
        }
        tokio::select! {
            biased;
            Some(answers) = under_way.next(), if !under_way.is_empty() => totals.records += deliver(answers),
            waiting = queue.recv(), if open && !full => match waiting {
                Some(waiting) => gathered.push(waiting, sender.options.linger),
                None => open = false,
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                under_way.push_back(Arc::clone(&sender).send(std::mem::take(&mut gathered)));
                totals.requests += 1;
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

#[derive(Debug)]
struct Sender {
    client: Client,
    topic: String,
    options: ProducerOptions,
    id: Uuid,
}

type Answered = Vec<(oneshot::Sender<Answer>, Answer)>;

impl Sender {
    fn batch_records_max(&self) -> usize {
        if self.options.linger.is_zero() { 1 } else { self.options.batch_records.max(1) }
    }

    /// Sends one request until it is decided. Records that the server calls wrong are answered so, and the others are
    /// sent without them, since a wrong record refuses its whole request.
    async fn send(self: Arc<Self>, gathered: Gathered) -> Answered {
        let (mut records, mut answers): (Vec<_>, Vec<_>) =
            gathered.waiting.into_iter().map(|Waiting { record, answer }| (record, answer)).unzip();
        let mut decided: Vec<Option<Answer>> = answers.iter().map(|_| None).collect();
        let mut places: Vec<usize> = (0..records.len()).collect();
        while !records.is_empty() {
            match self.send_until_decided(&records).await {
                Ok(ProduceAnswer { records: stored, .. }) => {
                    for (place, stored) in places.drain(..).zip(stored) {
                        decided[place] = Some(answer_of(stored));
                    }
                    break;
                }
                Err(error) => {
                    let wrong = wrong_records(&error, records.len());
                    let error = Arc::new(error);
                    if wrong.is_empty() {
                        places.drain(..).for_each(|place| decided[place] = Some(Err(Arc::clone(&error))));
                        break;
                    }
                    let mut index = 0;
                    records.retain(|_| {
                        let keep = !wrong.contains(&index);
                        index += 1;
                        keep
                    });
                    let (bad, good): (Vec<_>, Vec<_>) =
                        places.drain(..).enumerate().partition(|(index, _)| wrong.contains(index));
                    bad.into_iter().for_each(|(_, place)| decided[place] = Some(Err(Arc::clone(&error))));
                    places = good.into_iter().map(|(_, place)| place).collect();
                }
            }
        }
        let decided = decided.into_iter().map(|answer| answer.expect("the server's answer has a place a record"));
        answers.drain(..).zip(decided).collect()
    }

    /// Sends the same request with the same key until its answer is final or the time is over.
    async fn send_until_decided(&self, records: &[NewRecord]) -> Result<ProduceAnswer, ClientError> {
        let key = format!("{}-{}", self.id, Uuid::new_v4().simple());
        let deadline = Instant::now() + self.options.retry_for;
        let mut backoff = Backoff::default();
        loop {
            let answer = self.client.produce_with_key(&self.topic, records, self.options.acks, Some(&key)).await;
            let (retry, after) = match &answer {
                Ok(answer) => (answer.records.iter().any(may_pass), None),
                Err(error) => (error.is_retryable(), error.retry_after()),
            };
            let pause = backoff.next_pause(after);
            if !retry || Instant::now() + pause > deadline {
                return answer;
            }
            tokio::time::sleep_until(Instant::now() + pause).await;
        }
    }
}

fn may_pass(placement: &Placement) -> bool {
    matches!(placement, Placement::Failed { problem } if problem.retryable)
}

fn answer_of(placement: Placement) -> Answer {
    match placement {
        Placement::Placed(placed) => Ok(placed),
        Placement::Failed { problem } => Err(Arc::new(ClientError::Refused { problem, retry_after: None })),
    }
}

/// The places that the server calls wrong, if it is only them that stand in the way.
fn wrong_records(error: &ClientError, count: usize) -> Vec<usize> {
    let Some(problem) = error.problem() else { return Vec::new() };
    let place = |pointer: &str| pointer.strip_prefix("/records/")?.split('/').next()?.parse::<usize>().ok();
    let mut places = Vec::new();
    for fault in &problem.errors {
        match place(&fault.pointer).filter(|place| *place < count) {
            Some(place) => places.push(place),
            None => return Vec::new(),
        }
    }
    places
}
