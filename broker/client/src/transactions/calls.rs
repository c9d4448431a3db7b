//! The calls on transactions, one by one. Each may go over a connection of its own: a transaction is its id.

use std::time::Duration;

use levada_api::{
    BeginTransaction, BegunTransaction, OpenTransaction, PendingOffsets, Producer, ProducerRequest, TransactionList,
    TransactionOffsets,
};
use reqwest::Method;

use crate::{Client, ClientError};

impl Client {
    /// Starts a producer under a transactional id: all before it are fenced, and what they left open is aborted.
    /// `timeout` is after how long its transactions are aborted; none is the server's default.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn init_producer(
        &self,
        transactional_id: &str,
        timeout: Option<Duration>,
    ) -> Result<Producer, ClientError> {
        let timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let request = ProducerRequest { transactional_id: Some(transactional_id.to_owned()), timeout_ms };
        self.send_for_json(self.request(Method::POST, &["v1", "producers"])?.json(&request)).await
    }

    /// Begins a transaction; answers its id. The same again answers the same.
    ///
    /// # Errors
    /// See [`ClientError`]; `producer-fenced` where a later epoch was given out.
    pub async fn begin_transaction(&self, producer: Producer) -> Result<String, ClientError> {
        let Producer { producer_id, producer_epoch } = producer;
        let request = self.request(Method::POST, &["v1", "transactions"])?;
        let request = request.json(&BeginTransaction { producer_id, producer_epoch });
        Ok(self.send_for_json::<BegunTransaction>(request).await?.transaction)
    }

    /// Takes offsets of a group into a transaction: they count once it is committed.
    ///
    /// # Errors
    /// See [`ClientError`]; `transaction-ended`, and what a group's commit is refused for.
    pub async fn add_transaction_offsets(
        &self,
        transaction: &str,
        offsets: &TransactionOffsets,
    ) -> Result<PendingOffsets, ClientError> {
        let request = self.request(Method::POST, &["v1", "transactions", transaction, "offsets"])?;
        self.send_for_json(request.json(offsets)).await
    }

    /// Commits a transaction; answers the producer of the next one. The same again answers the same.
    ///
    /// # Errors
    /// See [`ClientError`]; `transaction-ended` where it was aborted.
    pub async fn commit_transaction(&self, transaction: &str) -> Result<Producer, ClientError> {
        self.end_transaction(transaction, "commit").await
    }

    /// Aborts a transaction, one's own or as an operator any; answers the producer of the next one. The same again answers
    /// the same.
    ///
    /// # Errors
    /// See [`ClientError`]; `transaction-ended` where it was committed.
    pub async fn abort_transaction(&self, transaction: &str) -> Result<Producer, ClientError> {
        self.end_transaction(transaction, "abort").await
    }

    /// All transactions that are open or being ended, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn transactions(&self) -> Result<Vec<OpenTransaction>, ClientError> {
        self.pages(&["v1", "transactions"], |page: TransactionList| (page.transactions, page.next_cursor)).await
    }

    async fn end_transaction(&self, transaction: &str, end: &str) -> Result<Producer, ClientError> {
        self.send_for_json(self.request(Method::POST, &["v1", "transactions", transaction, end])?).await
    }
}
