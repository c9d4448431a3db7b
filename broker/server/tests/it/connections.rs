//! Connections: slow heads, idleness, and how many there may be.

use std::time::Duration;

use crate::harness::Harness;
use crate::raw::Raw;

const GET: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_head_that_does_not_arrive_in_time_closes_the_connection() {
    let harness = Harness::start(|options| {
        options.header_timeout = Duration::from_millis(500);
        options.idle_timeout = LONG;
    })
    .await;
    let mut silent = Raw::connect(harness.server.address()).await;
    assert!(silent.is_closed().await);
    let mut slow = Raw::connect(harness.server.address()).await;
    slow.send("GET /healthz HTTP/1.1\r\nhost: loc").await;
    assert!(slow.is_closed().await);
    // After an answer the same holds for the next head.
    let mut second = Raw::connect(harness.server.address()).await;
    second.send(GET).await;
    second.answer().await.expect("an answer").expect(200);
    second.send("GET /healthz").await;
    assert!(second.is_closed().await);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_own_time() {
    let harness = Harness::start(|options| {
        options.header_timeout = LONG;
        options.idle_timeout = Duration::from_millis(50);
    })
    .await;
    let mut raw = Raw::connect(harness.server.address()).await;
    raw.send(GET).await;
    raw.answer().await.expect("an answer").expect(200);
    assert!(raw.is_closed().await);
}

#[tokio::test]
async fn a_connection_answers_several_requests_also_sent_ahead() {
    let harness = Harness::start(|_| {}).await;
    let mut raw = Raw::connect(harness.server.address()).await;
    raw.send(GET.repeat(3)).await;
    for _ in 0..3 {
        raw.answer().await.expect("an answer").expect(200);
    }
}

#[tokio::test]
async fn further_connections_wait_until_one_is_free() {
    let harness = Harness::start(|options| options.max_connections = 2).await;
    let address = harness.server.address();
    let (mut first, mut second) = (Raw::connect(address).await, Raw::connect(address).await);
    for raw in [&mut first, &mut second] {
        raw.send(GET).await;
        raw.answer().await.expect("an answer").expect(200);
    }
    let mut third = Raw::connect(address).await;
    third.send(GET).await;
    // While both are held, the third is not even accepted: what the first asks next comes before it.
    for _ in 0..100 {
        first.send(GET).await;
        first.answer().await.expect("an answer").expect(200);
        assert!(third.has_nothing(), "it was answered beyond the limit");
    }
    drop(second);
    third.answer().await.expect("an answer").expect(200);
}
