//! Records as they are sent: what is kept byte for byte, and where what is wrong is found.

use proptest::prelude::*;

use super::*;

fn records(body: &str) -> Result<Vec<RecordIn>, RecordsFault> {
    parse_records(&Bytes::copy_from_slice(body.as_bytes()))
}

fn one(record: &str) -> RecordIn {
    parse_record(&Bytes::copy_from_slice(record.as_bytes())).expect(record)
}

fn pointer_of(body: &str) -> String {
    match records(body).expect_err(body) {
        RecordsFault::Unacceptable { pointer, .. } => pointer,
        RecordsFault::TooMany => panic!("{body}: too many records"),
        other @ RecordsFault::Malformed { .. } => panic!("{body}: {other}"),
    }
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn a_value_is_the_text_that_was_sent_less_its_outer_white_space() {
    for value in
        ["{\"a\" : 1.10}", "9007199254740993", "\"plain\"", "[1,{\"é\":\"\\u0000\"}]", "\"\\ud800\"", "-0", "1e999"]
    {
        let got = one(&format!("{{\"value\": \t{value}\n }}"));
        assert_eq!(got.record.value.as_deref(), Some(value.as_bytes()));
    }
}

#[test]
fn null_empty_and_absent_stay_apart() {
    assert_eq!(one("{\"value\":null}").record, Record::default());
    assert_eq!(one("{\"value\":\"\"}").record.value.as_deref(), Some(&b"\"\""[..]));
    assert_eq!(one("{\"value_text\":\"\"}").record.value.as_deref(), Some(&b""[..]));
    assert_eq!(one("{\"value\":1,\"key\":\"\"}").record.key.as_deref(), Some(&b""[..]));
    assert_eq!(one("{\"value\":1,\"key\":null}").record.key, None);
    assert_eq!(pointer_of("{\"records\":[{\"key\":\"a\"}]}"), "/records/0");
}

#[test]
fn keys_and_values_share_the_bodys_bytes() {
    let body =
        Bytes::from_static(b"{\"records\":[{\"key\":\"user-7\",\"value\":{\"n\":1},\"headers\":[[\"a\",\"bc\"]]}]}");
    let range = body.as_ptr_range();
    let record = parse_records(&body).expect("valid").remove(0).record;
    for part in
        [record.key.expect("key"), record.value.expect("value"), record.headers[0].value.clone().expect("header")]
    {
        assert!(range.contains(&part.as_ptr()));
    }
}

#[test]
fn headers_keep_order_repeats_null_and_bytes() {
    let headers =
        one(r#"{"value":1,"headers":[["dup","1"],["dup","2"],["",null],["b",{"base64":"/wA="}],["é","\n"]]}"#)
            .record
            .headers;
    let seen: Vec<(&str, Option<&[u8]>)> = headers.iter().map(|h| (h.name.as_str(), h.value.as_deref())).collect();
    let expected: Vec<(&str, Option<&[u8]>)> =
        vec![("dup", Some(b"1")), ("dup", Some(b"2")), ("", None), ("b", Some(&[0xff, 0])), ("é", Some(b"\n"))];
    assert_eq!(seen, expected);
}

#[test]
fn what_is_unacceptable_is_named_by_its_place() {
    for (body, pointer) in [
        ("null", ""),
        ("{}", ""),
        ("[]", ""),
        ("[[{\"value\":1}]]", ""),
        ("{\"records\":[]}", "/records"),
        ("{\"records\":{}}", "/records"),
        ("{\"records\":[{}]}", "/records/0"),
        ("{\"records\":[[\"k\"]]}", "/records/0"),
        ("{\"records\":[{\"value\":1},{\"vlaue\":1}]}", "/records/1/vlaue"),
        ("{\"records\":[{\"a/b~c\":1}]}", "/records/0/a~1b~0c"),
        ("{\"records\":[{\"key\":\"a\",\"key\":\"b\",\"value\":1}]}", "/records/0/key"),
        ("{\"records\":[{\"key\":\"a\",\"key_base64\":\"\",\"value\":1}]}", "/records/0/key_base64"),
        ("{\"records\":[{\"value\":1,\"value_text\":\"\"}]}", "/records/0/value_text"),
        ("{\"records\":[{\"value\":1}],\"records\":[{\"value\":1}]}", "/records"),
        ("{\"records\":[{\"value\":1}],\"acks\":1}", "/acks"),
        ("{\"records\":[{\"key\":1,\"value\":1}]}", "/records/0/key"),
        ("{\"records\":[{\"key\":\"\\ud800\",\"value\":1}]}", "/records/0/key"),
        ("{\"records\":[{\"value_text\":\"\\udc00x\"}]}", "/records/0/value_text"),
        ("{\"records\":[{\"value_base64\":\"plain words!\"}]}", "/records/0/value_base64"),
        ("{\"records\":[{\"value_base64\":{\"n\":1}}]}", "/records/0/value_base64"),
        ("{\"records\":[{\"value\":1,\"partition\":4294967296}]}", "/records/0/partition"),
        ("{\"records\":[{\"value\":1,\"partition\":-1}]}", "/records/0/partition"),
        ("{\"records\":[{\"value\":1,\"timestamp\":9007199254740992}]}", "/records/0/timestamp"),
        ("{\"records\":[{\"value\":1,\"timestamp\":99999999999999999999999}]}", "/records/0/timestamp"),
        ("{\"records\":[{\"value\":1,\"timestamp\":\"1\"}]}", "/records/0/timestamp"),
        ("{\"records\":[{\"value\":1,\"headers\":[[\"a\"]]}]}", "/records/0/headers/0/1"),
        ("{\"records\":[{\"value\":1,\"headers\":[[\"a\",1]]}]}", "/records/0/headers/0/1"),
        ("{\"records\":[{\"value\":1,\"headers\":[[\"a\",\"b\",\"c\"]]}]}", "/records/0/headers/0"),
        ("{\"records\":[{\"value\":1,\"headers\":[[\"a\",{\"base64\":\"!\"}]]}]}", "/records/0/headers/0/1/base64"),
        ("{\"records\":[{\"value\":1,\"headers\":[[\"a\",{\"hex\":\"\"}]]}]}", "/records/0/headers/0/1/hex"),
        ("{\"records\":[{\"value\":1,\"headers\":{\"a\":\"b\"}}]}", "/records/0/headers"),
    ] {
        assert_eq!(pointer_of(body), pointer, "{body}");
    }
}

#[test]
fn what_is_not_json_is_malformed_with_line_and_column() {
    for (body, line, column) in [
        ("", 1, 1),
        ("  \n", 1, 1),
        ("{\"records\":[{\"value\":1}", 1, 23),
        ("{\"records\":[{\"value\":1}]} x", 1, 27),
        ("{\"records\":\n[{\"value\":01}]}", 2, 12),
        ("{\"records\":[{\"vlaue\":1}", 1, 23),
    ] {
        match records(body).expect_err(body) {
            RecordsFault::Malformed { line: l, column: c, .. } => assert_eq!((l, c), (line, column), "{body}"),
            other => panic!("{body}: {other}"),
        }
    }
    let cut = parse_records(&Bytes::from_static(b"{\"records\":\n[{\"value\":\"\xff\"}]}"));
    assert!(matches!(cut, Err(RecordsFault::Malformed { line: 2, column: 12, .. })), "{cut:?}");
}

#[test]
fn depth_is_counted_outside_strings_and_stops_at_the_limit() {
    let body = |value: &str| format!("{{\"records\":[{{\"value\":{value}}}]}}");
    records(&body(&nested(JSON_DEPTH_MAX))).expect("as deep as may be");
    records(&body(&format!("\"{}\\\"{}\"", "[".repeat(500), "{".repeat(500)))).expect("brackets in a string");
    records(&body(&format!("[{}]", vec!["{}"; 500].join(",")))).expect("many, not deep");
    for depth in [JSON_DEPTH_MAX + 1, 100_000] {
        assert_eq!(pointer_of(&body(&nested(depth))), "/records/0/value");
    }
    let unclosed = records(&body(&"[".repeat(100_000))).expect_err("never closed");
    assert!(matches!(unclosed, RecordsFault::Malformed { .. }));
    let elsewhere = records(&format!("{{\"records\":{}}}", nested(100_000))).expect_err("deep where nothing is");
    assert!(matches!(elsewhere, RecordsFault::Unacceptable { .. }));
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(8, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_value_is_kept_byte_for_byte(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("a value has a text");
        let got = records(&format!("{{\"records\":[{{\"value\":{text}}}]}}")).expect("valid").remove(0);
        let expected = (!value.is_null()).then_some(text.as_bytes());
        prop_assert_eq!(got.record.value.as_deref(), expected);
    }

    #[test]
    fn any_bytes_are_taken_or_refused_and_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        _ = parse_records(&Bytes::from(bytes.clone()));
        _ = parse_record(&Bytes::from(bytes));
    }

    #[test]
    fn any_cut_or_changed_byte_is_taken_or_refused(cut in 0_usize..120, at in 0_usize..120, byte: u8) {
        let whole = br#"{"records":[{"key":"a","value":{"b":[1,"\u00e9"]},"headers":[["h",{"base64":"AA=="}]],"timestamp":1,"partition":0}]}"#;
        let cut_off = &whole[..cut.min(whole.len())];
        if cut_off.len() < whole.len() {
            prop_assert!(parse_records(&Bytes::copy_from_slice(cut_off)).is_err());
        }
        let mut changed = whole.to_vec();
        let at = at % changed.len();
        changed[at] = byte;
        _ = parse_records(&Bytes::from(changed));
    }

    #[test]
    fn texts_with_any_characters_come_back(key: String, text: String) {
        let body = serde_json::json!({"records": [{"key": key, "value_text": text}]}).to_string();
        let got = records(&body).expect("valid").remove(0).record;
        prop_assert_eq!(got.key.as_deref(), Some(key.as_bytes()));
        prop_assert_eq!(got.value.as_deref(), Some(text.as_bytes()));
    }
}

#[test]
fn as_many_records_as_the_limit_are_taken_and_one_more_is_too_many() {
    let body = |count: usize| Bytes::from(format!("{{\"records\":[{}]}}", vec!["{\"value\":1}"; count].join(",")));
    let taken = parse_records(&body(REQUEST_RECORDS_MAX)).expect("as many are taken");
    assert_eq!(taken.len(), REQUEST_RECORDS_MAX);
    assert_eq!(parse_records(&body(REQUEST_RECORDS_MAX + 1)), Err(RecordsFault::TooMany));
}

#[test]
fn a_long_unknown_name_is_repeated_in_part() {
    let long = "x".repeat(100_000);
    let fault = parse_record(&Bytes::from(format!("{{\"{long}\":1}}"))).expect_err("unknown");
    assert!(fault.to_string().len() < 400, "{fault}");
}
