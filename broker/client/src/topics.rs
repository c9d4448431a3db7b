//! Topics: create, list, describe, alter, delete, truncate, compact.

use std::collections::BTreeMap;

use levada_api::{
    AlterTopic, CompactedTopic, CreateTopic, Topic, TopicList, TruncateBefore, TruncateTopic, TruncatedTopic,
};
use reqwest::header::{ETAG, IF_MATCH};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::{Client, ClientError};

impl Client {
    /// Creates a topic.
    ///
    /// # Errors
    /// See [`ClientError`]; `topic-exists` where there is one.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: u32,
        config: BTreeMap<String, Value>,
    ) -> Result<Topic, ClientError> {
        let body = CreateTopic { name: name.to_owned(), partitions, config };
        self.send_for_json(self.request(Method::POST, &["v1", "topics"])?.json(&body)).await
    }

    /// All topics by name, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn topics(&self) -> Result<Vec<Topic>, ClientError> {
        self.pages(&["v1", "topics"], |page: TopicList| (page.topics, page.next_cursor)).await
    }

    /// One topic.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn topic(&self, name: &str) -> Result<Topic, ClientError> {
        self.send_for_json(self.request(Method::GET, &["v1", "topics", name])?).await
    }

    /// One topic with its ETag, for [`alter_topic`](Self::alter_topic).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn topic_with_etag(&self, name: &str) -> Result<(Topic, String), ClientError> {
        let response = self.send(self.request(Method::GET, &["v1", "topics", name])?).await?;
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
        Ok((self.read_json(response).await?, etag))
    }

    /// Changes a topic; with an ETag only if it is still what that ETag names.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn alter_topic(
        &self,
        name: &str,
        change: &AlterTopic,
        if_match: Option<&str>,
    ) -> Result<Topic, ClientError> {
        let mut request = self.request(Method::PATCH, &["v1", "topics", name])?.json(change);
        if let Some(etag) = if_match {
            request = request.header(IF_MATCH, etag);
        }
        self.send_for_json(request).await
    }

    /// Deletes a topic with all its records.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["v1", "topics", name])?).await.map(drop)
    }

    /// Compacts a topic now, and waits for it at most 30 s. Answers the partitions that are done, and whether these are
    /// all; if not, the server goes on.
    ///
    /// # Errors
    /// See [`ClientError`]; `not-compacted` where the topic's `cleanup.policy` does not compact it.
    pub async fn compact_topic(&self, name: &str) -> Result<(CompactedTopic, bool), ClientError> {
        let response = self.send(self.request(Method::POST, &["v1", "topics", name, "compact"])?).await?;
        let is_done = response.status() != StatusCode::ACCEPTED;
        Ok((self.read_json(response).await?, is_done))
    }

    /// Removes the records before the offsets named.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn truncate_topic(
        &self,
        name: &str,
        offsets: Vec<TruncateBefore>,
    ) -> Result<TruncatedTopic, ClientError> {
        let request = self.request(Method::POST, &["v1", "topics", name, "truncate"])?;
        self.send_for_json(request.json(&TruncateTopic { offsets })).await
    }
}
