//! `levada transaction`: list and abort; and the client's producer of transactions against the real server.

use std::time::Duration;

use levada_api::{ErrorCode, GroupPlace, TransactionOffsets};
use levada_client::{Client, ClientError, Execute, ExecuteRecord, FetchQuery, NewRecord};
use tokio::runtime::{Builder, Runtime};

use crate::program::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn with_client<T>(server: &Server, test: impl AsyncFnOnce(Client) -> T) -> T {
    runtime().block_on(test(Client::new(&server.url).expect("a good address")))
}

fn server() -> Server {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "2"]).ok();
    server
}

fn numbered(text: &str) -> NewRecord {
    NewRecord { partition: Some(0), ..NewRecord::text(text) }
}

async fn values(client: &Client, partition: u32) -> Vec<String> {
    let fetched = client.fetch("t", partition, &FetchQuery::default()).await.expect("it is read");
    let text = |value: Option<bytes::Bytes>| String::from_utf8(value.expect("a value").to_vec()).expect("text");
    fetched.records.into_iter().map(|record| text(record.value)).collect()
}

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ErrorCode {
    result.expect_err("it is refused").problem().expect("the server refuses it").code
}

#[test]
fn what_is_open_is_listed_and_an_operator_aborts_it() {
    let server = server();
    assert_eq!(server.levada(&["transaction", "list"]).ok(), "no transaction is open\n");
    assert_eq!(server.levada(&["transaction", "list", "--output", "json"]).ok(), "[]\n");
    with_client(&server, async |client| {
        let mut producer = client.transactional_producer("billing-1", None).await.expect("it starts");
        let mut open = producer.begin().await.expect("it begins");
        open.produce("t", &[numbered("lost")]).await.expect("it is stored");
        let id = open.id().to_owned();

        let text = server.levada(&["transaction", "list"]).ok();
        let row: Vec<_> = text.lines().nth(1).expect("a line").split_whitespace().collect();
        assert_eq!((&row[..3], &row[5..]), (&[id.as_str(), "billing-1", "ongoing"][..], &["t", "0", "-"][..]));
        let list = server.levada(&["transaction", "list", "--output", "json"]).json();
        assert_eq!((&list[0]["transaction"], &list[0]["timeout_ms"]), (&id.as_str().into(), &60_000.into()));
        assert_eq!(server.levada(&["transaction", "abort", &id]).ok(), format!("aborted transaction {id}\n"));
        assert_eq!(server.levada(&["transaction", "list"]).ok(), "no transaction is open\n");

        assert_eq!(code(open.commit().await), ErrorCode::TransactionEnded);
        let mut next = producer.begin().await.expect("the producer goes on");
        next.produce("t", &[numbered("kept")]).await.expect("it is stored");
        next.commit().await.expect("it is committed");
        assert_eq!(values(&client, 0).await, ["kept"]);
        let error = server.levada(&["transaction", "abort", "no-such"]).failed(1);
        assert!(error.contains("transaction-not-found") && error.contains("levada transaction list"), "{error}");
    });
}

#[test]
fn a_producer_goes_from_one_transaction_to_the_next_and_its_successor_fences_it() {
    let server = server();
    with_client(&server, async |client| {
        let timeout = Some(Duration::from_secs(30));
        let mut producer = client.transactional_producer("p", timeout).await.expect("it starts");
        for (texts, is_committed) in [(["a", "b"], true), (["x", "y"], false), (["c", "d"], true)] {
            let mut open = producer.begin().await.expect("it begins");
            for text in texts {
                open.produce("t", &[numbered(text)]).await.expect("it is stored");
            }
            let elsewhere = NewRecord { partition: Some(1), ..NewRecord::text("1") };
            open.produce("t", &[numbered("both"), elsewhere]).await.expect("both are stored");
            open.produce("t", &[numbered("again")]).await.expect("numbered behind them");
            let ended = if is_committed { open.commit().await } else { open.abort().await };
            ended.expect("it ends");
        }
        assert_eq!(values(&client, 0).await, ["a", "b", "both", "again", "c", "d", "both", "again"]);
        assert_eq!(values(&client, 1).await, ["1", "1"]);

        let mut open = producer.begin().await.expect("it begins");
        open.produce("t", &[numbered("zombie")]).await.expect("it is stored");
        let mut successor = client.transactional_producer("p", timeout).await.expect("it starts");
        assert_eq!(code(open.produce("t", &[numbered("zombie")]).await), ErrorCode::ProducerFenced);
        assert_eq!(code(open.commit().await), ErrorCode::ProducerFenced);
        let next = successor.begin().await.expect("it begins");
        next.commit().await.expect("there may be nothing in it");
        assert_eq!(values(&client, 0).await.len(), 8);
    });
}

#[test]
fn offsets_count_with_their_transaction_and_a_whole_one_is_done_once() {
    let server = server();
    with_client(&server, async |client| {
        client.produce("t", &[numbered("in")], levada_client::AcksWord::All).await.expect("it is stored");
        let offsets = |offset| TransactionOffsets {
            group: "g".into(),
            member_id: None,
            offsets: vec![GroupPlace { topic: "t".into(), partition: 0, offset }],
        };
        let mut producer = client.transactional_producer("p", None).await.expect("it starts");
        let mut open = producer.begin().await.expect("it begins");
        open.add_offsets(&offsets(1)).await.expect("they are taken in");
        assert!(client.committed_offsets("g").await.expect("it is read").is_empty());
        open.commit().await.expect("it is committed");
        let committed = client.committed_offsets("g").await.expect("it is read");
        assert_eq!(committed.into_values().collect::<Vec<_>>(), [1]);

        let record = ExecuteRecord { topic: "t".into(), record: numbered("out") };
        let whole = Execute { records: vec![record], group_offsets: Some(offsets(0)) };
        let first = client.execute_with_retries(&whole, "k", Duration::ZERO).await.expect("it is done");
        let again = client.execute(&whole, Some("k")).await.expect("it was done");
        assert_eq!((first.duplicate, again.duplicate, &first.records), (false, true, &again.records));
        assert_eq!(values(&client, 0).await, ["in", "out"]);
        let committed = client.committed_offsets("g").await.expect("it is read");
        assert_eq!(committed.into_values().collect::<Vec<_>>(), [0]);
    });
}
