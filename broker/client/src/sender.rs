//! Sends a batch until every record of it is decided: with retries that are stored once, without the records that the
//! server calls wrong, and in halves where it is too large in one piece.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use levada_api::{ErrorCode, Placement, ProduceAnswer};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::producer::Answer;
use crate::{AcksWord, Client, ClientError, NewRecord};

/// A record that waits for its answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) record: NewRecord,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// A batch whose every record is decided.
#[derive(Debug)]
pub(crate) struct Decided {
    /// In the batch's order.
    pub(crate) answers: Vec<(oneshot::Sender<Answer>, Answer)>,
    /// Requests that it took, retries not counted.
    pub(crate) requests: u64,
}

/// Sends batches to one topic.
#[derive(Debug)]
pub(crate) struct Sender {
    client: Client,
    topic: String,
    acks: AcksWord,
    retry_for: Duration,
    id: Uuid,
}

impl Sender {
    pub(crate) fn new(client: Client, topic: String, acks: AcksWord, retry_for: Duration) -> Self {
        Self { client, topic, acks, retry_for, id: Uuid::new_v4() }
    }

    /// Sends until every record is decided.
    pub(crate) async fn send(self: Arc<Self>, batch: Vec<Waiting>) -> Decided {
        let (records, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.record, waiting.answer)).unzip();
        let mut decided: Vec<Option<Answer>> = vec![None; records.len()];
        let mut requests = 0;
        let mut parts: VecDeque<Vec<usize>> = VecDeque::from([(0..records.len()).collect()]);
        while let Some(mut part) = parts.pop_front().filter(|part| !part.is_empty()) {
            requests += 1;
            let request: Vec<_> = part.iter().map(|place| &records[*place]).collect();
            let error = match self.send_until_decided(&request).await {
                Ok(ProduceAnswer { records: placements, .. }) => {
                    let answers = placements.into_iter().map(answer_of);
                    part.into_iter().zip(answers).for_each(|(place, answer)| decided[place] = Some(answer));
                    continue;
                }
                Err(error) => Arc::new(error),
            };
            if is_too_large(&error) && part.len() > 1 {
                let second = part.split_off(part.len() / 2);
                parts.push_front(second);
                parts.push_front(part);
                continue;
            }
            let wrong = wrong_records(&error, part.len());
            let is_bad = |index: usize| wrong.is_empty() || wrong.contains(&index);
            let (bad, good): (Vec<_>, Vec<_>) = part.into_iter().enumerate().partition(|(index, _)| is_bad(*index));
            bad.into_iter().for_each(|(_, place)| decided[place] = Some(Err(Arc::clone(&error))));
            if !good.is_empty() {
                parts.push_front(good.into_iter().map(|(_, place)| place).collect());
            }
        }
        let decided = decided.into_iter().map(|answer| answer.expect("an answer has a place for each record"));
        Decided { answers: answers.into_iter().zip(decided).collect(), requests }
    }

    async fn send_until_decided(&self, records: &[&NewRecord]) -> Result<ProduceAnswer, ClientError> {
        let key = format!("{}-{}", self.id.simple(), Uuid::new_v4().simple());
        self.client.produce_with_retries(&self.topic, records, self.acks, &key, self.retry_for).await
    }
}

fn is_too_large(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ErrorCode::BodyTooLarge)
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
