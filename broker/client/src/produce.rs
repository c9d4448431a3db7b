//! Storing records: as JSON, as a stream of lines, as a raw body, and as record batches. Each call is one request; the
//! [`Producer`](crate::Producer) gathers and retries.

use std::borrow::Borrow;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use levada_api::{AcksWord, LineAnswer, Placed, Placement, ProduceAnswer, RawAnswer};
use reqwest::header::{CONTENT_TYPE, HeaderName};
use reqwest::{Body, Method, RequestBuilder};
use serde::Serialize;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lines::Lines;
use crate::{Client, ClientError, NewRecord};

/// Beside the body of a raw record.
#[derive(Clone, Debug, Default)]
pub struct RawOptions {
    /// The key.
    pub key: Option<String>,
    /// Where to.
    pub partition: Option<u32>,
    /// Milliseconds since 1970.
    pub timestamp: Option<i64>,
    /// The body's media type, kept as header `content-type`.
    pub content_type: Option<String>,
    /// Each is sent as `Record-Header-NAME`.
    pub headers: Vec<(String, String)>,
    /// The same key again stores nothing again.
    pub idempotency_key: Option<String>,
}

/// The answer is that of an earlier request with the same key.
pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

#[derive(Serialize)]
struct Request<'a, R> {
    records: &'a [R],
}

impl Client {
    /// Stores records with one JSON request.
    ///
    /// # Errors
    /// See [`ClientError`]; one wrong record refuses all.
    pub async fn produce(
        &self,
        topic: &str,
        records: &[NewRecord],
        acks: AcksWord,
    ) -> Result<ProduceAnswer, ClientError> {
        self.produce_with_key(topic, records, acks, None).await
    }

    /// The same with an `Idempotency-Key`: sent again, it is stored once, and the answer is a `duplicate`.
    ///
    /// # Errors
    /// As [`produce`](Self::produce).
    pub async fn produce_with_key<R: Borrow<NewRecord> + Serialize>(
        &self,
        topic: &str,
        records: &[R],
        acks: AcksWord,
        idempotency_key: Option<&str>,
    ) -> Result<ProduceAnswer, ClientError> {
        let request = with_key(self.json_request(topic, records, acks)?, idempotency_key);
        self.answer_to(request, records.len()).await
    }

    /// The same in a transaction. With the `sequence` of the first record, counted from 0 in each partition, it may be
    /// sent again and is stored once; all records name one partition then.
    ///
    /// # Errors
    /// As [`produce`](Self::produce); `transaction-ended` where it takes nothing any more.
    pub async fn produce_in(
        &self,
        topic: &str,
        records: &[NewRecord],
        transaction: &str,
        sequence: Option<i32>,
    ) -> Result<ProduceAnswer, ClientError> {
        let request = self.json_request(topic, records, AcksWord::All)?.header("Transaction", transaction);
        let request = match sequence {
            Some(sequence) => request.header("Producer-Sequence", sequence),
            None => request,
        };
        self.answer_to(request, records.len()).await
    }

    fn json_request<R: Serialize>(
        &self,
        topic: &str,
        records: &[R],
        acks: AcksWord,
    ) -> Result<RequestBuilder, ClientError> {
        let body = serde_json::to_vec(&Request { records })?;
        Ok(self.records_request(topic, acks)?.header(CONTENT_TYPE, "application/json").body(body))
    }

    /// Sends a request with so many records.
    async fn answer_to(&self, request: RequestBuilder, count: usize) -> Result<ProduceAnswer, ClientError> {
        let response = self.send(request).await?;
        let is_replayed = response.headers().contains_key(IDEMPOTENT_REPLAYED);
        let mut answer: ProduceAnswer = self.read_json(response).await?;
        answer.duplicate |= is_replayed;
        if answer.records.len() != count {
            let detail = format!("{} answers to {count} records", answer.records.len());
            return Err(self.unexpected(200, detail));
        }
        Ok(answer)
    }

    /// The same, tried again with the same key until its answer is final or the time is over. Only the first try's answer
    /// can tell of a `duplicate`: a later one's may be of the first, whose answer was lost.
    ///
    /// # Errors
    /// As [`produce`](Self::produce); the last one where the time is over.
    pub async fn produce_with_retries<R: Borrow<NewRecord> + Serialize>(
        &self,
        topic: &str,
        records: &[R],
        acks: AcksWord,
        idempotency_key: &str,
        retry_for: Duration,
    ) -> Result<ProduceAnswer, ClientError> {
        let deadline = Instant::now() + retry_for;
        let mut backoff = Backoff::default();
        let mut is_first = true;
        loop {
            let mut answer = self.produce_with_key(topic, records, acks, Some(idempotency_key)).await;
            if let Ok(answer) = &mut answer {
                answer.duplicate &= is_first;
            }
            is_first = false;
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

    /// Stores whole record batches (v2) in one partition, as they are.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn produce_batches(
        &self,
        topic: &str,
        partition: u32,
        batches: Bytes,
        acks: AcksWord,
    ) -> Result<ProduceAnswer, ClientError> {
        let request = self.records_request(topic, acks)?.query(&[("partition", partition)]);
        self.send_for_json(request.header(CONTENT_TYPE, crate::RECORD_BATCH_TYPE).body(batches)).await
    }

    /// Stores one record whose value is `body`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn produce_raw(
        &self,
        topic: &str,
        body: impl Into<Body>,
        options: &RawOptions,
    ) -> Result<Placed, ClientError> {
        let mut request = self.request(Method::POST, &["v1", "topics", topic, "raw"])?.body(body);
        if let Some(key) = &options.key {
            request = request.query(&[("key", key)]);
        }
        if let Some(partition) = options.partition {
            request = request.query(&[("partition", partition)]);
        }
        if let Some(timestamp) = options.timestamp {
            request = request.query(&[("timestamp", timestamp)]);
        }
        if let Some(content_type) = &options.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        for (name, value) in &options.headers {
            request = request.header(format!("Record-Header-{name}"), value);
        }
        let request = with_key(request, options.idempotency_key.as_deref());
        Ok(self.send_for_json::<RawAnswer>(request).await?.into())
    }

    /// Sends records as one stream of lines, of any length, and answers with a stream of what became of each. A line
    /// that is wrong is refused alone. Only a stream that ends with a [`LineAnswer::Done`] that is `done` was read whole.
    ///
    /// # Errors
    /// When the stream as a whole is refused; what happens later comes through the answer.
    pub async fn produce_stream<S: Stream<Item = NewRecord> + Send + 'static>(
        &self,
        topic: &str,
        records: S,
        acks: AcksWord,
    ) -> Result<impl Stream<Item = Result<LineAnswer, ClientError>> + Unpin + use<S>, ClientError> {
        let lines = records.map(|record| record.to_line());
        let request = self.records_request(topic, acks)?.header(CONTENT_TYPE, crate::NDJSON_TYPE);
        let response = self.send(request.body(Body::wrap_stream(lines))).await?;
        Ok(Lines::new(response).into_values(self.clone()))
    }

    fn records_request(&self, topic: &str, acks: AcksWord) -> Result<RequestBuilder, ClientError> {
        let request = self.request(Method::POST, &["v1", "topics", topic, "records"])?;
        Ok(if acks == AcksWord::All { request } else { request.query(&[("acks", acks)]) })
    }
}

fn may_pass(placement: &Placement) -> bool {
    matches!(placement, Placement::Failed { problem } if problem.retryable)
}

pub(crate) fn with_key(request: RequestBuilder, key: Option<&str>) -> RequestBuilder {
    const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
    match key {
        Some(key) => request.header(IDEMPOTENCY_KEY, key),
        None => request,
    }
}
