//! Transactions: what is sent, and what is tried again.

use std::time::Duration;

use levada_api::{Effect, ErrorCode, Problem, TransactionOffsets};
use levada_client::{Client, ClientError, Execute, ExecuteRecord, NewRecord, TransactionalProducer};

use crate::script::{Reply, Script};

async fn producer(replies: Vec<Reply>) -> (Script, TransactionalProducer) {
    let replies = [vec![ended(0)], replies].concat();
    let script =
        Script::new(replies, |_| Reply::problem(&Problem::new(ErrorCode::Internal, "beyond the script"))).await;
    let client = Client::new(&script.url).expect("a good address");
    let producer = client.transactional_producer("p", Some(Duration::from_secs(5))).await.expect("it starts");
    (script, producer)
}

/// What `POST /v1/producers` and ends answer.
fn ended(epoch: i16) -> Reply {
    Reply::json(format!("{{\"producer_id\":7,\"producer_epoch\":{epoch}}}"))
}

fn begun(id: &str) -> Reply {
    Reply::Body(201, "application/json", format!("{{\"transaction\":\"{id}\"}}"))
}

fn placed(partition: u32, offset: u64) -> Reply {
    Reply::json(format!("{{\"records\":[{{\"partition\":{partition},\"offset\":{offset},\"timestamp\":5}}]}}"))
}

fn refused(code: ErrorCode) -> Reply {
    Reply::problem(&Problem::new(code, "it says no"))
}

fn one(text: &str) -> [NewRecord; 1] {
    [NewRecord { partition: Some(0), ..NewRecord::text(text) }]
}

fn lines(script: &Script) -> Vec<String> {
    let line = |line: &str| line.replace(" HTTP/1.1", "").replace("/v1/transactions", "…");
    script.asked().into_iter().map(|asked| line(&asked.line)).collect()
}

fn code(error: &ClientError) -> Option<ErrorCode> {
    error.problem().map(|problem| problem.code)
}

#[tokio::test]
async fn epochs_go_from_one_transaction_to_the_next_and_sequences_begin_anew() {
    let replies = vec![begun("1"), placed(0, 0), placed(0, 1), ended(1), begun("2"), placed(0, 3), ended(2)];
    let (script, mut producer) = producer(replies).await;
    let mut open = producer.begin().await.expect("it begins");
    open.produce("t", &one("a")).await.expect("it is stored");
    open.produce("t", &one("b")).await.expect("it is stored");
    open.commit().await.expect("it ends");
    let mut open = producer.begin().await.expect("it begins");
    open.produce("t", &one("c")).await.expect("it is stored");
    open.abort().await.expect("it ends");
    let asked = script.asked();
    assert_eq!(asked[0].body, r#"{"transactional_id":"p","timeout_ms":5000}"#);
    assert_eq!(asked[1].body, r#"{"producer_id":7,"producer_epoch":0}"#);
    assert_eq!(asked[5].body, r#"{"producer_id":7,"producer_epoch":1}"#);
    let sent: Vec<_> =
        [2, 3, 6].map(|at: usize| (asked[at].header("transaction"), asked[at].header("producer-sequence"))).into();
    assert_eq!(sent, [(Some("1"), Some("0")), (Some("1"), Some("1")), (Some("2"), Some("0"))]);
    assert_eq!((&*lines(&script)[4], &*lines(&script)[7]), ("POST …/1/commit", "POST …/2/abort"));
}

#[tokio::test]
async fn what_is_numbered_is_sent_again_with_its_number_and_an_end_until_it_is_heard() {
    let replies = vec![
        begun("1"),
        Reply::HangUp,
        refused(ErrorCode::Overloaded),
        placed(0, 0),
        Reply::HangUp,
        refused(ErrorCode::CoordinatorLoading),
        ended(1),
        refused(ErrorCode::ConcurrentTransactions),
        begun("2"),
    ];
    let (script, mut producer) = producer(replies).await;
    let mut open = producer.begin().await.expect("it begins");
    open.produce("t", &one("a")).await.expect("the third try");
    open.commit().await.expect("the third try");
    producer.begin().await.expect("the second try");
    let asked = script.asked();
    assert!((2..5).all(|at| asked[at].header("producer-sequence") == Some("0") && asked[at].body == asked[2].body));
    let ends = lines(&script).iter().filter(|line| *line == "POST …/1/commit").count();
    assert_eq!((ends, asked.len()), (3, 10));
}

#[tokio::test]
async fn what_has_no_number_is_not_sent_again() {
    let (script, mut producer) = producer(vec![begun("1"), Reply::HangUp]).await;
    let mut open = producer.begin().await.expect("it begins");
    let error = open.produce("t", &[NewRecord::text("a")]).await.expect_err("nobody knows");
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(script.asked()[2].header("producer-sequence"), None);
    assert!(matches!(open.produce("t", &one("b")).await, Err(ClientError::OnlyAbort { .. })));
    assert!(matches!(open.commit().await, Err(ClientError::OnlyAbort { .. })));
    assert_eq!(script.asked().len(), 3, "and nothing is sent any more");
}

/// Gives a call up once the server has its request, which is the `count`th.
async fn give_up<T>(script: &Script, count: usize, call: impl Future<Output = T>) {
    let mut call = std::pin::pin!(call);
    let heard = async {
        while script.asked().len() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = &mut call => panic!("nobody answers"),
        () = heard => {}
    }
}

#[tokio::test]
async fn what_was_given_up_leaves_a_transaction_that_can_only_be_aborted() {
    let offsets = TransactionOffsets { group: "g".to_owned(), member_id: None, offsets: Vec::new() };
    for is_produce in [true, false] {
        let replies = vec![begun("1"), placed(0, 0), Reply::Silence, ended(1), begun("2"), placed(0, 2)];
        let (script, mut producer) = producer(replies).await;
        let mut open = producer.begin().await.expect("it begins");
        open.produce("t", &one("a")).await.expect("it is stored");
        if is_produce {
            give_up(&script, 4, open.produce("t", &one("given up"))).await;
        } else {
            give_up(&script, 4, open.add_offsets(&offsets)).await;
        }
        // The server may have taken it, under the number that these would have.
        assert!(matches!(open.produce("t", &one("b")).await, Err(ClientError::OnlyAbort { .. })));
        assert!(matches!(open.add_offsets(&offsets).await, Err(ClientError::OnlyAbort { .. })));
        assert!(matches!(open.commit().await, Err(ClientError::OnlyAbort { .. })));
        assert_eq!(script.asked().len(), 4, "and nothing is sent any more");
        let mut next = producer.begin().await.expect("the next one");
        next.produce("t", &one("b")).await.expect("it is stored");
        assert_eq!(lines(&script)[4..], ["POST …/1/abort", "POST …", "POST /v1/topics/t/records"]);
        assert_eq!(script.asked()[6].header("producer-sequence"), Some("0"));
    }
}

#[tokio::test]
async fn a_last_try_that_is_refused_for_sure_says_nothing_of_those_before_it() {
    let retiring = refused(ErrorCode::PartitionRetiring);
    for (first, is_sure) in [(Reply::HangUp, false), (refused(ErrorCode::Overloaded), true)] {
        let (_script, mut producer) = producer(vec![begun("1"), first, retiring.clone(), ended(1)]).await;
        let mut open = producer.begin().await.expect("it begins");
        assert_eq!(code(&open.produce("t", &one("a")).await.expect_err("no")), Some(ErrorCode::PartitionRetiring));
        assert_eq!(open.commit().await.is_ok(), is_sure);
    }
}

#[tokio::test]
async fn offsets_that_may_have_been_taken_in_all_the_same_leave_only_the_abort() {
    let offsets = TransactionOffsets { group: "g".to_owned(), member_id: None, offsets: Vec::new() };
    let unsure = Reply::problem(&Problem::new(ErrorCode::LogFenced, "it says no").effect(Effect::Possible));
    for (answer, is_sure) in [(unsure, false), (refused(ErrorCode::IllegalGeneration), true)] {
        let (_script, producer) = producer(vec![begun("1"), answer, ended(1)]).await;
        let mut producer = producer.retrying_for(Duration::ZERO);
        let mut open = producer.begin().await.expect("it begins");
        open.add_offsets(&offsets).await.expect_err("refused");
        assert_eq!(open.commit().await.is_ok(), is_sure);
    }
}

#[tokio::test]
async fn records_that_were_refused_whole_leave_the_transaction_open() {
    let some = r#"{"partition":0,"offset":0,"timestamp":5}"#;
    let problem = serde_json::to_string(&Problem::new(ErrorCode::PartitionRetiring, "it says no")).expect("JSON");
    let partly = Reply::Body(207, "application/json", format!("{{\"records\":[{some},{{\"problem\":{problem}}}]}}"));
    let (script, mut producer) =
        producer(vec![begun("1"), refused(ErrorCode::InvalidRecord), placed(0, 0), partly]).await;
    let mut open = producer.begin().await.expect("it begins");
    assert_eq!(code(&open.produce("t", &one("bad")).await.expect_err("wrong")), Some(ErrorCode::InvalidRecord));
    open.produce("t", &one("good")).await.expect("it is stored");
    assert_eq!(script.asked()[3].header("producer-sequence"), Some("0"));
    let both = [NewRecord::text("a"), NewRecord::text("b")];
    assert_eq!(code(&open.produce("t", &both).await.expect_err("one of the two")), Some(ErrorCode::PartitionRetiring));
    assert!(matches!(open.commit().await, Err(ClientError::OnlyAbort { .. })));
}

#[tokio::test]
async fn a_transaction_whose_end_was_not_heard_is_settled_before_the_next() {
    let replies =
        vec![begun("1"), ended(1), begun("2"), refused(ErrorCode::Internal), refused(ErrorCode::TransactionEnded)];
    let replies = [replies, vec![ended(2), begun("3")]].concat();
    let (script, mut producer) = producer(replies).await;
    drop(producer.begin().await.expect("it begins"));
    let open = producer.begin().await.expect("it begins");
    let error = open.commit().await.expect_err("whatever it means");
    assert_eq!(code(&error), Some(ErrorCode::Internal));
    producer.begin().await.expect("it begins");
    let asked = lines(&script);
    assert_eq!(asked[2..4], ["POST …/1/abort", "POST …"], "it was dropped");
    assert_eq!(asked[4..], ["POST …/2/commit", "POST …/2/abort", "POST …/2/commit", "POST …"]);
    assert_eq!(script.asked()[7].body, r#"{"producer_id":7,"producer_epoch":2}"#);
}

#[tokio::test]
async fn one_that_was_aborted_by_others_tells_so_and_the_producer_goes_on() {
    let replies = vec![begun("1"), refused(ErrorCode::TransactionEnded), ended(1), begun("2")];
    let (script, mut producer) = producer(replies).await;
    let open = producer.begin().await.expect("it begins");
    assert_eq!(code(&open.commit().await.expect_err("its time was over")), Some(ErrorCode::TransactionEnded));
    assert_eq!(producer.begin().await.expect("the next one").id(), "2");
    assert_eq!(script.asked()[4].body, r#"{"producer_id":7,"producer_epoch":1}"#);
}

#[tokio::test]
async fn a_whole_transaction_is_tried_again_with_its_key_and_tells_when_it_was_done_before() {
    let replies =
        vec![Reply::HangUp, Reply::json(r#"{"records":[{"topic":"t","partition":0,"offset":3,"timestamp":5}]}"#)];
    let script = Script::new(replies, |_| Reply::HangUp).await;
    let client = Client::new(&script.url).expect("a good address");
    let record = ExecuteRecord { topic: "t".to_owned(), record: NewRecord::text("x").with_key("k") };
    let whole = Execute { records: vec![record], group_offsets: None };
    let done = client.execute_with_retries(&whole, "once", Duration::from_secs(30)).await.expect("the second try");
    assert_eq!((done.records[0].offset, done.duplicate), (3, false));
    let asked = script.asked();
    assert!(asked.iter().all(|asked| asked.header("idempotency-key") == Some("once")));
    assert_eq!(asked[1].body, r#"{"records":[{"topic":"t","key":"k","value_text":"x"}]}"#);
}

#[tokio::test]
async fn a_producer_may_work_in_a_task_of_its_own() {
    let (script, mut producer) = producer(vec![begun("1"), placed(0, 0), ended(1)]).await;
    let client = Client::new(&script.url).expect("a good address");
    let task = tokio::spawn(async move {
        let mut open = producer.begin().await?;
        open.produce("t", &one("a")).await?;
        open.commit().await?;
        let whole = Execute::default();
        client.execute_with_retries(&whole, "k", Duration::ZERO).await
    });
    let refused = task.await.expect("no panic").expect_err("it is beyond the script");
    assert_eq!(code(&refused), Some(ErrorCode::Internal));
}
