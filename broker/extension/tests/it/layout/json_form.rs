//! The JSON form: what a module sees, what it may answer, and that no value can forge others.

use bytes::Bytes;
use levada_extension::{
    AnswerError, AnswerLimits, EmittedRecord, Fields, JsonFormError, Part, Verdict, decode_json_verdicts, encode_json,
};
use levada_model::{Header, Record, Timestamp};

use super::{LIMITS, batch_of};

fn record(
    key: Option<&'static [u8]>,
    value: Option<&'static [u8]>,
    headers: &[(&str, Option<&'static [u8]>)],
) -> Record {
    let header = |(name, value): &(&str, Option<&'static [u8]>)| Header {
        name: (*name).to_owned(),
        value: value.map(Bytes::from_static),
    };
    Record {
        key: key.map(Bytes::from_static),
        value: value.map(Bytes::from_static),
        headers: headers.iter().map(header).collect(),
    }
}

fn shown(fields: Fields, records: &[Record]) -> Result<String, JsonFormError> {
    let records: Vec<_> = records.iter().cloned().zip(5..).map(|(record, time)| (Timestamp(time), record)).collect();
    encode_json(&batch_of(&records), fields)
}

#[test]
fn records_are_shown_with_the_declared_parts() {
    let records = [
        record(Some(b"a\"\n"), Some(b" {\"n\": 9007199254740993}\n"), &[("h", Some(b"v")), ("h", None)]),
        record(None, None, &[]),
        record(Some(b""), Some(b"null"), &[]),
    ];
    assert_eq!(
        shown(Fields::VALUE, &records).expect("JSON"),
        r#"[{"value":{"n": 9007199254740993}},{},{"value":null}]"#
    );
    assert_eq!(shown(Fields::KEY, &records).expect("JSON"), r#"[{"key":"a\"\n"},{"key":null},{"key":""}]"#);
    let all = Fields::KEY | Fields::VALUE | Fields::HEADERS | Fields::TIMESTAMP | Fields::PLACE;
    let first = concat!(
        r#"[{"key":"a\"\n","value":{"n": 9007199254740993},"headers":[["h","v"],["h",null]],"timestamp":5,"#,
        r#""topic":"orders","partition":3,"offset":0}]"#
    );
    assert_eq!(shown(all, &records[..1]).expect("JSON"), first);
    assert_eq!(shown(Fields::none(), &records).expect("JSON"), "[{},{},{}]");
    assert_eq!(shown(Fields::VALUE, &[]).expect("JSON"), "[]");
}

#[test]
fn a_value_that_would_end_its_place_is_told_and_not_shown() {
    let fine = record(None, Some(b"1"), &[]);
    for value in [&b"1},{\"value\":2"[..], b"", b"words", b"{\"a\":1", b"1 2", b"\xff", b"\"\xff\"", b"\"\n\""] {
        let error = shown(Fields::VALUE, &[fine.clone(), record(None, Some(value), &[])]).expect_err("refused");
        assert_eq!(error, JsonFormError::Record { place: 1, part: "value", wanted: "JSON" });
        assert!(shown(Fields::KEY, &[record(None, Some(value), &[])]).is_ok(), "nobody asked for the value");
    }
    let key = shown(Fields::KEY, &[record(Some(b"\xff"), None, &[])]);
    assert_eq!(key, Err(JsonFormError::Record { place: 0, part: "key", wanted: "UTF-8" }));
    let header = shown(Fields::HEADERS, &[record(None, None, &[("h", Some(b"\xff"))])]);
    assert_eq!(header, Err(JsonFormError::Record { place: 0, part: "header value", wanted: "UTF-8" }));
}

#[test]
fn verdicts_are_what_the_contract_says() {
    let answer = r#"["pass", "drop", {"reject":"too \u00fc"}, {"emit":[]},
        {"emit":[{}, {"value": {"n": 1.50} ,"key":"k","headers":[["h","v"],["h",null]],"timestamp":-1},
                 {"tombstone":true,"key":null,"headers":[]}, {"value":null}]}]"#;
    let bytes = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let input = || EmittedRecord { key: Part::Input, value: Part::Input, headers: Part::Input, timestamp: Part::Input };
    let header = |value| Header { name: "h".to_owned(), value };
    let full = EmittedRecord {
        key: Part::Given(bytes("k")),
        value: Part::Given(bytes("{\"n\": 1.50}")),
        headers: Part::Given(vec![header(bytes("v")), header(None)]),
        timestamp: Part::Given(Timestamp(-1)),
    };
    let tombstone =
        EmittedRecord { key: Part::Given(None), value: Part::Given(None), headers: Part::Given(vec![]), ..input() };
    let null = EmittedRecord { value: Part::Given(bytes("null")), ..input() };
    let expected = vec![
        Verdict::Pass,
        Verdict::Drop,
        Verdict::Reject("too ü".to_owned()),
        Verdict::Emit(vec![]),
        Verdict::Emit(vec![input(), full, tombstone, null]),
    ];
    assert_eq!(decode_json_verdicts(answer, 5, &LIMITS()), Ok(expected));
    assert_eq!(decode_json_verdicts("[]", 0, &LIMITS()), Ok(vec![]));
}

#[test]
fn what_is_no_verdict_is_refused() {
    for (records, answer) in [
        (1, ""),
        (1, "null"),
        (1, "[]"),
        (1, "[\"pass\",\"pass\"]"),
        (1, "[\"Pass\"]"),
        (1, "[true]"),
        (1, "[\"pass\"] x"),
        (1, "[\"emit\"]"),
        (1, "[{\"emit\":{}}]"),
        (1, "[{\"emit\":[{\"valeu\":1}]}]"),
        (1, "[{\"emit\":[{\"value\":1,\"value\":2}]}]"),
        (1, "[{\"emit\":[{\"value\":1,\"tombstone\":true}]}]"),
        (1, "[{\"emit\":[{\"key\":1}]}]"),
        (1, "[{\"emit\":[{\"timestamp\":1.5}]}]"),
        (1, "[{\"emit\":[{\"headers\":[[\"a\"]]}]}]"),
        (1, "[{\"reject\":1}]"),
        (1, "[{\"pass\":null,\"drop\":null}]"),
    ] {
        assert!(decode_json_verdicts(answer, records, &LIMITS()).is_err(), "{answer} was taken");
    }
    let small = AnswerLimits { answer_bytes_max: 8, ..LIMITS() };
    assert!(decode_json_verdicts("[\"pass\"]", 1, &small).is_ok());
    let error = AnswerError::TooLarge { bytes: 9, bytes_max: 8 };
    assert_eq!(decode_json_verdicts("[\"pass\"] ", 1, &small), Err(error));
    let many = format!("[{{\"emit\":[{}{{}}]}}]", "{},".repeat(100));
    let error = AnswerError::TooMany { item: 0, part: "records", got: 101, max: 100 };
    assert_eq!(decode_json_verdicts(&many, 1, &LIMITS()), Err(error.clone()));
    let very_many = format!("[{{\"emit\":[{}{{}}]}}]", "{},".repeat(1_000));
    assert_eq!(decode_json_verdicts(&very_many, 1, &LIMITS()), Err(error), "no more are kept than show that");
    let headers = format!("[{{\"emit\":[{{\"headers\":[{}[\"a\",null]]}}]}}]", "[\"a\",null],".repeat(5_000));
    let error = AnswerError::TooMany { item: 0, part: "headers", got: 1_001, max: 1_000 };
    assert_eq!(decode_json_verdicts(&headers, 1, &LIMITS()), Err(error));
    let no_headers = r#"[{"emit":[{"headers":null},{"headers":[]}]}]"#;
    assert!(decode_json_verdicts(no_headers, 1, &LIMITS()).is_ok());
}

#[test]
fn records_in_all_are_counted_while_they_are_read() {
    let limits = AnswerLimits { emitted_in_all_max: 3, ..LIMITS() };
    let answer = |second: &str| format!(r#"[{{"emit":[{{}},{{}}]}},{{"emit":[{second}]}}]"#);
    assert!(decode_json_verdicts(&answer("{}"), 2, &limits).is_ok());
    let error = decode_json_verdicts(&answer("{},{}"), 2, &limits).expect_err("too many");
    assert!(error.to_string().contains("4 records in all, and 3 are allowed"), "{error}");
}

#[test]
fn what_the_guest_wrote_is_cut_where_an_error_repeats_it() {
    let long = "ü".repeat(1 << 20);
    for answer in [format!("[{{\"{long}\":1}}]"), format!("[{{\"emit\":[{{\"{long}\":1}}]}}]")] {
        let error = decode_json_verdicts(&answer, 1, &LIMITS()).expect_err("no verdict").to_string();
        assert!(error.len() < 2_000, "{} bytes", error.len());
    }
}
