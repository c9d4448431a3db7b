//! The vectors of the contract, which the broker runs too; here what it writes is read, and what it reads is written.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{
    Batch, GroupRef, Groups, Keys, Place, Plain, VerdictWriter, decode_answers, decode_verdicts, encode_answers,
    encode_keys, put_group, put_section,
};
use crate::transform::{Emitted, Source, Verdict};
use crate::{Call, Fields, Group, KeyRecord, LayoutError, Record, Window};

fn each(name: &str, list: &str, mut run: impl FnMut(&str, &Value)) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/0.1.0/vectors").join(name);
    let document: Value = serde_json::from_slice(&fs::read(file).expect(name)).expect(name);
    let vectors = document[list].as_array().expect("a list");
    assert!(vectors.len() >= 3, "{name} has vectors");
    vectors.iter().for_each(|vector| run(vector["name"].as_str().expect("a name"), vector));
}

fn hex(value: &Value) -> Option<Vec<u8>> {
    let text = value.as_str()?;
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    Some((0..text.len()).step_by(2).map(byte).collect())
}

fn bytes(value: &Value) -> Vec<u8> {
    hex(value).expect("hex")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn u64(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn u32(value: &Value) -> u32 {
    u64(value).try_into().expect("a small number")
}

fn i64(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

fn call(value: &Value) -> Call {
    Call { time_ms: i64(&value["time"]), seed: u64(&value["seed"]) }
}

fn fields(value: &Value) -> Fields {
    let field = |name: &Value| match text(name) {
        "key" => Fields::KEY,
        "value" => Fields::VALUE,
        "headers" => Fields::HEADERS,
        _ => Fields::TIMESTAMP,
    };
    list(&value["parts"]).iter().map(field).fold(Fields::empty(), |all, one| all | one)
}

type Owned = Vec<(String, Option<Vec<u8>>)>;

fn headers(value: &Value) -> Owned {
    list(value).iter().map(|pair| (text(&pair[0]).to_owned(), hex(&pair[1]))).collect()
}

fn borrowed(headers: &Owned) -> Vec<(&str, Option<&[u8]>)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
}

/// Key, value and headers of a record of a vector.
fn parts(record: &Value) -> (Option<Vec<u8>>, Option<Vec<u8>>, Owned) {
    (hex(&record["key"]), hex(&record["value"]), headers(&record["headers"]))
}

fn records(bytes: &[u8]) -> Result<Vec<Record<'_>>, LayoutError> {
    Batch::parse(bytes)?.records()
}

#[test]
fn batches_are_read_as_the_contract_says() {
    each("batch.json", "vectors", |name, vector| {
        let (hex, batch) = (bytes(&vector["hex"]), &vector["batch"]);
        let records = records(&hex).expect(name);
        let sections = list(&batch["sections"]).iter();
        let expected =
            sections.flat_map(|section| list(&section["records"]).iter().map(move |record| (section, record)));
        assert_eq!(records.len(), expected.clone().count(), "{name}");
        for (record, (section, expected)) in records.iter().zip(expected) {
            let delta = if u64(&section["timestamp_type"]) == 0 { i64(&expected["timestamp_delta"]) } else { 0 };
            let place = (text(&section["topic"]), u32(&section["partition"]), u64(&expected["offset"]));
            assert_eq!((record.topic, record.partition, record.offset), place, "{name}");
            assert_eq!(record.timestamp_ms, i64(&section["base_timestamp"]) + delta, "{name}");
            let (key, value, headers) = parts(expected);
            assert_eq!((record.key, record.value), (key.as_deref(), value.as_deref()), "{name}");
            assert_eq!(record.headers().collect::<Vec<_>>(), borrowed(&headers), "{name}");
            assert_eq!(record.call, call(batch), "{name}");
        }
    });
}

#[test]
fn batches_are_written_as_the_contract_says() {
    each("batch.json", "vectors", |name, vector| {
        let batch = &vector["batch"];
        let mut written = Batch::head(call(batch), fields(batch), list(&batch["sections"]).len());
        for section in list(&batch["sections"]) {
            let place = Place {
                topic: text(&section["topic"]),
                partition: u32(&section["partition"]),
                base_offset: u64(&section["base_offset"]),
                base_timestamp_ms: i64(&section["base_timestamp"]),
                append_time: u64(&section["timestamp_type"]) == 1,
            };
            let owned: Vec<_> = list(&section["records"]).iter().map(parts).collect();
            let plain: Vec<Plain<'_>> = list(&section["records"])
                .iter()
                .zip(&owned)
                .map(|(record, (key, value, headers))| {
                    let (offset, delta) = (u64(&record["offset"]), i64(&record["timestamp_delta"]));
                    (offset, delta, key.as_deref(), value.as_deref(), borrowed(headers))
                })
                .collect();
            put_section(&mut written, &place, &plain);
        }
        assert_eq!(written, bytes(&vector["hex"]), "{name}");
    });
}

#[test]
fn keys_are_read_and_written_as_the_contract_says() {
    each("keys.json", "vectors", |name, vector| {
        let (hex, keys) = (bytes(&vector["hex"]), &vector["keys"]);
        let mut read = Vec::new();
        Keys::parse(&hex).expect(name).each(|record| read.push(record.clone())).expect(name);
        assert_eq!(read.len(), list(&keys["records"]).len(), "{name}");
        for (record, expected) in read.iter().zip(list(&keys["records"])) {
            let (key, value, headers) = parts(expected);
            assert_eq!((record.key, record.value), (key.as_deref(), value.as_deref()), "{name}");
            assert_eq!(record.headers, borrowed(&headers), "{name}");
            assert_eq!(record.timestamp_ms, i64(&expected["timestamp"]), "{name}");
            assert_eq!((record.topic, record.call), (text(&keys["topic"]), call(keys)), "{name}");
        }
        let read: Vec<KeyRecord<'_>> = read;
        assert_eq!(encode_keys(text(&keys["topic"]), call(keys), fields(keys), &read), hex, "{name}");
    });
}

#[test]
fn groups_are_read_and_written_as_the_contract_says() {
    each("groups.json", "vectors", |name, vector| {
        let (hex, groups) = (bytes(&vector["hex"]), &vector["groups"]);
        let read = Groups::parse(&hex).expect(name).groups;
        assert_eq!(read.len(), list(&groups["groups"]).len(), "{name}");
        let mut written = Groups::head(call(groups), read.len());
        for (read, expected) in read.iter().zip(list(&groups["groups"])) {
            let accumulators: Vec<_> = list(&expected["accumulators"]).iter().map(bytes).collect();
            let window = expected["window"].as_array();
            let expected = GroupRef {
                group: Group {
                    key: text(&expected["key"]),
                    window: window.map(|ends| Window { start_ms: i64(&ends[0]), end_ms: i64(&ends[1]) }),
                    call: call(groups),
                },
                accumulators: accumulators.iter().map(Vec::as_slice).collect(),
                places: list(&expected["records"]).iter().map(u32).collect(),
            };
            assert_eq!(*read, expected, "{name}");
            put_group(&mut written, &expected);
        }
        assert_eq!(written, hex, "{name}");
    });
}

fn source<T>(value: &Value, given: impl Fn(&Value) -> T) -> Source<T> {
    if value == "input" { Source::Input } else { Source::Given(given(value)) }
}

fn verdict(value: &Value) -> Verdict {
    let emitted = |record: &Value| Emitted {
        key: source(&record["key"], hex),
        value: source(&record["value"], hex),
        headers: source(&record["headers"], headers),
        timestamp_ms: source(&record["timestamp"], i64),
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
fn verdicts_are_written_and_read_as_the_contract_says() {
    each("verdicts.json", "vectors", |name, vector| {
        let verdicts: Vec<_> = list(&vector["verdicts"]).iter().map(verdict).collect();
        let mut writer = VerdictWriter::new();
        verdicts.iter().for_each(|verdict| writer.put(verdict));
        let written = writer.finish();
        assert_eq!(written, bytes(&vector["hex"]), "{name}");
        assert_eq!(decode_verdicts(&written), Ok(verdicts), "{name}");
    });
}

#[test]
fn one_record_in_place_of_another_is_written_as_a_list_of_one() {
    let replaced = Emitted::new().value("v").timestamp_ms(-1);
    let [one, list] = [Verdict::Replace(replaced.clone()), Verdict::Emit(vec![replaced])].map(|verdict| {
        let mut writer = VerdictWriter::new();
        writer.put(&verdict);
        writer.finish()
    });
    assert_eq!(one, list);
}

#[test]
fn answers_are_written_and_read_as_the_contract_says() {
    each("answers.json", "vectors", |name, vector| {
        let answers: Vec<_> = list(&vector["answers"]).iter().map(hex).collect();
        let written = encode_answers(&answers);
        assert_eq!(written, bytes(&vector["hex"]), "{name}");
        assert_eq!(decode_answers(&written), Ok(answers), "{name}");
    });
}

#[test]
fn what_the_contract_does_not_say_is_refused_and_no_cut_is_fatal() {
    each("batch.json", "refused", |name, vector| {
        assert!(records(&bytes(&vector["hex"])).is_err(), "{name} was taken");
    });
    each("keys.json", "refused", |name, vector| {
        let hex = bytes(&vector["hex"]);
        assert!(Keys::parse(&hex).and_then(|keys| keys.each(|_| ())).is_err(), "{name} was taken");
    });
    each("groups.json", "refused", |name, vector| {
        assert!(Groups::parse(&bytes(&vector["hex"])).is_err(), "{name} was taken");
    });
    for file in ["batch.json", "keys.json", "groups.json"] {
        each(file, "vectors", |name, vector| {
            let hex = bytes(&vector["hex"]);
            for cut in 0..hex.len() {
                let cut = &hex[..cut];
                let taken = match file {
                    "batch.json" => records(cut).is_ok(),
                    "keys.json" => Keys::parse(cut).and_then(|keys| keys.each(|_| ())).is_ok(),
                    _ => Groups::parse(cut).is_ok(),
                };
                assert!(!taken, "{name} was taken, cut after {} bytes", cut.len());
            }
        });
    }
}
