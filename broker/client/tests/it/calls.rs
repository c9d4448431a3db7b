//! Single calls: what is sent, what is read, and what an error says.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use levada_api::{ErrorCode, LineAnswer, Problem};
use levada_client::{AcksWord, Client, ClientError, FetchQuery, NewRecord, RawOptions};

use crate::script::{Reply, Script};

async fn client(replies: Vec<Reply>) -> (Script, Client) {
    let script = Script::new(replies, |_| Reply::HangUp).await;
    let client = Client::new(&script.url).expect("a good address");
    (script, client)
}

#[tokio::test]
async fn no_server_is_told_with_what_to_do() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", free.local_addr().expect("it is bound"));
    drop(free);
    let error = Client::new(&url).expect("a good address").cluster().await.expect_err("nobody is there");
    assert_eq!(error.to_string(), format!("nothing answers at {url}; is `levada serve` running?"));
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_refusal_tells_code_detail_and_places() {
    let problem =
        Problem::new(ErrorCode::InvalidField, "two fields").at("/partitions", "is 0").at("/config/x", "unknown");
    let (_script, client) = client(vec![Reply::problem(&problem)]).await;
    let error = client.create_topic("t", 0, Default::default()).await.expect_err("it is refused");
    assert_eq!(error.problem(), Some(&problem));
    let text = "two fields (invalid-field)\n  /partitions: is 0\n  /config/x: unknown";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn another_program_at_the_address_is_told_from_levada() {
    let page = Reply::Body(404, "text/html", "<h1>nginx</h1>".into());
    let (_script, client) = client(vec![page, Reply::json("[]")]).await;
    let error = client.topic("t").await.expect_err("it is no Levada");
    assert!(
        matches!(&error, ClientError::Unexpected { status: 404, detail, .. } if detail.contains("nginx")),
        "{error}"
    );
    assert!(matches!(client.topic("t").await, Err(ClientError::Unexpected { status: 200, .. })));
}

#[tokio::test]
async fn topics_are_listed_over_all_pages() {
    let topic = |name| {
        format!(
            r#"{{"name":"{name}","id":"i","internal":false,"partition_count":1,"partitions":[],"config":{{}},"effective_config":{{}}}}"#
        )
    };
    let first = Reply::json(format!(r#"{{"topics":[{}],"next_cursor":"a&b"}}"#, topic("a")));
    let second = Reply::json(format!(r#"{{"topics":[{}],"next_cursor":null}}"#, topic("b")));
    let (script, client) = client(vec![first, second]).await;
    let names: Vec<_> = client.topics().await.expect("two pages").into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(script.asked()[1].line.contains("cursor=a%26b"), "{}", script.asked()[1].line);
}

#[tokio::test]
async fn a_stream_of_lines_is_answered_line_by_line() {
    let answer = concat!(
        "{\"line\":1,\"partition\":0,\"offset\":4}\n",
        "{\"line\":2,\"partition\":0}\n",
        "{\"done\":true,\"accepted\":2,\"refused\":0}\n"
    );
    let (script, client) = client(vec![Reply::Body(200, "application/x-ndjson", answer.into())]).await;
    let records = [r#"{"a": 1.0}"#, "[\n]"].map(|text| NewRecord::json(text).expect("it is JSON"));
    let answers = client.produce_stream("t", stream::iter(records), AcksWord::Leader).await.expect("it is taken");
    let answers: Vec<_> = answers.map(|answer| answer.expect("a good line")).collect().await;
    assert!(matches!(answers[0], LineAnswer::Stored { line: 1, partition: 0, offset: Some(4) }));
    assert!(matches!(answers[1], LineAnswer::Stored { line: 2, offset: None, .. }));
    assert!(matches!(answers[2], LineAnswer::Done { done: true, accepted: 2, refused: 0, .. }));
    let asked = &script.asked()[0];
    assert!(asked.line.starts_with("POST /v1/topics/t/records?acks=leader "), "{}", asked.line);
    assert_eq!(asked.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(asked.body, "{\"value\":{\"a\": 1.0}}\n{\"value_text\":\"[\\n]\"}\n");
}

#[tokio::test]
async fn a_raw_body_carries_its_key_type_and_headers() {
    let (script, client) = client(vec![Reply::json(r#"{"partition":1,"offset":2,"timestamp":3}"#)]).await;
    let options = RawOptions {
        key: Some("a b".into()),
        partition: Some(1),
        timestamp: Some(3),
        content_type: Some("image/png".into()),
        headers: vec![("trace".into(), "abc".into())],
        idempotency_key: Some("once".into()),
    };
    let placed = client.produce_raw("t", "bytes", &options).await.expect("it is stored");
    assert_eq!((placed.partition, placed.offset, placed.timestamp), (1, Some(2), 3));
    let asked = &script.asked()[0];
    assert_eq!(asked.line, "POST /v1/topics/t/raw?key=a+b&partition=1&timestamp=3 HTTP/1.1");
    assert_eq!(asked.body, "bytes");
    let headers = ["content-type", "record-header-trace", "idempotency-key"].map(|name| asked.header(name));
    assert_eq!(headers, [Some("image/png"), Some("abc"), Some("once")]);
}

#[tokio::test]
async fn a_fetch_asks_for_what_it_was_told_and_no_more() {
    let body = r#"{"records":[],"next_offset":8,"high_watermark":8,"last_stable_offset":8,"log_start_offset":0}"#;
    let (script, client) = client(vec![Reply::json(body), Reply::json(body)]).await;
    let fetched = client.fetch("t", 0, &FetchQuery::default()).await.expect("it is read");
    assert_eq!((fetched.next_offset, fetched.records.len()), (8, 0));
    let query = FetchQuery {
        offset: Some("tail:3".into()),
        max_records: Some(1),
        max_bytes: Some(2),
        wait_ms: Some(3),
        read_uncommitted: true,
    };
    client.fetch("t", 0, &query).await.expect("it is read");
    let lines: Vec<_> = script.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines[0], "GET /v1/topics/t/partitions/0/records HTTP/1.1");
    let all = "offset=tail%3A3&max_records=1&max_bytes=2&wait_ms=3&isolation=read_uncommitted";
    assert_eq!(lines[1], format!("GET /v1/topics/t/partitions/0/records?{all} HTTP/1.1"));
}

#[tokio::test]
async fn an_answer_that_lacks_places_is_not_taken_for_stored() {
    let (_script, client) = client(vec![Reply::json(r#"{"records":[]}"#)]).await;
    let record = NewRecord::text("x");
    let error = client.produce("t", &[record], AcksWord::All).await.expect_err("there is no place for it");
    assert!(matches!(error, ClientError::Unexpected { .. }), "{error}");
}

/// On a busy machine the compilation of CPython takes minutes.
#[tokio::test]
async fn a_silence_while_a_module_is_compiled_is_longer_than_others() {
    let (script, client) = client(vec![Reply::Silence, Reply::Silence]).await;
    let other = client.clone();
    let list = tokio::spawn(async move { other.modules().await });
    let put = tokio::spawn(async move { client.put_module("m", Bytes::from_static(b"wasm"), false).await });
    while script.asked().len() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(600)).await;
    let listed = list.await.expect("it ends");
    assert!(matches!(listed, Err(ClientError::Broken { .. })), "{listed:?}");
    assert!(!put.is_finished(), "it waits on");
}
