//! The producer: what is gathered into a request, what is retried, and whose answer is whose.

use std::time::Duration;

use levada_api::{ErrorCode, Problem};
use levada_client::{Client, NewRecord, Producer, ProducerOptions};

use crate::script::{Asked, Reply, Script};

/// Stores every record at an offset that is its own number.
fn store(asked: &Asked) -> Reply {
    let records: Vec<_> = asked
        .values()
        .into_iter()
        .map(|value| format!(r#"{{"partition":0,"offset":{value},"timestamp":5}}"#))
        .collect();
    Reply::json(format!(r#"{{"records":[{}]}}"#, records.join(",")))
}

fn producer(script: &Script, options: ProducerOptions) -> Producer {
    Producer::new(Client::new(&script.url).expect("a good address"), "t", options)
}

/// Gathers until the batch is full, however slow the machine.
fn patient(batch_records: usize) -> ProducerOptions {
    ProducerOptions { linger: Duration::from_secs(3600), batch_records, ..ProducerOptions::default() }
}

fn numbered(number: u64) -> NewRecord {
    NewRecord::json(number.to_string()).expect("a number is JSON")
}

#[tokio::test]
async fn without_linger_every_record_is_a_request() {
    let script = Script::new(vec![], store).await;
    let producer = producer(&script, ProducerOptions { linger: Duration::ZERO, ..patient(100) });
    for number in 0..5 {
        producer.send(numbered(number)).await;
    }
    assert_eq!(producer.close().await.requests, 5);
    let values: Vec<_> = script.asked().iter().map(Asked::values).collect();
    assert_eq!(values, [["0"], ["1"], ["2"], ["3"], ["4"]]);
}

#[tokio::test]
async fn a_full_batch_goes_at_once_and_the_rest_at_the_end() {
    let script = Script::new(vec![], store).await;
    let producer = producer(&script, patient(3));
    let mut deliveries = Vec::new();
    for number in 0..7 {
        deliveries.push(producer.send(numbered(number)).await);
    }
    let totals = producer.close().await;
    assert_eq!((totals.requests, totals.records), (3, 7));
    let sizes: Vec<_> = script.asked().iter().map(|asked| asked.values().len()).collect();
    assert_eq!(sizes, [3, 3, 1]);
    for (number, delivery) in (0..).zip(deliveries) {
        assert_eq!(delivery.answer().await.expect("it was stored").offset, Some(number));
    }
}

#[tokio::test]
async fn a_batch_is_full_by_its_bytes_too() {
    let script = Script::new(vec![], store).await;
    let producer = producer(&script, ProducerOptions { batch_bytes: 1, ..patient(100) });
    for number in 0..3 {
        producer.send(numbered(number)).await;
    }
    assert_eq!(producer.close().await.requests, 3);
}

#[tokio::test]
async fn what_waits_is_sent_when_the_linger_is_over() {
    let script = Script::new(vec![], store).await;
    let producer = producer(&script, ProducerOptions { linger: Duration::from_millis(1), ..patient(100) });
    let delivery = producer.send(numbered(0)).await;
    delivery.answer().await.expect("it was sent without being asked to");
    producer.close().await;
}

#[tokio::test]
async fn a_retry_carries_the_same_key_and_another_request_another() {
    let overloaded = Reply::problem(&Problem::new(ErrorCode::Overloaded, "too much"));
    let partial = format!(
        r#"{{"records":[{{"problem":{}}}]}}"#,
        serde_json::to_string(&Problem::new(ErrorCode::Overloaded, "too much")).expect("JSON")
    );
    let script =
        Script::new(vec![overloaded, Reply::HangUp, Reply::Body(207, "application/json", partial)], store).await;
    let producer = producer(&script, patient(1));
    for number in 0..2 {
        producer.send(numbered(number)).await.answer().await.expect("the retry is stored");
    }
    producer.close().await;
    let asked = script.asked();
    let keys: Vec<_> = asked.iter().map(|asked| asked.header("idempotency-key").expect("a key")).collect();
    assert_eq!(keys.len(), 5);
    assert!(keys[..4].iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_ne!(keys[4], keys[0]);
    assert!(asked[..4].iter().all(|retry| retry.body == asked[0].body));
}

#[tokio::test]
async fn a_wrong_record_is_refused_alone() {
    let problem =
        Problem::new(ErrorCode::InvalidRecord, "two are wrong").at("/records/1/value", "is bad").at("/records/3", "no");
    let script = Script::new(vec![Reply::problem(&problem)], store).await;
    let producer = producer(&script, patient(5));
    let mut deliveries = Vec::new();
    for number in 0..5 {
        deliveries.push(producer.send(numbered(number)).await);
    }
    producer.close().await;
    let mut offsets = Vec::new();
    for delivery in deliveries {
        offsets.push(delivery.answer().await.ok().and_then(|placed| placed.offset));
    }
    assert_eq!(offsets, [Some(0), None, Some(2), None, Some(4)]);
    let asked = script.asked();
    assert_eq!(asked[1].values(), ["0", "2", "4"]);
    assert_ne!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
}

#[tokio::test]
async fn what_is_too_large_in_one_piece_is_sent_in_halves() {
    let script = Script::new(vec![], |asked| {
        let too_large = || Reply::problem(&Problem::new(ErrorCode::BodyTooLarge, "at most two"));
        if asked.values().len() > 2 { too_large() } else { store(asked) }
    })
    .await;
    let producer = producer(&script, patient(7));
    let mut deliveries = Vec::new();
    for number in 0..7 {
        deliveries.push(producer.send(numbered(number)).await);
    }
    producer.close().await;
    for (number, delivery) in (0..).zip(deliveries) {
        assert_eq!(delivery.answer().await.expect("it was stored").offset, Some(number));
    }
    let stored: Vec<_> =
        script.asked().iter().map(Asked::values).filter(|values| values.len() <= 2).flatten().collect();
    assert_eq!(stored, ["0", "1", "2", "3", "4", "5", "6"], "in order");
}

#[tokio::test]
async fn one_record_that_is_too_large_is_refused() {
    let script = Script::new(vec![], |_| Reply::problem(&Problem::new(ErrorCode::BodyTooLarge, "nothing fits"))).await;
    let producer = producer(&script, patient(2));
    let deliveries = [producer.send(numbered(0)).await, producer.send(numbered(1)).await];
    for delivery in deliveries {
        let error = delivery.answer().await.expect_err("it is refused");
        assert_eq!(error.problem().map(|problem| problem.code), Some(ErrorCode::BodyTooLarge));
    }
    producer.close().await;
    assert_eq!(script.asked().len(), 3);
}

#[tokio::test]
async fn a_final_refusal_is_not_tried_again() {
    let problem = Problem::new(ErrorCode::TopicNotFound, "there is no topic t");
    let script = Script::new(vec![Reply::problem(&problem)], store).await;
    let producer = producer(&script, patient(1));
    let error = producer.send(numbered(0)).await.answer().await.expect_err("it is refused");
    assert_eq!(error.problem().map(|problem| problem.code), Some(ErrorCode::TopicNotFound));
    producer.close().await;
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test]
async fn retries_end_when_their_time_is_over() {
    let script = Script::new(vec![], |_| Reply::HangUp).await;
    let producer = producer(&script, ProducerOptions { retry_for: Duration::from_millis(60), ..patient(1) });
    let error = producer.send(numbered(0)).await.answer().await.expect_err("nobody answers");
    assert!(error.is_retryable(), "{error}");
    producer.close().await;
    assert!(script.asked().len() >= 2);
}

#[tokio::test]
async fn answers_belong_to_their_records_with_several_requests_under_way() {
    let script = Script::new(vec![], store).await;
    let producer = producer(&script, ProducerOptions { in_flight_max: 4, ..patient(2) });
    let mut deliveries = Vec::new();
    for number in 0..40 {
        deliveries.push(producer.send(numbered(number)).await);
    }
    producer.close().await;
    for (number, delivery) in (0..).zip(deliveries) {
        assert_eq!(delivery.answer().await.expect("it was stored").offset, Some(number));
    }
}
