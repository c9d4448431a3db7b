//! Whole transactions in one request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_api::{ExecutedRecord, ExecutedTransaction, TransactionOffsets};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;

use super::producer::retried;
use crate::produce::{IDEMPOTENT_REPLAYED, with_key};
use crate::{Client, ClientError, NewRecord};

/// A whole transaction: what is to be stored and committed, all or nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Execute {
    /// Records for any topics.
    pub records: Vec<ExecuteRecord>,
    /// Offsets that are committed with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_offsets: Option<TransactionOffsets>,
}

/// A record of a whole transaction.
#[derive(Clone, Debug, Serialize)]
pub struct ExecuteRecord {
    /// Its topic.
    pub topic: String,
    /// The record itself.
    #[serde(flatten)]
    pub record: NewRecord,
}

/// What became of a whole transaction: it is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Where each record is, in order.
    pub records: Vec<ExecutedRecord>,
    /// Whether an earlier request with the same key did it.
    pub duplicate: bool,
}

impl Client {
    /// Does a whole transaction with one request. With a key it is done once, however often it is sent within a day (or
    /// before so many others come that the server forgets its answer, see its documentation).
    ///
    /// # Errors
    /// See [`ClientError`]; nothing of it was done where a refusal's `effect` is `none`.
    pub async fn execute(&self, transaction: &Execute, idempotency_key: Option<&str>) -> Result<Executed, ClientError> {
        let body = serde_json::to_vec(transaction)?;
        let request = self.request(Method::POST, &["v1", "transactions", "execute"])?;
        let request = with_key(request.header(CONTENT_TYPE, "application/json").body(body), idempotency_key);
        let response = self.send(request).await?;
        let duplicate = response.headers().contains_key(IDEMPOTENT_REPLAYED);
        let answer: ExecutedTransaction = self.read_json(response).await?;
        Ok(Executed { records: answer.records, duplicate })
    }

    /// The same with a key, tried again until its answer is final or the time is over. Only the first try's answer can tell
    /// of a `duplicate`: a later one's may be of the first, whose answer was lost.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); the last one where the time is over.
    pub async fn execute_with_retries(
        &self,
        transaction: &Execute,
        idempotency_key: &str,
        retry_for: Duration,
    ) -> Result<Executed, ClientError> {
        let is_first = AtomicBool::new(true);
        let execute = || async {
            let is_first = is_first.swap(false, Ordering::Relaxed);
            let executed = self.execute(transaction, Some(idempotency_key)).await?;
            Ok(Executed { duplicate: executed.duplicate && is_first, ..executed })
        };
        retried(retry_for, execute).await
    }
}
