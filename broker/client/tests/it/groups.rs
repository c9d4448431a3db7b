//! Members of groups: what is sent, and what a consumer outlives.

use levada_api::{ErrorCode, GroupPlace, JoinGroup, Problem, RejectRecords};
use levada_client::{Client, GroupQuery};

use crate::script::{Reply, Script};

const JOINED: &str = r#"{"member_id":"m1","generation":0,"assignment":[],"state":"assigning","cursor":""}"#;
const REJOINED: &str = r#"{"member_id":"m2","generation":3,"assignment":[],"state":"assigning","cursor":""}"#;

async fn client(replies: Vec<Reply>) -> (Script, Client) {
    let script = Script::new(replies, |_| Reply::HangUp).await;
    let client = Client::new(&script.url).expect("a good address");
    (script, client)
}

fn fetched(offset: u64, cursor: &str) -> Reply {
    Reply::json(format!(
        "{{\"records\":[{{\"topic\":\"orders\",\"partition\":0,\"offset\":{offset},\"timestamp\":5,\
         \"timestamp_type\":\"create\",\"key\":null,\"value\":1.0,\"headers\":[]}}],\"cursor\":\"{cursor}\",\
         \"generation\":1,\"assignment\":[{{\"topic\":\"orders\",\"partition\":0}}],\"revoked\":[],\
         \"revoke_deadline_ms\":null,\"state\":\"stable\"}}"
    ))
}

fn lines(script: &Script) -> Vec<String> {
    script.asked().into_iter().map(|asked| asked.line.replace(" HTTP/1.1", "")).collect()
}

#[tokio::test]
async fn a_consumer_joins_and_goes_on_from_its_cursor() {
    let (script, client) = client(vec![
        Reply::Body(201, "application/json", JOINED.into()),
        fetched(0, "c1"),
        fetched(1, "c2"),
        Reply::json(r#"{"committed":[{"topic":"orders","partition":0,"offset":2}],"refused":[]}"#),
        Reply::json(""),
    ])
    .await;
    let mut consumer = client.group_consumer("g", JoinGroup::new(vec!["orders".to_owned()]));
    assert!(consumer.commit().await.expect("nothing was given").committed.is_empty());
    let query = GroupQuery { max_records: Some(1), ..GroupQuery::wait(500) };
    let first = consumer.next(&query).await.expect("a record");
    assert_eq!((first.records[0].topic.as_str(), first.records[0].record.offset), ("orders", 0));
    assert_eq!(first.records[0].record.value.as_deref(), Some(b"1.0".as_slice()));
    consumer.next(&query).await.expect("the next");
    let place = GroupPlace { topic: "orders".to_owned(), partition: 0, offset: 2 };
    assert_eq!(consumer.commit().await.expect("it holds it").committed, [place]);
    consumer.leave().await.expect("it was there");
    let expected = [
        "POST /v1/groups/g/members",
        "GET /v1/groups/g/members/m1/records?max_records=1&wait_ms=500",
        "GET /v1/groups/g/members/m1/records?cursor=c1&max_records=1&wait_ms=500",
        "POST /v1/groups/g/members/m1/commit",
        "DELETE /v1/groups/g/members/m1",
    ];
    assert_eq!(lines(&script), expected);
    assert_eq!(script.asked()[3].body, r#"{"cursor":"c2"}"#);
}

#[tokio::test]
async fn a_consumer_that_was_removed_joins_again_without_its_old_cursor() {
    let unknown = Reply::problem(&Problem::new(ErrorCode::UnknownMember, "join again"));
    let (script, client) = client(vec![
        Reply::Body(201, "application/json", JOINED.into()),
        fetched(0, "c1"),
        unknown.clone(),
        Reply::Body(201, "application/json", REJOINED.into()),
        fetched(0, "c1"),
        unknown,
    ])
    .await;
    let mut consumer = client.group_consumer("g", JoinGroup::new(vec!["orders".to_owned()]));
    consumer.next(&GroupQuery::default()).await.expect("a record");
    consumer.next(&GroupQuery::default()).await.expect("it again");
    assert_eq!(consumer.member_id(), Some("m2"));
    let refused = consumer.commit().await.expect_err("it was removed once more");
    assert_eq!(refused.problem().map(|problem| problem.code), Some(ErrorCode::UnknownMember));
    assert_eq!(consumer.member_id(), None);
    assert_eq!(lines(&script)[4], "GET /v1/groups/g/members/m2/records");
}

#[tokio::test]
async fn a_consumer_outlives_a_broken_connection_and_asks_for_the_same_again() {
    let (script, client) = client(vec![
        Reply::Body(201, "application/json", JOINED.into()),
        fetched(0, "c1"),
        Reply::HangUp,
        Reply::problem(&Problem::new(ErrorCode::CoordinatorLoading, "soon")),
        fetched(1, "c2"),
    ])
    .await;
    let mut consumer = client.group_consumer("g", JoinGroup::new(vec!["orders".to_owned()]));
    consumer.next(&GroupQuery::default()).await.expect("a record");
    assert_eq!(consumer.next(&GroupQuery::default()).await.expect("the next").records[0].record.offset, 1);
    let again = "GET /v1/groups/g/members/m1/records?cursor=c1";
    assert_eq!(lines(&script)[2..], [again, again, again]);
}

#[tokio::test]
async fn what_is_final_ends_a_consumer() {
    let fenced = Reply::problem(&Problem::new(ErrorCode::FencedInstance, "another came"));
    let (_script, client) = client(vec![Reply::Body(201, "application/json", JOINED.into()), fenced]).await;
    let mut consumer = client.group_consumer("g", JoinGroup::new(vec!["orders".to_owned()]));
    let error = consumer.next(&GroupQuery::default()).await.expect_err("it is fenced");
    assert_eq!(error.problem().map(|problem| problem.code), Some(ErrorCode::FencedInstance));
}

#[tokio::test]
async fn records_are_rejected_in_one_call() {
    let (script, client) =
        client(vec![Reply::json(r#"{"dead_letters":[{"topic":"orders.dead-letter","partition":0,"offset":0}]}"#)])
            .await;
    let record = GroupPlace { topic: "orders".to_owned(), partition: 0, offset: 7 };
    let reject = RejectRecords { records: vec![record], reason: "no".to_owned(), attempts: Some(3) };
    let places = client.reject_records("g", "m1", &reject).await.expect("it is stored");
    assert_eq!((places[0].topic.as_str(), places[0].offset), ("orders.dead-letter", 0));
    assert_eq!(
        script.asked()[0].body,
        r#"{"records":[{"topic":"orders","partition":0,"offset":7}],"reason":"no","attempts":3}"#
    );
}

#[tokio::test]
async fn groups_are_listed_over_all_pages() {
    let page = |group: &str, next: &str| {
        Reply::json(format!(
            r#"{{"groups":[{{"group":"{group}","state":"stable","members":1}}],"next_cursor":{next}}}"#
        ))
    };
    let (script, client) = client(vec![page("a", "\"b+c\""), page("b", "null")]).await;
    let names: Vec<_> = client.groups().await.expect("two pages").into_iter().map(|group| group.group).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(lines(&script)[1], "GET /v1/groups?cursor=b%2Bc");
}
