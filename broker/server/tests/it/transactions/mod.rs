//! Transactions over HTTP, each request over any connection.

mod ends;
mod executes;
mod loops;
mod offsets;
mod operators;
mod produces;
mod reads;

use http::Method;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};

/// Starts a producer under a transactional id.
pub(crate) async fn init(harness: &Harness, id: &str) -> Value {
    let body = json!({ "transactional_id": id });
    harness.json(Method::POST, "/v1/producers", &body).await.expect(200).json()
}

/// Begins a producer's next transaction, or says why not.
pub(crate) async fn try_begin(harness: &Harness, producer: &Value) -> Answer {
    harness.json(Method::POST, "/v1/transactions", producer).await
}

/// Begins a producer's next transaction; answers its id.
pub(crate) async fn begin(harness: &Harness, producer: &Value) -> String {
    let begun = try_begin(harness, producer).await.expect(201).json();
    begun["transaction"].as_str().expect("an id").to_owned()
}

/// A transaction of a producer that starts for it.
pub(crate) async fn transaction(harness: &Harness, id: &str) -> String {
    begin(harness, &init(harness, id).await).await
}

/// A produce of JSON in a transaction, to be sent.
pub(crate) fn producing(harness: &Harness, transaction: &str, topic: &str, records: Value) -> RequestBuilder {
    let request = harness.request(Method::POST, &format!("/v1/topics/{topic}/records"));
    request.header("transaction", transaction).json(&json!({ "records": records }))
}

/// Stores values in a transaction, in partition 0.
pub(crate) async fn store_in(harness: &Harness, transaction: &str, topic: &str, values: &[Value]) -> Value {
    let records: Vec<_> = values.iter().map(|value| json!({ "value": value, "partition": 0 })).collect();
    harness.send(producing(harness, transaction, topic, json!(records))).await.expect(200).json()
}

/// Takes offsets into a transaction, or says why not.
pub(crate) async fn add_offsets(harness: &Harness, transaction: &str, body: &Value) -> Answer {
    harness.json(Method::POST, &format!("/v1/transactions/{transaction}/offsets"), body).await
}

/// Ends a transaction: `commit` or `abort`.
pub(crate) async fn end(harness: &Harness, transaction: &str, how: &str) -> Answer {
    harness.send(harness.request(Method::POST, &format!("/v1/transactions/{transaction}/{how}"))).await
}

/// The values that readers of what is committed find in partition 0.
pub(crate) async fn committed(harness: &Harness, topic: &str) -> Vec<Value> {
    values(&crate::produce::read(harness, topic, 0, "").await)
}

/// The values of an answer's records.
pub(crate) fn values(answer: &Value) -> Vec<Value> {
    answer["records"].as_array().expect("records").iter().map(|record| record["value"].clone()).collect()
}

/// Offsets of one group in partition 0 of a topic, without a member.
pub(crate) fn group_offsets(group: &str, topic: &str, offset: u64) -> Value {
    json!({ "group": group, "offsets": [{ "topic": topic, "partition": 0, "offset": offset }] })
}

/// Where a group stands in the one partition that it has; none: it has committed nothing.
pub(crate) async fn standing(harness: &Harness, group: &str) -> Option<u64> {
    let answer = harness.get(&format!("/v1/groups/{group}/offsets")).await;
    if answer.status == 404 {
        return None;
    }
    answer.expect(200).json()["offsets"][0]["committed"].as_u64()
}
