//! Who may open a socket, and how.

use http::Method;
use serde_json::json;

use super::client::Client;
use crate::harness::Harness;

#[tokio::test]
async fn pc_47_only_pages_of_this_or_an_allowed_origin_open_a_socket() {
    let harness = Harness::start(|options| options.allowed_origins = vec!["http://app.example.test".to_owned()]).await;
    let own = format!("http://{}", harness.authority());
    for (origin, is_allowed) in [
        (None, true),
        (Some("http://app.example.test"), true),
        (Some(own.as_str()), true),
        (Some("http://evil.example.test"), false),
        (Some(""), false),
        (Some("null"), false),
        (Some("http://app.example.test.evil.net"), false),
        (Some("https://app.example.test"), false),
    ] {
        let headers: Vec<_> = origin.map(|origin| ("origin", origin)).into_iter().collect();
        match Client::open_with(&harness, &headers).await {
            Ok(mut client) => {
                assert!(is_allowed, "{origin:?}");
                assert_eq!(client.next().await["type"], "welcome");
            }
            Err(status) => assert_eq!((status.as_u16(), is_allowed), (403, false), "{origin:?}"),
        }
    }
}

#[tokio::test]
async fn the_protocol_is_spoken_where_it_is_offered_or_nothing_is() {
    let harness = Harness::start(|_| {}).await;
    let open = async |offered: &str| Client::open_with(&harness, &[("sec-websocket-protocol", offered)]).await;
    for offered in ["levada.v1", "other, levada.v1"] {
        let mut client = open(offered).await.expect("it is offered");
        assert_eq!(client.next().await["type"], "welcome");
    }
    assert_eq!(open("other").await.err().map(|status| status.as_u16()), Some(400));
}

#[tokio::test]
async fn a_welcome_tells_the_limits() {
    let harness = Harness::start(|options| options.max_body_bytes = 1 << 20).await;
    let mut client = Client::open_with(&harness, &[]).await.expect("a socket");
    let welcome = client.next().await;
    assert_eq!((&welcome["type"], &welcome["node"]), (&json!("welcome"), &json!(1)));
    assert!(welcome["server"].as_str().expect("text").starts_with("levada/"));
    let limits = &welcome["limits"];
    assert_eq!((&limits["max_message_bytes"], &limits["max_subscriptions"]), (&json!(1 << 20), &json!(100)));
    assert_eq!((&limits["ping_interval_ms"], &limits["slow_reader_timeout_ms"]), (&json!(20_000), &json!(30_000)));
    let metrics = harness.request(Method::GET, "/metrics").send().await.expect("an answer").text().await;
    assert!(metrics.expect("text").contains("levada_websockets 1"));
}
