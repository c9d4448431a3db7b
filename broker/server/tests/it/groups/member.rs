//! A member of a group that makes each of its requests over a connection of its own.

use std::collections::BTreeMap;
use std::sync::Mutex;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};

/// A member, and the cursor of its last answer.
#[derive(Clone)]
pub(crate) struct Member<'h> {
    pub(crate) harness: &'h Harness,
    pub(crate) group: String,
    pub(crate) id: String,
    pub(crate) cursor: String,
    /// Its last answer without records.
    pub(crate) last: Value,
}

impl<'h> Member<'h> {
    /// Joins with every default.
    pub(crate) async fn join(harness: &'h Harness, group: &str, topics: &[&str]) -> Self {
        Self::join_as(harness, group, json!({ "topics": topics })).await
    }

    /// Joins with these words.
    pub(crate) async fn join_as(harness: &'h Harness, group: &str, join: Value) -> Self {
        let path = format!("/v1/groups/{group}/members");
        let request = harness.request(Method::POST, &path).header("connection", "close").json(&join);
        let answer = harness.send(request).await.expect(201);
        let joined = answer.json();
        let id = joined["member_id"].as_str().expect("an id").to_owned();
        assert_eq!(answer.header("location"), format!("{path}/{id}"));
        assert_eq!(joined["cursor"], "");
        Self { harness, group: group.to_owned(), id, cursor: String::new(), last: joined }
    }

    fn request(&self, method: Method, call: &str) -> reqwest::RequestBuilder {
        let path = format!("/v1/groups/{}/members/{}{call}", self.group, self.id);
        self.harness.request(method, &path).header("connection", "close")
    }

    /// A fetch from its cursor, or why there is none; `query` is more of the query.
    pub(crate) async fn try_fetch(&self, query: &str) -> Answer {
        let call = format!("/records?cursor={}&{query}", self.cursor);
        self.harness.send(self.request(Method::GET, &call)).await
    }

    /// A fetch that goes well: its records. The cursor moves on.
    pub(crate) async fn fetch(&mut self, query: &str) -> Vec<Value> {
        let mut answer = self.try_fetch(query).await.expect(200).json();
        self.cursor = answer["cursor"].as_str().expect("a cursor").to_owned();
        let Value::Array(records) = answer["records"].take() else { panic!("{answer}") };
        self.last = answer;
        records
    }

    pub(crate) async fn heartbeat(&self) -> Answer {
        self.harness.send(self.request(Method::POST, "/heartbeat")).await
    }

    /// Commits everything up to its cursor.
    pub(crate) async fn commit(&self) -> Answer {
        self.commit_as(json!({ "cursor": self.cursor })).await
    }

    pub(crate) async fn commit_as(&self, commit: Value) -> Answer {
        self.harness.send(self.request(Method::POST, "/commit").json(&commit)).await
    }

    pub(crate) async fn reject(&self, reject: Value) -> Answer {
        self.harness.send(self.request(Method::POST, "/reject").json(&reject)).await
    }

    pub(crate) async fn leave(&self) -> Answer {
        self.harness.send(self.request(Method::DELETE, "")).await
    }

    /// How it stood at its last answer.
    pub(crate) fn state(&self) -> &str {
        self.last["state"].as_str().expect("a state")
    }

    /// The partitions that it kept at its last answer.
    pub(crate) fn assignment(&self) -> Vec<u64> {
        partitions(&self.last["assignment"])
    }

    /// The partitions that it had to give up at its last answer.
    pub(crate) fn revoked(&self) -> Vec<u64> {
        partitions(&self.last["revoked"])
    }

    /// Fetches until it stands so.
    pub(crate) async fn until(&mut self, is_reached: impl Fn(&Self) -> bool) -> Vec<Value> {
        let mut records = Vec::new();
        while !is_reached(self) {
            records.extend(self.fetch("wait_ms=50").await);
        }
        records
    }
}

/// The numbers of partitions in a list of them.
pub(crate) fn partitions(list: &Value) -> Vec<u64> {
    list.as_array().expect("a list").iter().map(|one| one["partition"].as_u64().expect("a number")).collect()
}

/// The partition and offset of each record.
pub(crate) fn places(records: &[Value]) -> Vec<(u64, u64)> {
    let number = |record: &Value, name: &str| record[name].as_u64().expect("a number");
    records.iter().map(|record| (number(record, "partition"), number(record, "offset"))).collect()
}

/// What members of a group got, each record with how often.
#[derive(Default)]
pub(crate) struct Seen(Mutex<BTreeMap<(u64, u64), usize>>);

impl Seen {
    pub(crate) fn take(&self, records: &[Value]) {
        let mut seen = self.0.lock().expect("no panic");
        places(records).into_iter().for_each(|place| *seen.entry(place).or_default() += 1);
    }

    /// How many different ones.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// Those that came more than once.
    pub(crate) fn doubled(&self) -> Vec<(u64, u64)> {
        let seen = self.0.lock().expect("no panic");
        seen.iter().filter(|(_, count)| **count > 1).map(|(place, _)| *place).collect()
    }

    /// All, in order.
    pub(crate) fn places(&self) -> Vec<(u64, u64)> {
        self.0.lock().expect("no panic").keys().copied().collect()
    }
}

/// Has all members work at once (fetch, note, commit, and then fetch again) until each holds what it shall and the group
/// has shared all its partitions.
pub(crate) async fn settle(members: &mut [Member<'_>], partitions: usize, seen: &Seen) {
    loop {
        work(members, seen).await;
        let shared: usize = members.iter().map(|member| member.assignment().len()).sum();
        let is_settled = members.iter().all(|member| matches!(member.state(), "stable" | "idle"));
        let same = members.iter().all(|member| member.last["generation"] == members[0].last["generation"]);
        if is_settled && same && shared == partitions {
            return;
        }
    }
}

/// One turn of every member, all at once.
pub(crate) async fn work(members: &mut [Member<'_>], seen: &Seen) {
    let turns = members.iter_mut().map(|member| turn(member, seen));
    futures_util::future::join_all(turns).await;
}

async fn turn(member: &mut Member<'_>, seen: &Seen) {
    let records = member.fetch("wait_ms=50&max_records=7").await;
    seen.take(&records);
    if !records.is_empty() {
        let committed = member.commit().await.expect(200).json();
        assert_eq!(committed["refused"], json!([]));
    }
}

/// Stores so many records in a topic, keyed so that they spread over its partitions.
pub(crate) async fn store(harness: &Harness, topic: &str, count: usize) {
    let records: Vec<_> = (0..count).map(|n| json!({ "key": format!("k{n}"), "value": n })).collect();
    harness
        .json(Method::POST, &format!("/v1/topics/{topic}/records"), &json!({ "records": records }))
        .await
        .expect(200);
}

/// Stores so many records in one partition.
pub(crate) async fn store_in(harness: &Harness, topic: &str, partition: u32, count: usize) {
    let records: Vec<_> = (0..count).map(|n| json!({ "value": n, "partition": partition })).collect();
    harness
        .json(Method::POST, &format!("/v1/topics/{topic}/records"), &json!({ "records": records }))
        .await
        .expect(200);
}
