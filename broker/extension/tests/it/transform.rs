//! The filter that is built in: each test of the interface, and what it does with records that have nothing to test.

use bytes::Bytes;
use levada_extension::{
    AnswerError, CallBatch, CallSection, EmittedRecord, JsonFilter, JsonPointer, JsonTest, ModuleFault, Moment,
    OutputRoom, Part, Verdict, check_outputs, conformance,
};
use levada_model::{Header, PartitionIndex, Record, Timestamp, TopicName};
use serde_json::{Value, json};

fn filter(pointer: &str, test: JsonTest) -> JsonFilter {
    JsonFilter::new(pointer.parse().expect(pointer), vec![test])
}

fn keeps(test: impl Fn(Value) -> JsonTest, operand: Value, value: &str) -> bool {
    filter("/a", test(operand)).keeps(Some(format!("{{\"b\":1,\"a\":{value},\"c\":[2]}}").as_bytes()))
}

#[test]
fn the_native_filter_keeps_its_duties() {
    for pointer in ["", "/n", "/list/1/n", "/nothing"] {
        let tests = [
            JsonTest::Equals(json!(7)),
            JsonTest::NotEquals(json!(7)),
            JsonTest::Less(json!(0.5)),
            JsonTest::Greater(json!(0)),
            JsonTest::Exists(true),
            JsonTest::Exists(false),
            JsonTest::Contains(json!("te")),
        ];
        tests.into_iter().for_each(|test| conformance::transform(&filter(pointer, test)));
    }
}

#[test]
fn equal_is_what_json_calls_equal() {
    for (operand, value) in [
        (json!("APPROVED"), r#""APPROVED""#),
        (json!("ü\n"), r#""\u00fc\n""#),
        (json!(1), "1.0"),
        (json!(1.5), "15e-1"),
        (json!(9_007_199_254_740_993_u64), "9007199254740993"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(null), "null"),
        (json!(true), "true"),
        (json!([1, {"x": "y"}]), r#"[1.0,{"x":"y"}]"#),
    ] {
        assert!(keeps(JsonTest::Equals, operand.clone(), value), "{operand} {value}");
        assert!(!keeps(JsonTest::NotEquals, operand.clone(), value), "{operand} {value}");
    }
    for (operand, value) in [
        (json!("a"), r#""A""#),
        (json!("1"), "1"),
        (json!(1), r#""1""#),
        (json!(9_007_199_254_740_993_u64), "9007199254740992"),
        (json!(null), "0"),
        (json!(false), "null"),
        (json!([1]), "[1,1]"),
        (json!({}), r#"{"x":null}"#),
    ] {
        assert!(!keeps(JsonTest::Equals, operand.clone(), value), "{operand} {value}");
        assert!(keeps(JsonTest::NotEquals, operand.clone(), value), "{operand} {value}");
    }
}

#[test]
fn less_and_greater_compare_numbers_with_numbers_and_texts_with_texts() {
    for (less, greater) in [
        ("1", json!(2)),
        ("-1.5", json!(0)),
        (r#""a""#, json!("b")),
        ("9007199254740992", json!(9_007_199_254_740_993_u64)),
    ] {
        assert!(keeps(JsonTest::Less, greater.clone(), less), "{less} {greater}");
        assert!(!keeps(JsonTest::Greater, greater.clone(), less), "{less} {greater}");
        assert!(!keeps(JsonTest::Less, serde_json::from_str(less).expect(less), less), "{less} is not below itself");
    }
    assert!(keeps(JsonTest::Greater, json!(5), "1e400"));
    for (operand, value) in
        [(json!(1), r#""0""#), (json!("1"), "0"), (json!(1), "null"), (json!(null), "null"), (json!([2]), "[1]")]
    {
        assert!(!keeps(JsonTest::Less, operand.clone(), value), "{operand} {value}");
        assert!(!keeps(JsonTest::Greater, operand.clone(), value), "{operand} {value}");
    }
}

#[test]
fn contains_looks_into_texts_and_arrays() {
    assert!(keeps(JsonTest::Contains, json!("uak"), r#""earthqu\u0061ke""#));
    assert!(keeps(JsonTest::Contains, json!("x"), r#"["y","x"]"#));
    assert!(keeps(JsonTest::Contains, json!(1), "[0,1.0]"));
    assert!(keeps(JsonTest::Contains, json!(null), "[null]"));
    assert!(!keeps(JsonTest::Contains, json!("x"), r#"["xy"]"#));
    assert!(!keeps(JsonTest::Contains, json!(1), "1"));
    assert!(!keeps(JsonTest::Contains, json!("1"), "11"));
    assert!(!keeps(JsonTest::Contains, json!("a"), r#"{"a":1}"#));
}

#[test]
fn where_there_is_nothing_only_not_equals_and_not_exists_hold() {
    let nothing = [
        None,
        Some(&b""[..]),
        Some(b"words"),
        Some(b"{\"b\":1}"),
        Some(b"[1]"),
        Some(b"{\"a\":1} x"),
        Some(b"{\"a\":1"),
    ];
    for value in nothing {
        let shown = value.map(String::from_utf8_lossy);
        assert!(filter("/a", JsonTest::Exists(false)).keeps(value), "{shown:?}");
        assert!(filter("/a", JsonTest::NotEquals(json!(1))).keeps(value), "{shown:?}");
        for test in [
            JsonTest::Exists(true),
            JsonTest::Equals(json!(1)),
            JsonTest::Less(json!(9)),
            JsonTest::Contains(json!("")),
        ] {
            assert!(!filter("/a", test).keeps(value), "{shown:?}");
        }
    }
    assert!(filter("/a", JsonTest::Exists(true)).keeps(Some(b"{\"a\":null}")), "null is there");
}

#[test]
fn several_tests_hold_together() {
    let between =
        JsonFilter::new("/a".parse().expect("a pointer"), vec![JsonTest::Greater(json!(1)), JsonTest::Less(json!(3))]);
    let kept: Vec<_> = (0..5).filter(|a| between.keeps(Some(format!("{{\"a\":{a}}}").as_bytes()))).collect();
    assert_eq!(kept, [2]);
}

/// The examples of RFC 6901, and what it leaves open.
#[test]
fn a_pointer_finds_what_the_rfc_says() {
    let document = br#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"d":1,"d":{"e":2}}"#;
    let find = |pointer: &str| pointer.parse::<JsonPointer>().expect(pointer).find(document);
    assert_eq!(find(""), Some(std::str::from_utf8(document).expect("text")));
    for (pointer, found) in [
        ("/foo", r#"["bar","baz"]"#),
        ("/foo/0", "\"bar\""),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
        ("/d/e", "2"),
    ] {
        assert_eq!(find(pointer), Some(found), "{pointer}");
    }
    for pointer in
        ["/foo/2", "/foo/-", "/foo/00", "/foo/+0", "/foo/bar", "/nothing", "/d/e/f", "/foo/99999999999999999999999"]
    {
        assert_eq!(find(pointer), None, "{pointer}");
    }
    for pointer in ["foo", "/~", "/~2", "/a~", "/~~01"] {
        assert!(pointer.parse::<JsonPointer>().is_err(), "{pointer}");
    }
}

/// One that costs the answer a byte.
fn input() -> EmittedRecord {
    EmittedRecord { key: Part::Input, value: Part::Input, headers: Part::Input, timestamp: Part::Input }
}

#[test]
fn what_comes_of_a_call_counts_with_what_it_takes_of_its_input() {
    let header = Header { name: "a".to_owned(), value: None };
    let record = Record { headers: vec![header; 1_000], ..Record::default() };
    let records = vec![(Timestamp(1), record.clone()); 10];
    let topic = TopicName::new("t").expect("a name");
    let moment = Moment { time: Timestamp(1), seed: 0 };
    let section = CallSection::unstored(topic, PartitionIndex(0), &records);
    let batch = CallBatch { moment, sections: vec![section] };
    let verdicts = |emitted: usize| vec![Verdict::Emit(vec![input(); emitted]); 10];
    assert_eq!(check_outputs(&batch, &verdicts(10)), Ok(()));
    // A thousand records, each with a thousand headers of one byte: far more in memory than the one byte says.
    let fault = check_outputs(&batch, &verdicts(100));
    assert!(
        matches!(fault, Err(ModuleFault::Answer(AnswerError::TooMany { part: "bytes of records in all", .. }))),
        "{fault:?}"
    );
    let mut room = OutputRoom::default();
    assert_eq!(room.take(0, &record, &Verdict::Drop), Ok(()));
    assert_eq!(room, OutputRoom::default());
    assert_eq!(room.take(0, &record, &Verdict::Pass), Ok(()));
    assert_ne!(room, OutputRoom::default());
    let given = EmittedRecord { value: Part::Given(Some(Bytes::from(vec![0; 33 << 20]))), ..input() };
    let before = room;
    assert!(room.take(3, &record, &Verdict::Emit(vec![given])).is_err());
    assert_eq!(room, before, "nothing is taken where there is no room");
}

#[test]
fn records_that_come_of_a_call_are_counted() {
    let (mut room, record) = (OutputRoom::default(), Record::default());
    let hundred = Verdict::Emit(vec![input(); 100]);
    (0..1_000).for_each(|item| assert_eq!(room.take(item, &record, &hundred), Ok(())));
    let error = AnswerError::TooMany { item: 1_000, part: "records in all", got: 100_001, max: 100_000 };
    assert_eq!(room.take(1_000, &record, &Verdict::Pass), Err(error));
}
