//! Live following: one connection after another, and no record twice or left out.

use levada_api::{ErrorCode, Problem};
use levada_client::{Client, FollowEvent};

use crate::script::{Reply, Script};

fn record(offset: u64, cursor: &str) -> String {
    let data = format!(
        r#"{{"partition":0,"offset":{offset},"timestamp":5,"timestamp_type":"create","key":null,"value":{offset},"headers":[]}}"#
    );
    format!("id: {cursor}\nevent: record\ndata: {data}\n\n")
}

async fn offsets(client: &Client, from: &str, count: usize) -> Vec<u64> {
    let mut follow = client.follow("t", from);
    let mut offsets = Vec::new();
    while offsets.len() < count {
        if let FollowEvent::Record(record) = follow.next().await.expect("it goes on") {
            offsets.push(record.offset);
        }
    }
    offsets
}

#[tokio::test]
async fn a_broken_stream_is_resumed_after_the_last_event() {
    // The second stream breaks in the middle of an event; the third attempt is told to wait.
    let script = Script::new(
        vec![
            Reply::Events(record(0, "c1") + "event: heartbeat\ndata:\n\n" + &record(1, "c2")),
            Reply::Events(record(2, "c3") + "id: c4\nevent: record\nda"),
            Reply::HangUp,
            Reply::problem(&Problem::new(ErrorCode::ShuttingDown, "later")),
            Reply::Events(record(3, "c4")),
        ],
        |_| Reply::HangUp,
    )
    .await;
    let client = Client::new(&script.url).expect("a good address");
    assert_eq!(offsets(&client, "earliest", 4).await, [0, 1, 2, 3]);
    let asked = script.asked();
    let ids: Vec<_> = asked.iter().map(|asked| asked.header("last-event-id")).collect();
    assert_eq!(ids[..5], [None, Some("c2"), Some("c3"), Some("c3"), Some("c3")]);
    assert!(asked[0].line.contains("from=earliest"), "{}", asked[0].line);
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_first_record_is_resumed_from_where_it_began() {
    for from in ["latest", "tail:3", "time:1700000000000"] {
        let began = Reply::Events("retry: 1000\nid: began\n\n".to_owned());
        let script = Script::new(vec![began, Reply::Events(record(7, "c8"))], |_| Reply::HangUp).await;
        let client = Client::new(&script.url).expect("a good address");
        let mut follow = client.follow("t", from);
        assert_eq!(follow.cursor(), None);
        let FollowEvent::Record(first) = follow.next().await.expect("it goes on") else { panic!("a record is next") };
        assert_eq!((first.offset, follow.cursor()), (7, Some("c8")), "{from}");
        let asked = script.asked();
        assert_eq!(asked.len(), 2, "nothing is asked beside the stream");
        assert!(asked[0].line.contains("from="), "{}", asked[0].line);
        assert_eq!((asked[0].header("last-event-id"), asked[1].header("last-event-id")), (None, Some("began")));
    }
}

#[tokio::test]
async fn a_final_error_ends_it() {
    let gone = serde_json::to_string(&Problem::new(ErrorCode::CursorGone, "deleted")).expect("JSON");
    let stream = record(0, "c1") + &format!("event: error\ndata: {gone}\n\n");
    let script = Script::new(vec![Reply::Events(stream)], |_| Reply::HangUp).await;
    let mut follow = Client::new(&script.url).expect("a good address").follow("t", "earliest");
    assert!(matches!(follow.next().await, Ok(FollowEvent::Record(_))));
    assert_eq!(follow.cursor(), Some("c1"));
    let error = follow.next().await.expect_err("the topic is gone");
    assert_eq!(error.problem().map(|problem| problem.code), Some(ErrorCode::CursorGone));
}

#[tokio::test]
async fn a_first_connection_that_fails_is_told_at_once() {
    let script = Script::new(vec![], |_| Reply::HangUp).await;
    let client = Client::new(&script.url).expect("a good address");
    client.follow("t", "earliest").next().await.expect_err("nobody answers");
    assert_eq!(script.asked().len(), 1);
}
