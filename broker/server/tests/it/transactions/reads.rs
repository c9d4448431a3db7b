//! What readers see of transactions, on every face.

use http::Method;
use serde_json::{Value, json};

use super::{begin, committed, end, init, store_in, transaction, values};
use crate::groups::member::Member;
use crate::harness::Harness;
use crate::produce::{read, store, topic};
use crate::ws::client::Client;

const PARTITION: &str = "/v1/topics/t/partitions/0/records";
const NDJSON: &str = "application/x-ndjson";
const BATCHES: &str = "application/vnd.levada.record-batch";

/// `t`: "a" (0), "aborted" (1), its marker (2), "b" (3) and its marker (4), "open" (5), "behind" (6). Answers the
/// transaction that is open.
async fn mixed(harness: &Harness) -> String {
    harness.topic("t").await;
    store(harness, "t", &["\"a\""]).await;
    let producer = init(harness, "p").await;
    let aborted = begin(harness, &producer).await;
    store_in(harness, &aborted, "t", &[json!("aborted")]).await;
    let producer = end(harness, &aborted, "abort").await.expect(200).json();
    let committed = begin(harness, &producer).await;
    store_in(harness, &committed, "t", &[json!("b")]).await;
    let producer = end(harness, &committed, "commit").await.expect(200).json();
    let open = begin(harness, &producer).await;
    store_in(harness, &open, "t", &[json!("open")]).await;
    store(harness, "t", &["\"behind\""]).await;
    open
}

fn lines(body: &[u8]) -> Vec<Value> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice::<Value>(line).expect("JSON")["value"].clone()).collect()
}

/// What a page of a partition, a page of lines, the topic and the socket say, which must all be the same.
async fn seen(harness: &Harness, isolation: &str) -> Vec<Value> {
    let page = values(&read(harness, "t", 0, &format!("isolation={isolation}")).await);
    let request = harness.request(Method::GET, &format!("{PARTITION}?isolation={isolation}")).header("accept", NDJSON);
    assert_eq!(lines(&harness.send(request).await.expect(200).body), page, "lines");
    let all = harness.get(&format!("/v1/topics/t/records?isolation={isolation}")).await.expect(200).json();
    assert_eq!(values(&all), page, "the topic");
    let mut socket = Client::open(harness).await;
    socket.subscribe(json!({ "from": "earliest", "isolation": isolation })).await;
    socket.credit(100).await;
    let records = socket.records(page.len()).await;
    socket.send(json!({ "type": "ping", "id": "end" })).await;
    loop {
        match socket.next().await["type"].as_str() {
            Some("caught_up") => {}
            Some("pong") => break,
            other => panic!("more than that: {other:?}"),
        }
    }
    assert_eq!(records.iter().map(|record| record["value"].clone()).collect::<Vec<_>>(), page, "the socket");
    assert_eq!(feed(harness, isolation, page.len()).await, page, "the event stream");
    for offset in 0..8_u64 {
        let answer = harness.get(&format!("{PARTITION}/{offset}?isolation={isolation}")).await;
        if answer.status == 200 {
            assert!(page.contains(&answer.json()["value"]), "{offset}");
        } else {
            assert_eq!(answer.expect(404).code(), "no-record", "{offset}");
        }
    }
    page
}

/// The first values of an event stream from the beginning.
async fn feed(harness: &Harness, isolation: &str, count: usize) -> Vec<Value> {
    let path = format!("/v1/topics/t/records?from=earliest&isolation={isolation}");
    let request = harness.request(Method::GET, &path).header("accept", "text/event-stream");
    let mut response = harness.stream(request).await;
    let (mut text, mut values) = (String::new(), Vec::new());
    while values.len() < count {
        let piece = response.chunk().await.expect("a whole stream").expect("it goes on for ever");
        text.push_str(std::str::from_utf8(&piece).expect("ASCII"));
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        values = data.map(|line| serde_json::from_str::<Value>(line).expect("JSON")["value"].clone()).collect();
    }
    values
}

#[tokio::test]
async fn every_face_shows_what_is_committed_and_all_of_it_where_that_is_asked_for() {
    let harness = Harness::start(|_| {}).await;
    let open = mixed(&harness).await;
    assert_eq!(seen(&harness, "read_committed").await, ["a", "b"].map(Value::from));
    assert_eq!(committed(&harness, "t").await, ["a", "b"].map(Value::from), "which is the default");
    assert_eq!(seen(&harness, "read_uncommitted").await, ["a", "aborted", "b", "open", "behind"].map(Value::from));
    end(&harness, &open, "commit").await.expect(200);
    assert_eq!(seen(&harness, "read_committed").await, ["a", "b", "open", "behind"].map(Value::from));
    assert_eq!(harness.get(&format!("{PARTITION}?isolation=dirty")).await.expect(400).code(), "invalid-parameter");
}

#[tokio::test]
async fn positions_and_ends_are_those_of_the_isolation() {
    let harness = Harness::start(|_| {}).await;
    let open = mixed(&harness).await;
    let page = read(&harness, "t", 0, "").await;
    assert_eq!(
        (&page["next_offset"], &page["last_stable_offset"], &page["high_watermark"]),
        (&json!(5), &json!(5), &json!(7))
    );
    let page = read(&harness, "t", 0, "isolation=read_uncommitted").await;
    assert_eq!((&page["next_offset"], &page["last_stable_offset"]), (&json!(7), &json!(5)));
    assert_eq!(read(&harness, "t", 0, "offset=latest").await["next_offset"], 5);
    assert_eq!(read(&harness, "t", 0, "offset=latest&isolation=read_uncommitted").await["next_offset"], 7);
    assert_eq!(values(&read(&harness, "t", 0, "offset=tail:2").await), [json!("b")]);
    assert_eq!(
        values(&read(&harness, "t", 0, "offset=tail:2&isolation=read_uncommitted").await),
        ["open", "behind"].map(Value::from)
    );
    let told = harness.get("/v1/topics/t").await.expect(200).json();
    assert_eq!(
        (&told["partitions"][0]["last_stable_offset"], &told["partitions"][0]["high_watermark"]),
        (&json!(5), &json!(7))
    );
    end(&harness, &open, "abort").await.expect(200);
    let page = read(&harness, "t", 0, "").await;
    assert_eq!((values(&page), &page["next_offset"]), (["a", "b", "behind"].map(Value::from).to_vec(), &json!(8)));
}

/// PC-37.
#[tokio::test]
async fn pc_37_a_reader_comes_to_the_end_behind_markers_and_aborted_records() {
    let harness = Harness::start(|_| {}).await;
    for (topic, how, count) in [("t", "commit", 1), ("u", "abort", 0)] {
        harness.topic(topic).await;
        let transaction = transaction(&harness, topic).await;
        store_in(&harness, &transaction, topic, &[json!(1)]).await;
        end(&harness, &transaction, how).await.expect(200);
        // Where there is something, nobody waits; where there is nothing, all of the time would pass.
        let page = read(&harness, topic, 0, if count > 0 { "wait_ms=60000" } else { "" }).await;
        assert_eq!(page["records"].as_array().map(Vec::len), Some(count), "{how}");
        assert_eq!((&page["next_offset"], &page["high_watermark"]), (&json!(2), &json!(2)));
        let rest = read(&harness, topic, 0, "offset=1").await;
        assert_eq!((rest["records"].as_array().map(Vec::len), &rest["next_offset"]), (Some(0), &json!(2)));

        let mut member = Member::join(&harness, topic, &[topic]).await;
        let records = member.until(|member| member.state() == "stable").await;
        let lag = async |member: &mut Member<'_>| {
            member.fetch("wait_ms=50").await;
            member.commit().await.expect(200);
            let group = harness.get(&format!("/v1/groups/{topic}")).await.expect(200).json();
            group["offsets"][0]["lag"].as_u64()
        };
        while lag(&mut member).await != Some(0) {}
        assert!(records.len() <= count);
    }
}

#[tokio::test]
async fn a_member_of_a_group_reads_what_is_committed_and_lags_behind_nothing_else() {
    let harness = Harness::start(|_| {}).await;
    let open = mixed(&harness).await;
    let mut member = Member::join(&harness, "g", &["t"]).await;
    let mut records = Vec::new();
    while records.len() < 2 {
        records.extend(member.fetch("wait_ms=50").await);
    }
    assert_eq!(records.iter().map(|record| &record["value"]).collect::<Vec<_>>(), ["a", "b"]);
    let commit = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 5 }] });
    member.commit_as(commit).await.expect(200);
    let lag = || async { harness.get("/v1/groups/g").await.expect(200).json()["offsets"][0]["lag"].clone() };
    assert_eq!(lag().await, 0, "what is undecided is not waited for");
    end(&harness, &open, "commit").await.expect(200);
    assert_eq!(lag().await, 3);
    while records.len() < 4 {
        records.extend(member.fetch("wait_ms=50").await);
    }
    assert_eq!(records[2..].iter().map(|record| &record["value"]).collect::<Vec<_>>(), ["open", "behind"]);
}

#[tokio::test]
async fn stored_batches_come_with_their_markers_and_the_word_of_what_was_aborted() {
    let harness = Harness::start(|_| {}).await;
    mixed(&harness).await;
    let get = async |query: &str| {
        let request = harness.request(Method::GET, &format!("{PARTITION}?{query}")).header("accept", BATCHES);
        harness.send(request).await.expect(200)
    };
    let answer = get("").await;
    assert_eq!((answer.header("levada-next-offset"), answer.header("levada-last-stable-offset")), ("5", "5"));
    let aborted: Value = serde_json::from_str(answer.header("levada-aborted-transactions")).expect("JSON");
    assert_eq!(
        (&aborted[0]["first_offset"], &aborted[0]["last_offset"], aborted.as_array().map(Vec::len)),
        (&json!(1), &json!(2), Some(1))
    );
    assert!(!answer.body.windows(7).any(|part| part == b"aborted"), "and without its batches");
    let all = get("isolation=read_uncommitted").await;
    assert_eq!((all.header("levada-next-offset"), all.header("levada-aborted-transactions")), ("7", ""));
    assert!(all.body.windows(7).any(|part| part == b"aborted"));
    assert_eq!(get("offset=3").await.header("levada-aborted-transactions"), "", "it ended before");
    // From where only a marker is, it comes too.
    for (offset, next) in [(4, "5"), (2, "5")] {
        let rest = get(&format!("offset={offset}")).await;
        assert_eq!(rest.header("levada-next-offset"), next);
        let first = rest.body.first_chunk::<8>().map(|base| u64::from_be_bytes(*base));
        assert_eq!(first, Some(offset), "the batch's base offset");
    }
}

#[tokio::test]
async fn so_many_aborted_transactions_as_a_head_can_name_are_named() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut producer = init(&harness, "p").await;
    for _ in 0..70 {
        let transaction = begin(&harness, &producer).await;
        store_in(&harness, &transaction, "t", &[json!(1)]).await;
        producer = end(&harness, &transaction, "abort").await.expect(200).json();
    }
    store(&harness, "t", &["\"behind\""]).await;
    let request = harness.request(Method::GET, PARTITION).header("accept", BATCHES);
    let answer = harness.send(request).await.expect(200);
    let aborted: Value = serde_json::from_str(answer.header("levada-aborted-transactions")).expect("JSON");
    let aborted = aborted.as_array().expect("a list");
    assert_eq!((aborted.len(), &aborted[63]["first_offset"]), (64, &json!(126)));
    assert!(answer.header("levada-aborted-transactions").len() < 8_192);
}

#[tokio::test]
async fn a_held_read_is_answered_by_the_commit_and_a_held_read_of_an_aborted_one_by_its_time() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({})).await;
    let producer = init(&harness, "p").await;
    let first = begin(&harness, &producer).await;
    store_in(&harness, &first, "t", &[json!("kept")]).await;
    let (page, next) = tokio::join!(read(&harness, "t", 0, "wait_ms=60000"), end(&harness, &first, "commit"));
    assert_eq!(values(&page), [json!("kept")]);
    let second = begin(&harness, &next.expect(200).json()).await;
    store_in(&harness, &second, "t", &[json!("gone")]).await;
    let (page, ended) = tokio::join!(read(&harness, "t", 0, "offset=2&wait_ms=500"), end(&harness, &second, "abort"));
    ended.expect(200);
    assert_eq!((values(&page), &page["next_offset"]), (vec![], &json!(4)), "moved though all was aborted");
}
