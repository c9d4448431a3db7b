//! Reading: one partition, a whole topic with a cursor, one record, offsets by time.

use bytes::Bytes;
use futures_util::Stream;
use levada_api::{Offsets, PartitionOffset};
use reqwest::header::ACCEPT;
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;

use crate::lines::Lines;
use crate::{Client, ClientError, Record};

/// Which records of a partition are wanted. What is not set is the server's default.
#[derive(Clone, Debug, Default)]
pub struct FetchQuery {
    /// A number, `earliest`, `latest`, `time:MS` or `tail:N`.
    pub offset: Option<String>,
    /// Most records.
    pub max_records: Option<u64>,
    /// Most bytes; the first record comes all the same.
    pub max_bytes: Option<u64>,
    /// How long the server holds an empty answer back.
    pub wait_ms: Option<u64>,
    /// Whether records of unfinished transactions come too.
    pub read_uncommitted: bool,
}

impl FetchQuery {
    /// All from this offset on.
    #[must_use]
    pub fn from(offset: impl ToString) -> Self {
        Self { offset: Some(offset.to_string()), ..Self::default() }
    }

    fn add_to(&self, request: RequestBuilder) -> RequestBuilder {
        let mut query = Vec::new();
        query.extend(self.offset.clone().map(|offset| ("offset", offset)));
        query.extend(self.max_records.map(|count| ("max_records", count.to_string())));
        query.extend(self.max_bytes.map(|count| ("max_bytes", count.to_string())));
        query.extend(self.wait_ms.map(|wait| ("wait_ms", wait.to_string())));
        if self.read_uncommitted {
            query.push(("isolation", "read_uncommitted".to_owned()));
        }
        request.query(&query)
    }
}

/// Records of one partition.
#[derive(Clone, Debug, Deserialize)]
pub struct Fetched {
    /// In order.
    pub records: Vec<Record>,
    /// Offsets that are gone, in the server's words (JSON).
    #[serde(default)]
    pub gaps: Vec<serde_json::Value>,
    /// Where to go on.
    pub next_offset: u64,
    /// The end that readers see.
    pub high_watermark: u64,
    /// The end that `read_committed` readers see.
    pub last_stable_offset: u64,
    /// First offset there is.
    pub log_start_offset: u64,
}

/// Records of a whole topic.
#[derive(Clone, Debug, Deserialize)]
pub struct FetchedTopic {
    /// In order within each partition.
    pub records: Vec<Record>,
    /// Offsets that are gone, in the server's words (JSON).
    #[serde(default)]
    pub gaps: Vec<serde_json::Value>,
    /// Where to go on, in all partitions.
    pub cursor: String,
}

impl Client {
    /// Reads one partition.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn fetch(&self, topic: &str, partition: u32, query: &FetchQuery) -> Result<Fetched, ClientError> {
        self.send_for_json(query.add_to(self.partition_request(topic, partition)?)).await
    }

    /// Reads one partition as stored batches, from the one that holds the offset.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn fetch_batches(&self, topic: &str, partition: u32, query: &FetchQuery) -> Result<Bytes, ClientError> {
        let request = query.add_to(self.partition_request(topic, partition)?).header(ACCEPT, crate::RECORD_BATCH_TYPE);
        let response = self.send(request).await?;
        response.bytes().await.map_err(|error| self.failure(error))
    }

    /// Reads one partition as a stream of records, each as soon as it arrives.
    ///
    /// # Errors
    /// When the read is refused; what happens later comes through the stream.
    pub async fn fetch_stream(
        &self,
        topic: &str,
        partition: u32,
        query: &FetchQuery,
    ) -> Result<impl Stream<Item = Result<Record, ClientError>> + Unpin + use<>, ClientError> {
        let request = query.add_to(self.partition_request(topic, partition)?).header(ACCEPT, crate::NDJSON_TYPE);
        let response = self.send(request).await?;
        Ok(Lines::new(response).into_values(self.clone()))
    }

    /// Reads all partitions of a topic; `from` is `earliest`, `latest`, `time:MS`, `tail:N` or a cursor.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn fetch_topic(
        &self,
        topic: &str,
        from: &str,
        max_records: Option<u64>,
        wait_ms: u64,
    ) -> Result<FetchedTopic, ClientError> {
        let mut request = self.request(Method::GET, &["v1", "topics", topic, "records"])?.query(&[("from", from)]);
        if let Some(max_records) = max_records {
            request = request.query(&[("max_records", max_records)]);
        }
        if wait_ms > 0 {
            request = request.query(&[("wait_ms", wait_ms)]);
        }
        self.send_for_json(request).await
    }

    /// Reads one record.
    ///
    /// # Errors
    /// See [`ClientError`]; `no-record` where there is none.
    pub async fn record(&self, topic: &str, partition: u32, offset: u64) -> Result<Record, ClientError> {
        self.send_for_json(self.record_request(topic, partition, offset)?).await
    }

    /// Reads one record's value as it is.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub async fn record_value(&self, topic: &str, partition: u32, offset: u64) -> Result<Bytes, ClientError> {
        let response = self.send(self.record_request(topic, partition, offset)?.query(&[("raw", "")])).await?;
        response.bytes().await.map_err(|error| self.failure(error))
    }

    /// Where a time (milliseconds since 1970) is in each partition.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn offsets_at(&self, topic: &str, time: i64) -> Result<Vec<PartitionOffset>, ClientError> {
        let request = self.request(Method::GET, &["v1", "topics", topic, "offsets"])?.query(&[("time", time)]);
        Ok(self.send_for_json::<Offsets>(request).await?.offsets)
    }

    fn partition_request(&self, topic: &str, partition: u32) -> Result<RequestBuilder, ClientError> {
        let partition = partition.to_string();
        self.request(Method::GET, &["v1", "topics", topic, "partitions", &partition, "records"])
    }

    fn record_request(&self, topic: &str, partition: u32, offset: u64) -> Result<RequestBuilder, ClientError> {
        let (partition, offset) = (partition.to_string(), offset.to_string());
        self.request(Method::GET, &["v1", "topics", topic, "partitions", &partition, "records", &offset])
    }
}
