//! The server under load as its clients see it: plain requests and answers. While it is down they wait.

use std::time::Duration;

use levada_api::{BegunTransaction, Effect, ErrorCode, Problem};
use levada_client::Record;
use levada_history::{Broker, Found, Marks, Outcome, Partition, Refusal, Value, View};
use levada_model::{GroupName, Offset};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

/// How long a reader waits for something new.
const READ_WAIT_MS: u64 = 20;
/// Most records of a read; few, so that reads end at many places.
const READ_RECORDS_MAX: u64 = 50;

/// The server's HTTP face.
pub(crate) struct Face {
    client: Client,
    /// Its address; none while it is down.
    url: watch::Sender<Option<String>>,
}

/// A producer id with its epoch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Producer {
    producer_id: i64,
    producer_epoch: i16,
}

#[derive(Deserialize)]
struct Placed {
    records: Vec<PlacedRecord>,
}

#[derive(Deserialize)]
struct PlacedRecord {
    offset: u64,
}

#[derive(Deserialize)]
struct Fetched {
    records: Vec<Record>,
    next_offset: u64,
    high_watermark: u64,
    last_stable_offset: u64,
}

/// A page of a whole topic.
#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) records: Vec<Record>,
    pub(crate) cursor: String,
}

#[derive(Deserialize)]
struct GroupOffsets {
    offsets: Vec<GroupOffset>,
}

#[derive(Deserialize)]
struct GroupOffset {
    topic: String,
    partition: u32,
    committed: u64,
}

impl Face {
    pub(crate) fn new() -> Self {
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().expect("a client");
        Self { client, url: watch::Sender::new(None) }
    }

    /// The server is there.
    pub(crate) fn up(&self, url: &str) {
        self.url.send_replace(Some(url.to_owned()));
    }

    /// The server is about to go.
    pub(crate) fn down(&self) {
        self.url.send_replace(None);
    }

    /// The next page of a topic from a cursor on, or from its beginning.
    pub(crate) async fn page(&self, topic: &str, view: View, cursor: Option<&str>) -> Result<Page, Refusal> {
        let from = cursor.unwrap_or("earliest");
        let path = format!("/v1/topics/{topic}/records");
        let query = [("from", from.to_owned()), ("isolation", isolation(view).to_owned())];
        let page = [("max_records", READ_RECORDS_MAX.to_string()), ("wait_ms", READ_WAIT_MS.to_string())];
        self.ask(|client, url| client.get(format!("{url}{path}")).query(&query).query(&page)).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[(&str, String)],
        body: Json,
    ) -> Result<T, Refusal> {
        let request = |client: &Client, url: &str| {
            let request = client.post(format!("{url}{path}")).json(&body);
            headers.iter().fold(request, |request, (name, value)| request.header(*name, value))
        };
        self.ask(request).await
    }

    async fn produce(
        &self,
        partition: &Partition,
        headers: &[(&str, String)],
        values: &[Value],
    ) -> Result<Vec<Offset>, Refusal> {
        let record = |value: &Value| json!({ "value_text": value.to_string(), "partition": partition.index.0 });
        let body = json!({ "records": values.iter().map(record).collect::<Vec<_>>() });
        let path = format!("/v1/topics/{}/records", partition.topic);
        let placed: Placed = self.post(&path, headers, body).await?;
        Ok(placed.records.iter().map(|record| Offset(record.offset)).collect())
    }

    /// Sends one request to the server, once it is there.
    async fn ask<T: DeserializeOwned>(&self, request: impl Fn(&Client, &str) -> RequestBuilder) -> Result<T, Refusal> {
        let url = self.url.subscribe().wait_for(Option::is_some).await.expect("it is held here").clone();
        let response = request(&self.client, &url.expect("waited for")).send().await.map_err(|_| Refusal::Unknown)?;
        let status = response.status();
        let body = response.bytes().await.map_err(|_| Refusal::Unknown)?;
        let wrong =
            |error: serde_json::Error| Refusal::Wrong(format!("{status}: {error}: {}", String::from_utf8_lossy(&body)));
        if status.is_success() {
            let body = if status == StatusCode::NO_CONTENT { &b"null"[..] } else { &body[..] };
            return serde_json::from_slice(body).map_err(wrong);
        }
        let problem: Problem = serde_json::from_slice(&body).map_err(wrong)?;
        Err(match problem.code {
            ErrorCode::ProducerFenced => Refusal::Fenced,
            ErrorCode::TransactionEnded => Refusal::Ended,
            _ if problem.effect != Effect::None => Refusal::Unknown,
            _ if problem.retryable => Refusal::Later,
            _ => Refusal::Wrong(format!("{status} {}: {}", problem.code, problem.detail)),
        })
    }
}

fn isolation(view: View) -> &'static str {
    match view {
        View::Committed => "read_committed",
        View::Uncommitted => "read_uncommitted",
    }
}

/// What a record holds.
pub(crate) fn value(record: &Record) -> Result<Value, Refusal> {
    let text = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
    text.parse().map_err(Refusal::Wrong)
}

fn offsets(group: &GroupName, partition: &Partition, offset: Offset) -> Json {
    let place = json!({ "topic": partition.topic.as_str(), "partition": partition.index.0, "offset": offset.0 });
    json!({ "group": group.as_str(), "member_id": null, "offsets": [place] })
}

impl Broker for Face {
    type Producer = Producer;
    type Transaction = String;

    async fn start(&self, id: &str, timeout_ms: u64) -> Result<Producer, Refusal> {
        self.post("/v1/producers", &[], json!({ "transactional_id": id, "timeout_ms": timeout_ms })).await
    }

    async fn begin(&self, producer: &Producer) -> Result<String, Refusal> {
        let Producer { producer_id, producer_epoch } = producer;
        let body = json!({ "producer_id": producer_id, "producer_epoch": producer_epoch });
        let begun: BegunTransaction = self.post("/v1/transactions", &[], body).await?;
        Ok(begun.transaction)
    }

    async fn send(
        &self,
        transaction: &String,
        partition: &Partition,
        sequence: Option<u32>,
        values: &[Value],
    ) -> Result<Vec<Offset>, Refusal> {
        let sequence = sequence.map(|sequence| ("producer-sequence", sequence.to_string()));
        let headers: Vec<_> = [("transaction", transaction.clone())].into_iter().chain(sequence).collect();
        self.produce(partition, &headers, values).await
    }

    async fn add_offset(
        &self,
        transaction: &String,
        group: &GroupName,
        partition: &Partition,
        offset: Offset,
    ) -> Result<(), Refusal> {
        let path = format!("/v1/transactions/{transaction}/offsets");
        self.post::<Json>(&path, &[], offsets(group, partition, offset)).await.map(drop)
    }

    async fn end(&self, transaction: &String, outcome: Outcome) -> Result<Producer, Refusal> {
        let word = if outcome == Outcome::Commit { "commit" } else { "abort" };
        let path = format!("/v1/transactions/{transaction}/{word}");
        self.ask(|client, url| client.post(format!("{url}{path}"))).await
    }

    async fn send_outside(&self, producer: &Producer, partition: &Partition, value: Value) -> Result<Offset, Refusal> {
        let headers = [
            ("producer-id", producer.producer_id.to_string()),
            ("producer-epoch", producer.producer_epoch.to_string()),
            ("producer-sequence", "0".to_owned()),
        ];
        Ok(self.produce(partition, &headers, &[value]).await?[0])
    }

    async fn store(&self, partition: &Partition, value: Value) -> Result<Offset, Refusal> {
        Ok(self.produce(partition, &[], &[value]).await?[0])
    }

    async fn commit_offset(&self, group: &GroupName, partition: &Partition, offset: Offset) -> Result<(), Refusal> {
        let path = format!("/v1/groups/{group}/offsets");
        let places = json!({ "offsets": offsets(group, partition, offset)["offsets"] });
        self.ask::<Json>(|client, url| client.put(format!("{url}{path}")).json(&places)).await.map(drop)
    }

    async fn execute(
        &self,
        key: &str,
        records: &[(Partition, Value)],
        offset: Option<&(GroupName, Partition, Offset)>,
    ) -> Result<Vec<Offset>, Refusal> {
        let record = |(partition, value): &(Partition, Value)| {
            let (topic, index) = (partition.topic.as_str(), partition.index.0);
            json!({ "topic": topic, "partition": index, "value_text": value.to_string() })
        };
        let mut body = json!({ "records": records.iter().map(record).collect::<Vec<_>>() });
        if let Some((group, partition, offset)) = offset {
            body["group_offsets"] = offsets(group, partition, *offset);
        }
        let headers = [("idempotency-key", key.to_owned())];
        let placed: Placed = self.post("/v1/transactions/execute", &headers, body).await?;
        Ok(placed.records.iter().map(|record| Offset(record.offset)).collect())
    }

    async fn read(&self, view: View, partition: &Partition, from: Offset) -> Result<Found, Refusal> {
        let path = format!("/v1/topics/{}/partitions/{}/records", partition.topic, partition.index);
        let query = [("offset", from.to_string()), ("isolation", isolation(view).to_owned())];
        let page = [("max_records", READ_RECORDS_MAX), ("wait_ms", READ_WAIT_MS)];
        let fetched: Fetched =
            self.ask(|client, url| client.get(format!("{url}{path}")).query(&query).query(&page)).await?;
        let record = |record: &Record| Ok((Offset(record.offset), value(record)?));
        Ok(Found {
            records: fetched.records.iter().map(record).collect::<Result<_, Refusal>>()?,
            next: Offset(fetched.next_offset),
            marks: Marks {
                high_watermark: Offset(fetched.high_watermark),
                last_stable: Offset(fetched.last_stable_offset),
            },
        })
    }

    async fn group_offset(&self, group: &GroupName, partition: &Partition) -> Result<Option<Offset>, Refusal> {
        let path = format!("/v1/groups/{group}/offsets");
        let offsets: GroupOffsets = match self.ask(|client, url| client.get(format!("{url}{path}"))).await {
            Ok(offsets) => offsets,
            // Nobody has committed anything yet.
            Err(Refusal::Wrong(problem)) if problem.contains(ErrorCode::GroupNotFound.as_str()) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_it = |offset: &&GroupOffset| {
            (offset.topic.as_str(), offset.partition) == (partition.topic.as_str(), partition.index.0)
        };
        Ok(offsets.offsets.iter().find(is_it).map(|offset| Offset(offset.committed)))
    }
}
