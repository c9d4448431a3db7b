//! How long a socket lives: quiet topics, silent and slow peers, fast senders, the server's end.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::client::{Client, eventually, offsets};
use crate::harness::Harness;
use crate::produce::{store, topic};
use crate::raw::{PATIENCE, Raw};

/// A number that the server tells of itself.
async fn gauge(harness: &Harness, name: &str) -> u64 {
    let text = harness.request(Method::GET, "/metrics").send().await.expect("an answer").text().await.expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it is told");
    line.trim().parse().expect("a number")
}

/// Opens a socket on bare TCP and reads up to the end of the handshake.
async fn open_bare(harness: &Harness) -> Raw {
    let mut raw = Raw::connect(harness.server.address()).await;
    let head = "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert!(raw.send(head).await);
    raw.answer().await.expect("an answer").expect(101);
    raw
}

#[tokio::test]
async fn pc_10_a_quiet_subscription_is_kept_by_pings_and_gets_its_record() {
    let harness = Harness::start(|options| {
        options.ws_ping_interval = Duration::from_millis(20);
        options.idle_timeout = Duration::from_millis(50);
        options.header_timeout = Duration::from_millis(50);
    })
    .await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({})).await;
    client.expect("caught_up").await;
    client.credit(10).await;
    for _ in 0..10 {
        let message = timeout(PATIENCE, client.inner.next()).await.expect("a ping in time");
        assert!(matches!(message, Some(Ok(Message::Ping(_)))), "{message:?}");
    }
    store(&harness, "t", &["1"]).await;
    assert_eq!(offsets(&client.records(1).await), [0]);
}

#[tokio::test]
async fn pc_10_a_peer_that_answers_no_pings_is_dropped_and_its_resources_are_freed() {
    let harness = Harness::start(|options| options.ws_ping_interval = Duration::from_millis(20)).await;
    harness.topic("t").await;
    let mut raw = open_bare(&harness).await;
    // A masked frame with the mask 0.
    let frame = br#"{"type":"subscribe","id":1,"topics":["t"]}"#;
    let head = [0x81, 0x80 | u8::try_from(frame.len()).expect("short"), 0, 0, 0, 0];
    assert!(raw.send([&head[..], frame].concat()).await);
    eventually(async || gauge(&harness, "levada_websocket_subscriptions").await == 1).await;
    assert!(raw.ends().await, "the connection is closed");
    eventually(async || gauge(&harness, "levada_websockets").await == 0).await;
    eventually(async || gauge(&harness, "levada_websocket_subscriptions").await == 0).await;
    // What asks is a connection too.
    eventually(async || gauge(&harness, "levada_http_connections").await <= 1).await;
}

#[tokio::test]
async fn pc_12_a_reader_that_never_reads_is_closed_with_a_reason_and_disturbs_nobody() {
    const COUNT: u64 = 20_000;
    let harness = Harness::start(|options| options.ws_slow_reader_timeout = Duration::from_secs(2)).await;
    topic(&harness, "t", 1, json!({ "durability": "page-cache" })).await;
    let mut slow = Client::open(&harness).await;
    slow.subscribe(json!({ "from": 0 })).await;
    slow.expect("caught_up").await;
    slow.credit(COUNT).await;
    let mut quick = Client::open(&harness).await;
    quick.subscribe(json!({ "from": 0 })).await;
    quick.expect("caught_up").await;
    quick.credit(COUNT).await;
    let producing = async {
        let value = format!("\"{}\"", "x".repeat(1_000));
        let values = vec![value.as_str(); 500];
        for _ in 0..COUNT / 500 {
            store(&harness, "t", &values).await;
        }
    };
    // The slow one begins to read when it is told to be over.
    let reading = async {
        eventually(async || gauge(&harness, "levada_websocket_subscriptions").await == 1).await;
        let (mut read_bytes, mut cursor, mut count) = (0, Value::Null, 0);
        loop {
            match slow.message().await.expect("a close with a reason") {
                Message::Text(text) => {
                    read_bytes += text.len();
                    let frame: Value = serde_json::from_str(&text).expect("JSON");
                    if frame["type"] == "records" {
                        cursor = frame["cursor"].clone();
                        count += frame["records"].as_array().expect("a list").len() as u64;
                    }
                }
                Message::Close(Some(close)) => return (close, read_bytes, cursor, count),
                other => panic!("{other:?}"),
            }
        }
    };
    let want = usize::try_from(COUNT).expect("small");
    let (records, (), (close, read_bytes, cursor, count)) = tokio::join!(quick.records(want), producing, reading);
    assert_eq!(offsets(&records), (0..COUNT).collect::<Vec<_>>());
    assert_eq!((u16::from(close.code), close.reason.contains("--ws-slow-reader-timeout-ms")), (4008, true), "{close}");
    assert!(read_bytes < 15 << 20, "most was never read from the log: {read_bytes}");
    let mut again = Client::open(&harness).await;
    let subscribed = again.subscribe(json!({ "cursor": cursor })).await;
    assert_eq!(subscribed["resumed"], true);
    again.credit(1).await;
    assert_eq!(offsets(&again.records(1).await), [count], "it goes on where it was");
}

#[tokio::test]
async fn a_reader_that_does_not_even_take_the_reason_is_cut() {
    let harness = Harness::start(|options| options.ws_slow_reader_timeout = Duration::from_millis(200)).await;
    topic(&harness, "t", 1, json!({ "durability": "page-cache" })).await;
    let value = format!("\"{}\"", "x".repeat(1_000_000));
    for _ in 0..12 {
        store(&harness, "t", &[&value]).await;
    }
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": 0 })).await;
    client.credit(100).await;
    eventually(async || gauge(&harness, "levada_websockets").await == 0).await;
    eventually(async || gauge(&harness, "levada_websocket_subscriptions").await == 0).await;
}

#[tokio::test]
async fn pc_12_a_fast_sender_is_slowed_and_every_frame_is_answered() {
    const COUNT: u64 = 50_000;
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({ "durability": "page-cache" })).await;
    let mut client = Client::open(&harness).await;
    for n in 0..COUNT {
        let frame = format!(r#"{{"type":"produce","id":{n},"topic":"t","records":[{{"value":{n}}}]}}"#);
        client.inner.feed(Message::text(frame)).await.expect("the server reads on");
    }
    client.inner.flush().await.expect("the server reads on");
    for n in 0..COUNT {
        let answer = client.expect("produced").await;
        assert_eq!((&answer["id"], &answer["records"][0]["offset"]), (&json!(n), &json!(n)));
    }
}

#[tokio::test]
async fn a_large_record_is_cut_into_frames_that_make_one_message() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({ "max.message.bytes": 8 << 20 })).await;
    let value = format!("\"{}\"", "x".repeat(5 << 20));
    store(&harness, "t", &[&value]).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": 0 })).await;
    client.credit(1).await;
    let records = client.records(1).await;
    assert_eq!(records[0]["value"].as_str().map(str::len), Some(value.len() - 2));
    client.expect("caught_up").await;
}

#[tokio::test]
async fn at_the_servers_end_clients_are_told_and_closed() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({})).await;
    client.expect("caught_up").await;
    // One that takes no notice does not hold the end up.
    let _deaf = open_bare(&harness).await;
    let shutting = tokio::spawn(harness.server.shutdown());
    assert!(client.expect("goaway").await["reason"].as_str().expect("text").contains("shutting down"));
    assert_eq!(client.closed().await.expect("a reason").0, 1001);
    drop(client);
    timeout(PATIENCE, shutting).await.expect("in time").expect("no panic").expect("clean");
}

#[tokio::test]
async fn a_socket_counts_as_a_connection_for_as_long_as_it_is_open() {
    let harness = Harness::start(|options| options.max_connections = 1).await;
    let client = Client::open(&harness).await;
    let mut waiting = TcpStream::connect(harness.server.address()).await.expect("the system takes it");
    tokio::io::AsyncWriteExt::write_all(&mut waiting, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .expect("the system takes it");
    let mut answer = [0; 15];
    assert!(waiting.try_read(&mut answer).is_err(), "nobody has accepted it");
    drop(client);
    timeout(PATIENCE, waiting.read_exact(&mut answer)).await.expect("in time").expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}
