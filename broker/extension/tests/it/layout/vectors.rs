//! The vectors of the contract, which every SDK runs too.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use levada_extension::{
    AnswerError, AnswerLimits, CallBatch, CallSection, EmittedRecord, Fields, Group, GroupWindow, Groups, KeyRecord,
    Keys, Moment, Part, Verdict, Verdicts, check_verdicts, decode_accumulators, decode_values, decode_verdicts,
};
use levada_model::{Header, Offset, PartitionIndex, Timestamp, TimestampType, TopicName};
use serde_json::Value;

use super::LIMITS;

fn all_parts() -> Fields {
    Fields::KEY | Fields::VALUE | Fields::HEADERS
}

fn document(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/wit/0.1.0/vectors");
    serde_json::from_slice(&fs::read(folder.join(name)).expect(name)).expect(name)
}

/// The vectors of a file, each with its name.
fn each(name: &str, list: &str, mut run: impl FnMut(&str, &Value)) {
    let document = document(name);
    let vectors = document[list].as_array().expect("a list");
    assert!(vectors.len() >= 3, "{name} has vectors");
    vectors.iter().for_each(|vector| run(vector["name"].as_str().expect("a name"), vector));
}

fn hex(value: &Value) -> Option<Bytes> {
    let text = value.as_str()?;
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    Some((0..text.len()).step_by(2).map(byte).collect())
}

fn bytes(value: &Value) -> Bytes {
    hex(value).expect("hex")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn u64(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn u32(value: &Value) -> u32 {
    u64(value).try_into().expect("a small number")
}

fn timestamp(value: &Value) -> Timestamp {
    Timestamp(value.as_i64().expect("a number"))
}

fn topic(value: &Value) -> TopicName {
    TopicName::new(value["topic"].as_str().expect("a text")).expect("a name")
}

fn moment(value: &Value) -> Moment {
    Moment { time: timestamp(&value["time"]), seed: u64(&value["seed"]) }
}

fn fields(value: &Value) -> Fields {
    let field = |name: &Value| match name.as_str() {
        Some("key") => Fields::KEY,
        Some("value") => Fields::VALUE,
        Some("headers") => Fields::HEADERS,
        _ => Fields::TIMESTAMP,
    };
    list(&value["parts"]).iter().map(field).fold(Fields::none(), |all, one| all | one)
}

fn headers(value: &Value) -> Vec<Header> {
    let header = |pair: &Value| Header { name: pair[0].as_str().expect("a name").to_owned(), value: hex(&pair[1]) };
    list(value).iter().map(header).collect()
}

fn varint(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn part(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    varint(bytes, part.map_or(-1, |part| part.len() as i64));
    bytes.extend_from_slice(part.unwrap_or_default());
}

/// The record section that a section's records are stored as, with something in each part that `fields` leaves out.
fn stored(section: &Value, fields: Fields) -> Vec<u8> {
    let left_out = |part| (!fields.contains(part)).then_some(&b"left out"[..]);
    let mut bytes = Vec::new();
    for record in list(&section["records"]) {
        let mut body = vec![0];
        varint(&mut body, record["timestamp_delta"].as_i64().expect("a number"));
        varint(&mut body, (u64(&record["offset"]) - u64(&section["base_offset"])) as i64);
        part(&mut body, hex(&record["key"]).as_deref().or(left_out(Fields::KEY)));
        part(&mut body, hex(&record["value"]).as_deref().or(left_out(Fields::VALUE)));
        let mut headers = headers(&record["headers"]);
        headers.extend(
            left_out(Fields::HEADERS).map(|name| Header { name: String::from_utf8_lossy(name).into(), value: None }),
        );
        varint(&mut body, headers.len() as i64);
        for header in headers {
            part(&mut body, Some(header.name.as_bytes()));
            part(&mut body, header.value.as_deref());
        }
        varint(&mut bytes, body.len() as i64);
        bytes.extend_from_slice(&body);
    }
    bytes
}

fn call_batch(batch: &Value, fields: Fields) -> CallBatch {
    let section = |section: &Value| CallSection {
        topic: topic(section),
        partition: PartitionIndex(u32(&section["partition"])),
        base_offset: Offset(u64(&section["base_offset"])),
        base_timestamp: timestamp(&section["base_timestamp"]),
        timestamp_type: match u64(&section["timestamp_type"]) {
            0 => TimestampType::CreateTime,
            _ => TimestampType::LogAppendTime,
        },
        record_count: list(&section["records"]).len().try_into().expect("a few"),
        records: stored(section, fields).into(),
    };
    CallBatch { moment: moment(batch), sections: list(&batch["sections"]).iter().map(section).collect() }
}

#[test]
fn batches_are_written_as_the_contract_says() {
    each("batch.json", "vectors", |name, vector| {
        let fields = fields(&vector["batch"]);
        if fields.contains(Fields::VALUE) && fields != all_parts() {
            return; // Allowed, and read by the SDKs; this broker sends all where values are wanted.
        }
        let batch = call_batch(&vector["batch"], fields);
        assert_eq!(batch.encode(fields).expect("well-formed"), bytes(&vector["hex"]), "{name}");
    });
}

#[test]
fn the_walk_sees_what_the_vectors_say() {
    each("batch.json", "vectors", |name, vector| {
        let batch = call_batch(&vector["batch"], all_parts());
        let records = batch.records().collect::<Result<Vec<_>, _>>().expect(name);
        let sections = list(&vector["batch"]["sections"]).iter();
        let expected =
            sections.flat_map(|section| list(&section["records"]).iter().map(move |record| (section, record)));
        assert_eq!(records.len(), expected.clone().count(), "{name}");
        assert_eq!(batch.record_count(), records.len(), "{name}");
        for (record, (section, expected)) in records.iter().zip(expected) {
            let delta = match u64(&section["timestamp_type"]) {
                0 => expected["timestamp_delta"].as_i64().expect("a number"),
                _ => 0,
            };
            assert_eq!(record.timestamp.0, timestamp(&section["base_timestamp"]).0 + delta, "{name}");
            assert_eq!(record.offset.0, u64(&expected["offset"]), "{name}");
            assert_eq!((record.topic, record.partition.0), (&topic(section), u32(&section["partition"])), "{name}");
            assert_eq!(record.key, hex(&expected["key"]).as_deref(), "{name}");
            assert_eq!(record.value, hex(&expected["value"]).as_deref(), "{name}");
            let own = headers(&expected["headers"]);
            let own: Vec<_> = own.iter().map(|header| (header.name.as_str(), header.value.as_deref())).collect();
            assert_eq!(record.headers().expect(name), own, "{name}");
        }
    });
}

#[test]
fn keys_are_written_as_the_contract_says() {
    each("keys.json", "vectors", |name, vector| {
        let keys = &vector["keys"];
        let parts: Vec<_> = list(&keys["records"])
            .iter()
            .map(|record| {
                (
                    timestamp(&record["timestamp"]),
                    hex(&record["key"]),
                    hex(&record["value"]),
                    headers(&record["headers"]),
                )
            })
            .collect();
        let records: Vec<_> = parts
            .iter()
            .map(|(timestamp, key, value, headers)| KeyRecord {
                timestamp: *timestamp,
                key: key.as_deref(),
                value: value.as_deref(),
                headers,
            })
            .collect();
        let topic = topic(keys);
        let written = Keys { topic: &topic, moment: moment(keys), records: &records }.encode(fields(keys));
        assert_eq!(written, bytes(&vector["hex"]), "{name}");
    });
}

#[test]
fn groups_are_written_as_the_contract_says() {
    each("groups.json", "vectors", |name, vector| {
        let group = |group: &Value| Group {
            key: group["key"].as_str().expect("a text").to_owned(),
            window: group["window"]
                .as_array()
                .map(|ends| GroupWindow { start: timestamp(&ends[0]), end: timestamp(&ends[1]) }),
            accumulators: list(&group["accumulators"]).iter().map(bytes).collect(),
            records: list(&group["records"]).iter().map(u32).collect(),
        };
        let groups = Groups {
            moment: moment(&vector["groups"]),
            groups: list(&vector["groups"]["groups"]).iter().map(group).collect(),
        };
        assert_eq!(groups.encode(), bytes(&vector["hex"]), "{name}");
    });
}

fn source<T>(value: &Value, given: impl Fn(&Value) -> T) -> Part<T> {
    if value == "input" { Part::Input } else { Part::Given(given(value)) }
}

fn verdict(value: &Value) -> Verdict {
    let emitted = |record: &Value| EmittedRecord {
        key: source(&record["key"], hex),
        value: source(&record["value"], hex),
        headers: source(&record["headers"], headers),
        timestamp: source(&record["timestamp"], timestamp),
    };
    match value.as_str() {
        Some("pass") => Verdict::Pass,
        Some(_) => Verdict::Drop,
        None => match value["reject"].as_str() {
            Some(reason) => Verdict::Reject(reason.to_owned()),
            None => Verdict::Emit(list(&value["emit"]).iter().map(emitted).collect()),
        },
    }
}

#[test]
fn verdicts_are_read_as_the_contract_says() {
    each("verdicts.json", "vectors", |name, vector| {
        let expected: Vec<_> = list(&vector["verdicts"]).iter().map(verdict).collect();
        let read = decode_verdicts(bytes(&vector["hex"]), expected.len(), &LIMITS());
        assert_eq!(read, Ok(expected), "{name}");
    });
}

#[test]
fn bad_verdicts_are_refused() {
    each("verdicts.json", "refused", |name, vector| {
        let records = u64(&vector["records"]) as usize;
        assert!(decode_verdicts(bytes(&vector["hex"]), records, &LIMITS()).is_err(), "{name} was taken");
    });
    each("verdicts.json", "keep", |name, vector| {
        let keep = Verdicts::Keep(list(&vector["keep"]).iter().map(u32).collect());
        let records = u64(&vector["records"]) as usize;
        let taken = check_verdicts(&keep, records, &LIMITS()).is_ok();
        assert_eq!(taken, vector["taken"].as_bool().expect("a bool"), "{name}");
    });
}

#[test]
fn answers_of_aggregators_are_read_as_the_contract_says() {
    each("answers.json", "vectors", |name, vector| {
        let expected: Vec<_> = list(&vector["answers"]).iter().map(hex).collect();
        let (answer, count) = (bytes(&vector["hex"]), expected.len());
        match expected.iter().position(Option::is_none) {
            Some(item) => {
                assert_eq!(decode_values(answer.clone(), count, &LIMITS()), Ok(expected), "{name}");
                assert_eq!(decode_accumulators(answer, count, &LIMITS()), Err(AnswerError::Null { item }), "{name}");
            }
            None => {
                let expected = expected.into_iter().flatten().collect();
                assert_eq!(decode_accumulators(answer, count, &LIMITS()), Ok(expected), "{name}");
            }
        }
    });
    each("answers.json", "refused", |name, vector| {
        let count = u64(&vector["count"]) as usize;
        assert!(decode_accumulators(bytes(&vector["hex"]), count, &LIMITS()).is_err(), "{name} was taken");
        assert!(decode_values(bytes(&vector["hex"]), count, &LIMITS()).is_err(), "{name} was taken");
    });
}

#[test]
fn the_parts_of_an_emitted_record_count_together() {
    let emitted = |value: usize| EmittedRecord {
        key: Part::Given(Some(Bytes::from_static(b"key"))),
        value: Part::Given(Some(vec![b'v'; value].into())),
        headers: Part::Given(vec![Header { name: "h".to_owned(), value: Some(Bytes::from_static(b"12")) }]),
        timestamp: Part::Input,
    };
    let limits = AnswerLimits { record_bytes_max: 20, ..LIMITS() };
    let check = |value| check_verdicts(&Verdicts::Each(vec![Verdict::Emit(vec![emitted(value)])]), 1, &limits);
    assert_eq!(check(14), Ok(()));
    assert_eq!(check(15), Err(AnswerError::TooMany { item: 0, part: "bytes of a record", got: 21, max: 20 }));
}

#[test]
fn headers_and_records_in_all_are_refused_before_they_are_read() {
    // Five thousand headers, and what would be two of them.
    let headers =
        [&[1, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0b10_01_10_10][..], &5_000_u32.to_le_bytes(), &[0; 16]].concat();
    let error = AnswerError::TooMany { item: 0, part: "headers", got: 5_000, max: 1_000 };
    assert_eq!(decode_verdicts(headers.into(), 1, &LIMITS()), Err(error));
    let limits = AnswerLimits { emitted_in_all_max: 3, ..LIMITS() };
    let two = [2, 2, 0, 0, 0, 0xaa, 0xaa];
    let answer = |verdicts: u8| [&[1, 0, 0, 0, verdicts, 0, 0, 0][..], &two.repeat(verdicts.into())].concat();
    assert!(decode_verdicts(answer(1).into(), 1, &limits).is_ok());
    let error = AnswerError::TooMany { item: 1, part: "records in all", got: 4, max: 3 };
    assert_eq!(decode_verdicts(answer(2).into(), 2, &limits), Err(error.clone()));
    let input = EmittedRecord { key: Part::Input, value: Part::Input, headers: Part::Input, timestamp: Part::Input };
    let each = vec![Verdict::Emit(vec![input; 2]); 2];
    assert_eq!(check_verdicts(&Verdicts::Each(each), 2, &limits), Err(error));
}

#[test]
fn caps_hold_to_the_byte() {
    let answer = |length: u32| {
        let head = [&[1, 0, 0, 0, 1, 0, 0, 0][..], &length.to_le_bytes()].concat();
        Bytes::from([head, vec![b'1'; length as usize]].concat())
    };
    let limits = AnswerLimits { accumulator_bytes_max: 10, record_bytes_max: 20, answer_bytes_max: 33, ..LIMITS() };
    assert!(decode_accumulators(answer(10), 1, &limits).is_ok());
    let error = AnswerError::TooMany { item: 0, part: "bytes", got: 11, max: 10 };
    assert_eq!(decode_accumulators(answer(11), 1, &limits), Err(error));
    assert!(decode_values(answer(20), 1, &limits).is_ok());
    assert!(matches!(decode_values(answer(21), 1, &limits), Err(AnswerError::TooMany { got: 21, .. })));
    assert_eq!(decode_values(answer(22), 1, &limits), Err(AnswerError::TooLarge { bytes: 34, bytes_max: 33 }));
    let words = Bytes::from_static(b"\x01\0\0\0\x01\0\0\0\x05\0\0\0words");
    assert!(matches!(decode_values(words, 1, &limits), Err(AnswerError::Json { .. })), "a value is JSON");
}
