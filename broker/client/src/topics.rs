//! Topics: create, list, describe, alter, delete, truncate.

use std::collections::BTreeMap;

use reqwest::Method;
use reqwest::header::{ETAG, IF_MATCH};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Client, ClientError};

/// A topic as the server tells it. What a newer server tells besides is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its identity; a topic deleted and created anew has another.
    pub id: String,
    /// Whether it is the broker's own.
    pub internal: bool,
    /// Active partitions.
    pub partition_count: u32,
    /// All partitions, also retiring ones.
    pub partitions: Vec<Partition>,
    /// What was set.
    pub config: BTreeMap<String, Value>,
    /// All that holds.
    pub effective_config: BTreeMap<String, Value>,
}

/// A partition as the server tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// Its number.
    pub partition: u32,
    /// The node that leads it.
    pub leader: u32,
    /// The leader's term.
    pub leader_epoch: i32,
    /// Nodes that hold it.
    pub replicas: Vec<u32>,
    /// Those that are in sync.
    pub isr: Vec<u32>,
    /// First offset there is.
    pub log_start_offset: u64,
    /// The end that readers see.
    pub high_watermark: u64,
    /// The end that `read_committed` readers see.
    pub last_stable_offset: u64,
    /// Bytes of its log segments.
    pub size_bytes: u64,
    /// `active` or `retiring`.
    pub state: String,
}

/// A change of a topic.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopicChange {
    /// Active partitions there shall be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Settings; none puts one back to its default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Option<Value>>,
}

#[derive(Deserialize)]
struct TopicPage {
    topics: Vec<Topic>,
    next_cursor: Option<String>,
}

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
        let body = json!({ "name": name, "partitions": partitions, "config": config });
        self.send_for_json(self.request(Method::POST, &["v1", "topics"])?.json(&body)).await
    }

    /// All topics by name, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn topics(&self) -> Result<Vec<Topic>, ClientError> {
        let mut topics = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut request = self.request(Method::GET, &["v1", "topics"])?;
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let page: TopicPage = self.send_for_json(request).await?;
            topics.extend(page.topics);
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(topics),
            }
        }
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
        let status = response.status().as_u16();
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
        let body = response.bytes().await.map_err(|error| self.failure(error))?;
        let topic = serde_json::from_slice(&body).map_err(|error| self.unexpected(status, error.to_string()))?;
        Ok((topic, etag))
    }

    /// Changes a topic; with an ETag only if it is still what that ETag names.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn alter_topic(
        &self,
        name: &str,
        change: &TopicChange,
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

    /// Removes the records before the offsets named (partition, first offset to keep); answers as the server does.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn truncate_topic(&self, name: &str, before: &[(u32, u64)]) -> Result<Value, ClientError> {
        let offset = |&(partition, before): &(u32, u64)| json!({ "partition": partition, "before": before });
        let body = json!({ "offsets": before.iter().map(offset).collect::<Vec<_>>() });
        self.send_for_json(self.request(Method::POST, &["v1", "topics", name, "truncate"])?.json(&body)).await
    }
}
