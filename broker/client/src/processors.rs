//! Processors: put, list, describe, pause, resume, reset, delete, and trials. Their documents are JSON as it was written.

use levada_api::media::JSON;
use levada_api::{Processor, ProcessorDryRun, ProcessorList, ProcessorReset, ResetProcessor};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};

use crate::{Client, ClientError};

const PROCESSORS: &str = "processors";

impl Client {
    /// Puts a processor by its document. Answers whether it is new.
    ///
    /// # Errors
    /// See [`ClientError`]; `invalid-field` with each place of the document that is wrong.
    pub async fn put_processor(&self, name: &str, document: String) -> Result<(Processor, bool), ClientError> {
        let request = self.request(Method::PUT, &["v1", PROCESSORS, name])?;
        let response = self.send(request.header(CONTENT_TYPE, JSON).body(document)).await?;
        let is_new = response.status() == StatusCode::CREATED;
        Ok((self.read_json(response).await?, is_new))
    }

    /// All processors by name, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn processors(&self) -> Result<Vec<Processor>, ClientError> {
        self.pages(&["v1", PROCESSORS], |page: ProcessorList| (page.processors, page.next_cursor)).await
    }

    /// One processor.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn processor(&self, name: &str) -> Result<Processor, ClientError> {
        self.send_for_json(self.request(Method::GET, &["v1", PROCESSORS, name])?).await
    }

    /// Has it stand still; answers when it does.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn pause_processor(&self, name: &str) -> Result<Processor, ClientError> {
        self.send_for_json(self.request(Method::POST, &["v1", PROCESSORS, name, "pause"])?).await
    }

    /// Has it go on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume_processor(&self, name: &str) -> Result<Processor, ClientError> {
        self.send_for_json(self.request(Method::POST, &["v1", PROCESSORS, name, "resume"])?).await
    }

    /// Sets where one that stands still goes on.
    ///
    /// # Errors
    /// See [`ClientError`]; `processor-running`.
    pub async fn reset_processor(&self, name: &str, reset: &ResetProcessor) -> Result<ProcessorReset, ClientError> {
        let request = self.request(Method::POST, &["v1", PROCESSORS, name, "reset"])?;
        self.send_for_json(request.json(reset)).await
    }

    /// Deletes it, with its positions or (`keep_state`) without.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_processor(&self, name: &str, keep_state: bool) -> Result<(), ClientError> {
        let request = self.request(Method::DELETE, &["v1", PROCESSORS, name])?;
        self.send(request.query(&[("keep_state", keep_state)])).await.map(drop)
    }

    /// Tries a document, which may have `from` and `max_records` beside its own fields; nothing is stored.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn dry_run_processor(&self, name: &str, document: String) -> Result<ProcessorDryRun, ClientError> {
        let request = self.compiling(Method::POST, &["v1", PROCESSORS, name, "dry-run"])?;
        self.send_for_json(request.header(CONTENT_TYPE, JSON).body(document)).await
    }
}
