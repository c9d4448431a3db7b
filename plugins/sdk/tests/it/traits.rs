//! What the crate's own tests show of a module.

use levada_plugin::glue::{Description, describe, init, with};
use levada_plugin::testing::{CALL, TestRecord, aggregate, assign, filter, module, partition, transform};
use levada_plugin::{
    Assignor, AssignorInput, Fault, Fields, KeyRecord, Member, Module, NoConfig, Partition, Topic, TopicPartition,
    default_partition,
};
use serde_json::json;

use crate::bare::Bare;
use crate::everything::Everything;
use crate::rewrite::Rewrite;

const ALL: Everything = Everything { at_least: 2.0 };

#[test]
fn a_filter_keeps_what_it_says() {
    let records = [r#"{"n":1}"#, r#"{"n":2}"#, "words", r#"{"n":2.5,"s":"x"}"#].map(TestRecord::value);
    assert_eq!(filter(&ALL, &records), [false, true, false, true]);
    assert_eq!(filter(&ALL, &[]), Vec::<bool>::new());
}

#[test]
fn a_transform_changes_what_it_says_and_nothing_else() {
    let full = TestRecord { headers: vec![("h".to_owned(), None)], ..TestRecord::new("key", r#"{"n":1}"#).at(7) };
    let with_text = TestRecord { value: Some(br#"{"n":5,"s":"text"}"#.to_vec()), ..full.clone() };
    let tombstone = TestRecord { value: None, ..full.clone() };
    let records = [full.clone(), with_text.clone(), tombstone.clone(), TestRecord::value(r#"{"n":-1}"#)];
    let outcomes = transform(&Rewrite, &records);
    let changed = TestRecord { key: Some(b"k".to_vec()), value: Some(b"1.0".to_vec()), ..full };
    assert_eq!(outcomes[0], Ok(vec![changed]));
    let header = ("n".to_owned(), Some(b"5".to_vec()));
    let whole = TestRecord { value: Some(b"text".to_vec()), headers: vec![header], ..with_text.clone() };
    let second = TestRecord { key: None, value: None, timestamp_ms: 8, ..with_text };
    assert_eq!(outcomes[1], Ok(vec![whole, second]));
    assert_eq!(outcomes[2], Ok(vec![tombstone]));
    assert_eq!(outcomes[3], Ok(vec![]));
    let rejected = transform(&Rewrite, &[TestRecord::value("words")]).remove(0).expect_err("rejected");
    assert!(rejected.starts_with("not what was agreed"), "{rejected}");
}

#[test]
fn what_is_not_declared_is_not_given_and_stays_as_it_was() {
    let record = TestRecord { headers: vec![("h".to_owned(), None)], ..TestRecord::new("key", "value") };
    let expected = TestRecord { headers: vec![], ..record.clone() };
    assert_eq!(transform(&Bare, &[record]), [Ok(vec![expected])]);
}

/// Case PC-43: the partitions that Kafka's Java client gives these keys.
#[test]
fn keys_go_where_kafkas_client_sends_them() {
    for (key, partition_count, expected) in
        [("100:48069", 12, 9), ("wu", 10, 0), ("thingäöüÄÖÜ", 10, 2), ("TT0124", 15, 10), ("ключ-7", 6, 1), ("", 6, 3)]
    {
        assert_eq!(partition(&ALL, &[TestRecord::new(key, "v")], partition_count), [expected], "{key}");
    }
    let keyless = partition(&ALL, &[TestRecord::default(), TestRecord::default()], 5);
    assert_eq!(keyless, [2, 2], "the seed says where");
    let record = KeyRecord { topic: "t", timestamp_ms: 0, key: None, value: None, headers: vec![], call: CALL };
    assert!((1..50).all(|count| default_partition(&record, count) < count));
}

#[test]
fn a_header_of_a_record_to_place_is_its_first_of_that_name() {
    let headers = vec![("other", None), ("tenant", Some(&b"a"[..])), ("tenant", Some(b"b"))];
    let record = KeyRecord { topic: "t", timestamp_ms: 0, key: None, value: None, headers, call: CALL };
    assert_eq!([record.header("tenant"), record.header("other"), record.header("none")], [Some(&b"a"[..]), None, None]);
}

#[test]
fn an_aggregator_adds_up() {
    let records = [r#"{"n":1}"#, "words", r#"{"n":0.5}"#].map(TestRecord::value);
    assert_eq!(aggregate(&ALL, "k", &records), [Some(json!(1.0)), Some(json!(1.0)), Some(json!(1.5))]);
    assert_eq!(aggregate(&ALL, "k", &[TestRecord::default()]), [None], "no row without a number");
}

#[test]
fn a_module_is_set_up_once_and_only_with_its_config() {
    assert!(with(|_: &Everything| Ok(())) == Err(Fault::Failed("the module is not initialised".to_owned())));
    let error = init::<Everything>("{}").expect_err("refused");
    assert!(error.contains("at_least"), "{error}");
    assert!(init::<Everything>("words").is_err());
    assert_eq!(init::<Everything>(r#"{"at_least":3}"#), Ok(()));
    assert!(with(|module: &Everything| Ok(module.at_least)) == Ok(3.0));
    assert_eq!(init::<Everything>(r#"{"at_least":4}"#), Err("the module is initialised already".to_owned()));
    assert!(module::<Bare>(r#"{"unknown":1}"#).is_err());
    assert!(module::<Bare>("{}").is_ok());
}

#[test]
fn a_module_describes_itself() {
    let Description { layout_version, fields, config_schema, state_version } = describe::<Everything>();
    assert_eq!((layout_version, state_version), (1, 3));
    assert!(fields == Fields::KEY | Fields::VALUE | Fields::HEADERS);
    assert!(config_schema.is_some_and(|schema| serde_json::from_str::<serde_json::Value>(&schema).is_ok()));
    assert!(describe::<Bare>().fields.is_empty());
}

#[test]
fn randomness_is_the_same_for_the_same_place_and_differs_between_places() {
    let drawn: Vec<u64> = (0..1000).map(|place| CALL.random(place)).collect();
    assert_eq!(drawn, (0..1000).map(|place| CALL.random(place)).collect::<Vec<_>>());
    let different: std::collections::HashSet<_> = drawn.iter().collect();
    assert_eq!(different.len(), drawn.len());
}

#[test]
fn an_assignors_answer_is_checked_as_the_broker_checks_it() {
    let member = |id: &str, subscribed: Vec<u32>| Member {
        member_id: id.to_owned(),
        instance_id: None,
        subscribed,
        owned: vec![],
    };
    let topic = |name: &str| Topic {
        topic_id: name.to_owned(),
        name: name.to_owned(),
        partitions: vec![Partition { partition: 0, lag: None }, Partition { partition: 3, lag: Some(7) }],
    };
    let input = AssignorInput {
        members: vec![member("a", vec![0]), member("b", vec![0])],
        topics: vec![topic("read"), topic("unread")],
    };
    let given = |partition| TopicPartition { topic: 0, partition };
    assert_eq!(assign(&ALL, &input), [vec![given(0)], vec![given(3)]]);
}

/// Gives a fixed answer.
struct Stubborn(Vec<Vec<TopicPartition>>);

impl Module for Stubborn {
    type Config = NoConfig;
    const FIELDS: Fields = Fields::empty();

    fn new(_: NoConfig) -> Result<Self, String> {
        Ok(Self(vec![]))
    }
}

impl Assignor for Stubborn {
    fn assign(&self, _: &AssignorInput) -> Result<Vec<Vec<TopicPartition>>, Fault> {
        Ok(self.0.clone())
    }
}

#[test]
#[should_panic(expected = "exactly the partitions that somebody reads")]
fn an_assignor_that_forgets_a_partition_fails_its_test() {
    let member = Member { member_id: "a".to_owned(), instance_id: None, subscribed: vec![0], owned: vec![] };
    let partitions = vec![Partition { partition: 0, lag: None }, Partition { partition: 1, lag: None }];
    let topic = Topic { topic_id: "t".to_owned(), name: "t".to_owned(), partitions };
    let input = AssignorInput { members: vec![member], topics: vec![topic] };
    assign(&Stubborn(vec![vec![TopicPartition { topic: 0, partition: 0 }]]), &input);
}
