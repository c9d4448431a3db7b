//! Frames that are wrong: what is said, and what becomes of the socket.

use futures_util::SinkExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::client::Client;
use crate::harness::Harness;

#[tokio::test]
async fn wrong_frames_are_refused_and_the_socket_goes_on() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    let deep = format!(r#"{{"type":"ping","id":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for (text, id, code) in [
        ("nonsense", Value::Null, "invalid-json"),
        ("", Value::Null, "invalid-json"),
        (r#"{"type":"ping""#, Value::Null, "invalid-json"),
        ("[]", Value::Null, "invalid-field"),
        (r#"{"id":7}"#, json!(7), "invalid-field"),
        (r#"{"type":"shout","id":"a"}"#, json!("a"), "invalid-field"),
        (r#"{"type":"ping","type":"ping","id":"a"}"#, json!("a"), "invalid-field"),
        (r#"{"type":"ping","id":"a","id":"b"}"#, json!("b"), "invalid-field"),
        (r#"{"type":"ping","id":"a","more":1}"#, json!("a"), "invalid-field"),
        (deep.as_str(), Value::Null, "invalid-field"),
        (r#"{"type":"credit","id":"s","records":1}"#, json!("s"), "unknown-subscription"),
        (r#"{"type":"commit","id":"s","cursor":"x"}"#, json!("s"), "unknown-subscription"),
        (r#"{"type":"unsubscribe","id":"s"}"#, json!("s"), "unknown-subscription"),
        (r#"{"type":"subscribe","id":1,"topics":["nowhere"]}"#, json!(1), "topic-not-found"),
        (r#"{"type":"subscribe","id":1,"topics":["a b"]}"#, json!(1), "invalid-topic-name"),
        (r#"{"type":"subscribe","id":1,"topics":["t"],"from":"soon"}"#, json!(1), "invalid-cursor"),
        (r#"{"type":"subscribe","id":1,"topics":["t"],"cursor":"AAAA"}"#, json!(1), "invalid-cursor"),
        (r#"{"type":"subscribe","id":1,"topics":["t"],"from":999}"#, json!(1), "offset-beyond-end"),
        (r#"{"type":"subscribe","id":1,"topics":["t"],"filter":"x"}"#, json!(1), "invalid-field"),
        (r#"{"type":"subscribe","id":1,"topics":["t"],"filter":"module:x"}"#, json!(1), "module-not-found"),
    ] {
        client.text(text).await;
        assert_eq!(client.refusal().await, (id, code.to_owned()), "{text}");
    }
    client.answers().await;
}

#[tokio::test]
async fn a_repeated_subscribe_is_refused_until_the_first_has_ended() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({})).await;
    client.expect("caught_up").await;
    client.send(json!({ "type": "subscribe", "id": "s", "topics": ["t"] })).await;
    assert_eq!(client.refusal().await, (json!("s"), "subscription-exists".to_owned()));
    client.send(json!({ "type": "commit", "id": "s", "cursor": "x" })).await;
    assert_eq!(client.refusal().await.1, "invalid-field", "no group, nothing to commit to");
    client.send(json!({ "type": "unsubscribe", "id": "s" })).await;
    assert_eq!(client.expect("unsubscribed").await["id"], "s");
    client.subscribe(json!({})).await;
}

#[tokio::test]
async fn a_socket_has_a_bounded_number_of_subscriptions() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    for id in 0..101 {
        client.send(json!({ "type": "subscribe", "id": id, "topics": ["t"] })).await;
    }
    assert_eq!(client.until("error").await["problem"]["code"], "too-many-subscriptions");
}

#[tokio::test]
async fn a_hundred_wrong_frames_in_a_row_close_the_socket() {
    let harness = Harness::start(|_| {}).await;
    let mut client = Client::open(&harness).await;
    for _ in 0..2 {
        for _ in 0..99 {
            client.text("{").await;
            assert_eq!(client.refusal().await.1, "invalid-json");
        }
        client.answers().await;
    }
    // What cannot even be begun counts like what cannot be read.
    for n in 0..100 {
        client.text(if n % 2 == 0 { "{" } else { r#"{"type":"credit","id":"s","records":1}"# }).await;
    }
    let (code, reason) = client.closed().await.expect("a reason");
    assert_eq!((code, reason.as_str()), (1008, "100 frames in a row were refused"));
}

#[tokio::test]
async fn what_is_no_text_of_a_taken_size_closes_with_its_code() {
    let harness = Harness::start(|options| options.max_body_bytes = 1_000).await;
    let text = |payload: Vec<u8>, opcode, is_last| Message::Frame(Frame::message(payload, opcode, is_last));
    let (first, on) = (OpCode::Data(Data::Text), OpCode::Data(Data::Continue));
    let large = || vec![b' '; 600];
    for (messages, code) in [
        (vec![Message::binary(vec![1, 2, 3])], 1003),
        (vec![text(vec![0xff, 0xfe], first, true)], 1007),
        (vec![Message::text(" ".repeat(1_001))], 1009),
        (vec![text(large(), first, false), text(large(), on, true)], 1009),
        (vec![text(vec![b'{'], on, true)], 1002),
    ] {
        let mut client = Client::open(&harness).await;
        for message in messages {
            // The server may be gone before all of it is sent.
            let _ = client.inner.send(message).await;
        }
        assert_eq!(client.closed().await.expect("a reason").0, code);
    }
}

#[tokio::test]
async fn fragments_are_put_together_and_controls_may_come_between() {
    let harness = Harness::start(|_| {}).await;
    let mut client = Client::open(&harness).await;
    let frame = r#"{"type":"ping","id":"é"}"#.as_bytes();
    for (at, byte) in frame.iter().enumerate() {
        let opcode = OpCode::Data(if at == 0 { Data::Text } else { Data::Continue });
        let part = Frame::message(vec![*byte], opcode, at + 1 == frame.len());
        client.inner.send(Message::Frame(part)).await.expect("the server reads");
        if at == 5 {
            client.inner.send(Message::Ping("between".into())).await.expect("the server reads");
        }
    }
    assert_eq!(client.next().await, json!({ "type": "pong", "id": "é" }));
}

#[tokio::test]
async fn frames_sent_before_the_welcome_came_are_served_after_it() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open_with(&harness, &[]).await.expect("a socket");
    client.send(json!({ "type": "ping", "id": 1 })).await;
    client.send(json!({ "type": "subscribe", "id": "s", "topics": ["t"] })).await;
    assert_eq!(client.next().await["type"], "welcome");
    assert_eq!(client.next().await, json!({ "type": "pong", "id": 1 }));
    client.expect("subscribed").await;
}
