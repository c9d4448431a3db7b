//! Subscriptions as members of a group.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Client, eventually, offsets};
use crate::groups::member::{Member, partitions, places, store, store_in};
use crate::harness::Harness;
use crate::produce::topic;
use crate::transactions::{add_offsets, end, group_offsets, transaction};

/// A member through a socket of its own, and what it got.
struct Peer {
    client: Client,
    subscribed: Value,
    /// Its last `rebalance`, or its `subscribed`.
    standing: Value,
    cursor: String,
}

impl Peer {
    async fn join(harness: &Harness, more: Value) -> Self {
        let mut client = Client::open(harness).await;
        let mut frame = json!({ "type": "subscribe", "id": "s", "group": "billing", "topics": ["orders"] });
        frame.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        client.send(frame).await;
        let subscribed = client.expect("subscribed").await;
        let cursor = subscribed["cursor"].as_str().expect("a cursor").to_owned();
        Self { client, standing: subscribed.clone(), subscribed, cursor }
    }

    /// The next frame, noted where it tells how the member stands; its records.
    async fn step(&mut self) -> Vec<Value> {
        let mut frame = self.client.next().await;
        match frame["type"].as_str() {
            Some("records") => {
                self.cursor = frame["cursor"].as_str().expect("a cursor").to_owned();
                let Value::Array(records) = frame["records"].take() else { panic!("{frame}") };
                return records;
            }
            Some("rebalance") => self.standing = frame,
            Some("caught_up" | "pong") => {}
            _ => panic!("{frame}"),
        }
        Vec::new()
    }

    /// Steps until it stands so; what came meanwhile.
    async fn until(&mut self, is_reached: impl Fn(&Self) -> bool) -> Vec<Value> {
        let mut records = Vec::new();
        while !is_reached(self) {
            records.extend(self.step().await);
        }
        records
    }

    /// Steps until so many records have come.
    async fn take(&mut self, count: usize) -> Vec<Value> {
        let mut records = Vec::new();
        while records.len() < count {
            records.extend(self.step().await);
        }
        records
    }

    fn assignment(&self) -> Vec<u64> {
        partitions(&self.standing["assignment"])
    }

    fn revoked(&self) -> Vec<u64> {
        partitions(&self.standing["revoked"])
    }

    async fn send_commit(&mut self) {
        let commit = json!({ "type": "commit", "id": "s", "cursor": self.cursor });
        self.client.send(commit).await;
    }

    /// Commits everything that came; frames of records may come before the answer.
    async fn commit(&mut self) -> (Value, Vec<Value>) {
        self.send_commit().await;
        let mut records = Vec::new();
        loop {
            let mut frame = self.client.next().await;
            match frame["type"].as_str() {
                Some("committed") => return (frame, records),
                Some("records") => {
                    let Value::Array(more) = frame["records"].take() else { panic!("{frame}") };
                    records.extend(more);
                }
                Some("rebalance") => self.standing = frame,
                Some("caught_up") => {}
                _ => panic!("{frame}"),
            }
        }
    }
}

async fn orders(harness: &Harness, partitions: u32) {
    topic(harness, "orders", partitions, json!({})).await;
}

async fn committed(harness: &Harness) -> BTreeMap<u64, u64> {
    let group = harness.get("/v1/groups/billing").await.expect(200).json();
    let number = |offset: &Value, name: &str| offset[name].as_u64().expect("a number");
    let offsets = group["offsets"].as_array().expect("offsets").iter();
    offsets.map(|offset| (number(offset, "partition"), number(offset, "committed"))).collect()
}

async fn members(harness: &Harness) -> usize {
    let group = harness.get("/v1/groups/billing").await.expect(200).json();
    group["members"].as_array().expect("members").len()
}

#[tokio::test]
async fn a_member_gets_its_partitions_commits_and_another_goes_on_behind() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 2).await;
    store(&harness, "orders", 10).await;
    let mut one = Peer::join(&harness, json!({})).await;
    assert_eq!((&one.subscribed["assignment"], &one.subscribed["state"]), (&json!([]), &json!("assigning")));
    assert!(one.subscribed["member_id"].is_string() && one.subscribed["generation"].is_u64());
    one.client.credit(6).await;
    let first = one.take(6).await;
    assert_eq!(one.assignment(), [0, 1], "without credit for more it was told what it holds");
    assert!(first.iter().all(|record| record["topic"] == "orders"));
    let (answer, more) = one.commit().await;
    assert_eq!((answer["committed"].as_array().map(Vec::len), &answer["refused"]), (Some(2), &json!([])));
    assert!(more.is_empty(), "no credit, no records");
    one.client.send(json!({ "type": "unsubscribe", "id": "s" })).await;
    one.client.until("unsubscribed").await;
    assert_eq!(members(&harness).await, 0, "it has left");

    let mut two = Peer::join(&harness, json!({})).await;
    two.client.credit(100).await;
    let mut all = [first, two.take(4).await].concat();
    two.client.until("caught_up").await;
    all.sort_by_key(|record| record["value"].as_u64());
    assert_eq!(
        all.iter().map(|record| record["value"].clone()).collect::<Vec<_>>(),
        (0..10).map(Value::from).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn members_come_and_go_and_no_record_is_lost_or_doubled() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 4).await;
    let mut one = Peer::join(&harness, json!({})).await;
    let mut two = Peer::join(&harness, json!({})).await;
    for peer in [&mut one, &mut two] {
        peer.client.credit(1_000).await;
        assert!(peer.until(|peer| peer.assignment().len() == 2).await.is_empty());
    }
    store(&harness, "orders", 100).await;
    let owned = |peer: &Peer, records: &[Value]| {
        let owned = peer.assignment();
        records.iter().all(|record| owned.contains(&record["partition"].as_u64().expect("a number")))
    };
    let mut seen = Vec::new();
    let shares = [100 - in_partitions(&harness, &two).await, in_partitions(&harness, &two).await];
    for (peer, share) in [&mut one, &mut two].into_iter().zip(shares) {
        let records = peer.take(share).await;
        assert!(owned(peer, &records));
        seen.extend(records);
        let (answer, _) = peer.commit().await;
        assert_eq!(answer["refused"], json!([]));
    }
    assert_eq!(seen.len(), 100);

    // A third comes: one of the two gives a partition up, without being asked twice, since all of it is committed.
    let mut three = Peer::join(&harness, json!({})).await;
    three.client.credit(1_000).await;
    three.until(|peer| peer.assignment().len() == 1).await;
    // Two more: each has one, and one has none and says so.
    let mut four = Peer::join(&harness, json!({})).await;
    let mut five = Peer::join(&harness, json!({})).await;
    four.client.credit(1_000).await;
    five.client.credit(1_000).await;
    let mut peers = [one, two, three, four, five];
    for peer in &mut peers {
        peer.until(|peer| {
            peer.standing["state"] == "idle" || (peer.assignment().len() == 1 && peer.revoked().is_empty())
        })
        .await;
    }
    let idle = peers.iter().filter(|peer| peer.standing["state"] == "idle").count();
    assert_eq!(idle, 1);
    store(&harness, "orders", 100).await;
    for peer in &mut peers {
        let share = in_partitions(&harness, peer).await / 2;
        let records = peer.take(share).await;
        assert!(owned(peer, &records));
        seen.extend(records);
    }
    let mut places = places(&seen);
    places.sort_unstable();
    places.dedup();
    assert_eq!((seen.len(), places.len()), (200, 200));
}

/// How many records the partitions of a member have.
async fn in_partitions(harness: &Harness, peer: &Peer) -> usize {
    let topic = harness.get("/v1/topics/orders").await.expect(200).json();
    let end =
        |partition: &u64| topic["partitions"][usize::try_from(*partition).expect("small")]["high_watermark"].as_u64();
    let sum: u64 = peer.assignment().iter().map(|partition| end(partition).expect("an offset")).sum();
    usize::try_from(sum).expect("small")
}

#[tokio::test]
async fn a_member_over_http_and_one_over_a_socket_share_a_group() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 4).await;
    store(&harness, "orders", 100).await;
    let mut http = Member::join(&harness, "billing", &["orders"]).await;
    let mut socket = Peer::join(&harness, json!({})).await;
    socket.client.credit(1_000).await;
    let mut seen = http.until(|member| member.assignment().len() == 2).await;
    seen.extend(socket.until(|peer| peer.assignment().len() == 2).await);
    while seen.len() < 100 {
        let share = in_partitions(&harness, &socket).await;
        let of_socket = seen
            .iter()
            .filter(|record| socket.assignment().contains(&record["partition"].as_u64().expect("a number")))
            .count();
        seen.extend(if of_socket < share { socket.step().await } else { http.fetch("wait_ms=50").await });
    }
    let mut places = places(&seen);
    places.sort_unstable();
    places.dedup();
    assert_eq!((seen.len(), places.len()), (100, 100));
}

#[tokio::test]
async fn a_revoked_partition_is_given_up_when_what_was_delivered_is_committed() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 2).await;
    for partition in 0..2 {
        store_in(&harness, "orders", partition, 5).await;
    }
    let mut one = Peer::join(&harness, json!({ "rebalance_timeout_ms": 3_600_000 })).await;
    one.client.credit(1_000).await;
    assert_eq!(one.take(10).await.len(), 10);
    let mut two = Peer::join(&harness, json!({})).await;
    two.client.credit(1_000).await;
    one.until(|peer| peer.revoked().len() == 1).await;
    let lost = one.revoked()[0];
    assert!(one.standing["revoke_deadline_ms"].is_i64());
    store_in(&harness, "orders", u32::try_from(lost).expect("small"), 1).await;
    two.client.is_quiet().await;
    assert_eq!(members(&harness).await, 2);
    let (answer, more) = one.commit().await;
    assert_eq!((answer["committed"].as_array().map(Vec::len), &answer["refused"], more), (Some(2), &json!([]), vec![]));
    let records = two.take(1).await;
    assert_eq!(places(&records), [(lost, 5)], "exactly what was not committed");
    one.until(|peer| peer.revoked().is_empty() && peer.assignment().len() == 1).await;
    // Committing the old cursor again tells what is not held any more.
    let (answer, _) = one.commit().await;
    assert_eq!(answer["refused"][0]["partition"], lost);
    assert!(answer["refused"][0]["reason"].is_string());
}

#[tokio::test]
async fn a_revoked_partition_that_is_never_committed_goes_at_the_deadline() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 2).await;
    for partition in 0..2 {
        store_in(&harness, "orders", partition, 3).await;
    }
    let mut one = Peer::join(&harness, json!({ "rebalance_timeout_ms": 300 })).await;
    one.client.credit(6).await;
    one.take(6).await;
    let mut two = Peer::join(&harness, json!({})).await;
    two.client.credit(1_000).await;
    let records = two.take(3).await;
    assert_eq!(offsets(&records), [0, 1, 2], "from the start, since nothing was committed");
}

#[tokio::test]
async fn a_socket_that_is_cut_leaves_its_group_at_once() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 2).await;
    let one = Peer::join(&harness, json!({ "session_timeout_ms": 1_800_000 })).await;
    let mut two = Peer::join(&harness, json!({})).await;
    two.client.credit(10).await;
    two.until(|peer| peer.assignment().len() == 1).await;
    drop(one);
    two.until(|peer| peer.assignment().len() == 2).await;
    assert_eq!(members(&harness).await, 1);
}

#[tokio::test]
async fn an_instance_stays_when_its_socket_is_cut_and_comes_back_to_what_it_had() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 2).await;
    let mut one = Peer::join(&harness, json!({ "instance_id": "pod-0" })).await;
    one.client.credit(10).await;
    one.until(|peer| peer.assignment().len() == 2).await;
    let generation = one.standing["generation"].clone();
    let cursor = one.standing["cursor"].clone();
    drop(one);
    let resumed = Peer::join(&harness, json!({ "instance_id": "pod-0", "cursor": cursor })).await;
    assert_eq!(resumed.subscribed["resumed"], true, "it goes on exactly there");
    drop(resumed);
    let again = Peer::join(&harness, json!({ "instance_id": "pod-0" })).await;
    assert_eq!(again.subscribed["resumed"], false, "it did not say where it stood");
    assert_eq!(partitions(&again.subscribed["assignment"]), [0, 1]);
    assert_eq!((&again.subscribed["generation"], members(&harness).await), (&generation, 1));

    // With two alive the newer wins; the older is told and its socket stays open.
    let mut older = again;
    older.client.credit(10).await;
    let newer = Peer::join(&harness, json!({ "instance_id": "pod-0" })).await;
    let error = older.client.until("error").await;
    assert_eq!((&error["id"], &error["problem"]["code"]), (&json!("s"), &json!("fenced-instance")));
    older.client.answers().await;
    assert_eq!((partitions(&newer.subscribed["assignment"]).len(), members(&harness).await), (2, 1));
}

#[tokio::test]
async fn a_group_alone_is_joined_for_what_it_reads_already() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 1).await;
    let mut client = Client::open(&harness).await;
    client.send(json!({ "type": "subscribe", "id": "s", "group": "billing" })).await;
    assert_eq!(client.refusal().await, (json!("s"), "invalid-field".to_owned()), "it reads nothing yet");
    let mut one = Peer::join(&harness, json!({})).await;
    one.client.credit(10).await;
    store(&harness, "orders", 3).await;
    one.take(3).await;
    one.commit().await;
    client.send(json!({ "type": "subscribe", "id": "s", "group": "billing" })).await;
    client.expect("subscribed").await;
    assert_eq!(members(&harness).await, 2);
    client.send(json!({ "type": "unsubscribe", "id": "s" })).await;
    client.until("unsubscribed").await;
    drop(one);
    eventually(async || members(&harness).await == 0).await;
    client.send(json!({ "type": "subscribe", "id": "s", "group": "billing" })).await;
    client.expect("subscribed").await;
    assert_eq!(committed(&harness).await, BTreeMap::from([(0, 3)]));
}

#[tokio::test]
async fn what_is_wrong_with_a_member_is_told() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 1).await;
    store(&harness, "orders", 3).await;
    let mut other = Peer::join(&harness, json!({ "group": "shipping" })).await;
    other.client.credit(1).await;
    other.take(1).await;
    let mut client = Client::open(&harness).await;
    for (more, code) in [
        (json!({ "topics": ["nowhere"] }), "topic-not-found"),
        (json!({ "group": "a b" }), "invalid-group-name"),
        (json!({ "from": 5 }), "invalid-field"),
        (json!({ "assignor": "fair" }), "invalid-field"),
        (json!({ "session_timeout_ms": 1 }), "invalid-field"),
        (json!({ "cursor": "nonsense" }), "invalid-cursor"),
        (json!({ "cursor": other.cursor }), "cursor-gone"),
    ] {
        let mut frame = json!({ "type": "subscribe", "id": 1, "group": "billing", "topics": ["orders"] });
        frame.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        client.send(frame).await;
        assert_eq!(client.refusal().await, (json!(1), code.to_owned()), "{more}");
    }
    assert_eq!(harness.get("/v1/groups/billing").await.status.as_u16(), 404, "nobody has joined");
    for (cursor, code) in
        [("nonsense", "invalid-cursor"), (one_topic_cursor(&harness).await.as_str(), "invalid-cursor")]
    {
        other.client.send(json!({ "type": "commit", "id": "s", "cursor": cursor })).await;
        assert_eq!(other.client.until("error").await["problem"]["code"], code);
    }
    let mut mine = Peer::join(&harness, json!({})).await;
    mine.client.credit(1).await;
    mine.take(1).await;
    let foreign = other.cursor.clone();
    mine.client.send(json!({ "type": "commit", "id": "s", "cursor": foreign })).await;
    assert_eq!(mine.client.until("error").await["problem"]["code"], "cursor-gone");
    let (answer, _) = mine.commit().await;
    assert_eq!(answer["committed"], json!([{ "topic": "orders", "partition": 0, "offset": 1 }]));
}

async fn one_topic_cursor(harness: &Harness) -> String {
    let page = harness.get("/v1/topics/orders/records").await.expect(200).json();
    page["cursor"].as_str().expect("a cursor").to_owned()
}

#[tokio::test]
async fn a_member_of_a_thousand_partitions_gets_batches_behind_its_long_assignment() {
    const PARTITIONS: u32 = 1_000;
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "orders", PARTITIONS, json!({ "durability": "page-cache" })).await;
    let records: Vec<Value> = (0..PARTITIONS).map(|n| json!({ "partition": n, "value": n })).collect();
    let produce = json!({ "records": records });
    harness.json(http::Method::POST, "/v1/topics/orders/records", &produce).await.expect(200);
    let mut peer = Peer::join(&harness, json!({ "format": "batches" })).await;
    peer.client.credit(20).await;
    let rebalance = peer.client.expect("rebalance").await;
    assert_eq!(rebalance["assignment"].as_array().map(Vec::len), Some(1_000));
    for left in (0..20).rev() {
        let (header, mut batches) = peer.client.binary().await;
        let batch = levada_log::Batch::parse(&mut batches).expect("a batch");
        assert_eq!((batch.header().record_count, &header["next_offset"]), (1, &json!(1)));
        assert_eq!(header["lag"], 980 + left);
        peer.cursor = header["cursor"].as_str().expect("a cursor").to_owned();
    }
    peer.send_commit().await;
    let committed = peer.client.expect("committed").await;
    let ends = committed["committed"].as_array().expect("a list").iter().filter(|it| it["offset"] == 1).count();
    assert_eq!((ends, &committed["refused"]), (20, &json!([])));
}

#[tokio::test]
async fn a_partition_with_offsets_in_an_open_transaction_is_told_and_read_once_that_has_ended() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 2).await;
    store_in(&harness, "orders", 0, 5).await;
    store_in(&harness, "orders", 1, 2).await;
    let transaction = transaction(&harness, "p").await;
    add_offsets(&harness, &transaction, &group_offsets("billing", "orders", 3)).await.expect(200);
    let mut one = Peer::join(&harness, json!({})).await;
    one.client.credit(100).await;
    let others = one.take(2).await;
    assert_eq!(one.assignment(), [0, 1]);
    assert!(others.iter().all(|record| record["partition"] == 1), "{others:?}");
    one.client.is_quiet().await;
    end(&harness, &transaction, "commit").await.expect(200);
    let frame = one.client.expect("records").await;
    assert_eq!(offsets(frame["records"].as_array().expect("a list")), [3, 4], "behind what the transaction processed");
    one.client.expect("caught_up").await;
}

#[tokio::test]
async fn members_have_left_when_the_server_has_ended() {
    let harness = Harness::start(|_| {}).await;
    orders(&harness, 1).await;
    store(&harness, "orders", 3).await;
    let mut peer = Peer::join(&harness, json!({ "session_timeout_ms": 1_800_000 })).await;
    peer.client.credit(10).await;
    peer.take(3).await;
    peer.commit().await;
    let harness = harness.restart(|_| {}).await;
    assert_eq!(members(&harness).await, 0, "no ghost waits for its session time-out");
}
