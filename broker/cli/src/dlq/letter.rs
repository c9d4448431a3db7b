//! A dead letter: what its headers say of the record that it was, and how that record is sent back. Not here: how letters
//! are found, shown and sent.

use bytes::Bytes;
use levada_client::{NewRecord, NewValue, Record};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::output::{one_line, time_text};

const ORIGINAL_TOPIC: &str = "original_topic";
const ORIGINAL_PARTITION: &str = "original_partition";
const ORIGINAL_OFFSET: &str = "original_offset";
const ERROR: &str = "error";
const MODULE: &str = "module";
const ATTEMPTS: &str = "attempts";
/// How often the record was sent back already. It stays with the record, so that it is there when the record fails again.
const REDRIVE_COUNT: &str = "redrive_count";

/// What the broker adds to a record that goes to the dead letters, behind the record's own headers.
const ADDED: [&str; 6] = [ERROR, ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, MODULE, ATTEMPTS];

/// What a record's headers say of the record that it was before it died. Where a name comes several times the last one
/// counts: a letter that died again has the earlier ones as headers of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Letter {
    /// The topic that it comes from.
    pub(crate) original_topic: String,
    pub(crate) original_partition: Option<u32>,
    pub(crate) original_offset: Option<u64>,
    /// Why it could not be processed.
    pub(crate) error: Option<String>,
    pub(crate) module: Option<String>,
    pub(crate) attempts: Option<u32>,
    /// How often it was sent back already.
    pub(crate) redrive_count: u32,
}

impl Letter {
    /// The letter that a record is; none without `original_topic`.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let text = |name| last(&record.headers, name).map(|value| String::from_utf8_lossy(value).into_owned());
        Some(Self {
            original_topic: text(ORIGINAL_TOPIC)?,
            original_partition: text(ORIGINAL_PARTITION).and_then(|text| text.parse().ok()),
            original_offset: text(ORIGINAL_OFFSET).and_then(|text| text.parse().ok()),
            error: text(ERROR),
            module: text(MODULE),
            attempts: text(ATTEMPTS).and_then(|text| text.parse().ok()),
            redrive_count: text(REDRIVE_COUNT).and_then(|text| text.parse().ok()).unwrap_or_default(),
        })
    }

    /// Where it comes from, for people: `orders 2:17`.
    pub(crate) fn origin(&self) -> String {
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let (partition, offset) = (number(self.original_partition.map(u64::from)), number(self.original_offset));
        format!("{} {partition}:{offset}", one_line(self.original_topic.as_bytes()))
    }
}

/// The record as it was before it died, to be sent once more: what the broker had added is gone, and the count of
/// redrives is one higher. The time is the broker's, as of any new record.
pub(crate) fn sent_back(record: &Record, letter: &Letter) -> NewRecord {
    let added = |index: usize, name: &str| {
        ADDED.contains(&name) && record.headers[index + 1..].iter().all(|(later, _)| later != name)
    };
    let own = record.headers.iter().enumerate();
    let own = own.filter(|(index, (name, _))| name != REDRIVE_COUNT && !added(*index, name));
    let mut headers: Vec<_> = own.map(|(_, header)| header.clone()).collect();
    let count = letter.redrive_count.saturating_add(1).to_string();
    headers.push((REDRIVE_COUNT.to_owned(), Some(Bytes::from(count))));
    let value = match &record.value {
        None => NewValue::Tombstone,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => NewValue::Text(text.to_owned()),
            Err(_) => NewValue::Bytes(bytes.clone()),
        },
    };
    NewRecord { key: record.key.clone(), value, headers, timestamp: None, partition: None }
}

/// A record and what it says of its death, as JSON; a record that is no letter is told alone.
#[derive(Serialize)]
pub(crate) struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'static str>,
    #[serde(flatten)]
    letter: Option<Letter>,
    record: Box<RawValue>,
}

impl Told {
    pub(crate) fn new(record: &Record) -> anyhow::Result<Self> {
        let line = RawValue::from_string(record.to_line().into_owned())?;
        Ok(Self { severity: None, letter: Letter::of(record), record: line })
    }

    pub(crate) fn warning(record: &Record) -> anyhow::Result<Self> {
        Ok(Self { severity: Some(WARN), ..Self::new(record)? })
    }
}

const WARN: &str = "WARN";

/// A letter as one line of a log: time, severity, origin, error, key, value.
pub(crate) fn warning_line(record: &Record) -> String {
    let told = match Letter::of(record) {
        Some(letter) => {
            let attempts = letter.attempts.map_or_else(String::new, |attempts| format!(" attempts={attempts}"));
            let error = letter.error.as_deref().unwrap_or("no reason given");
            format!("dead letter of {} error={error:?}{attempts}", letter.origin())
        }
        None => "record without original_topic".to_owned(),
    };
    let (time, place) = (time_text(record.timestamp), format_args!("{}:{}", record.partition, record.offset));
    let (key, value) = (key_text(record), value_text(record));
    format!("{time} {WARN} {told} at={place} key={key} value={value}")
}

/// The key in one line; `null` is none, and a key of these letters is then quoted.
pub(crate) fn key_text(record: &Record) -> String {
    record.key.as_deref().map_or_else(|| "null".to_owned(), |key| format!("\"{}\"", one_line(key)))
}

/// The value in one line.
pub(crate) fn value_text(record: &Record) -> String {
    record.value.as_deref().map_or_else(|| "null".to_owned(), one_line)
}

fn last<'a>(headers: &'a [(String, Option<Bytes>)], name: &str) -> Option<&'a Bytes> {
    headers.iter().rfind(|(header, _)| header == name)?.1.as_ref()
}

#[cfg(test)]
mod tests {
    use super::{Letter, sent_back, warning_line};
    use bytes::Bytes;
    use levada_client::{NewValue, Record};

    fn record(headers: &[(&str, &str)]) -> Record {
        let headers = headers.iter();
        Record {
            partition: 0,
            offset: 5,
            timestamp: 1_700_000_000_123,
            timestamp_type: "create".to_owned(),
            key: Some(Bytes::from_static(b"k")),
            value: Some(Bytes::from_static(b"{\"a\":\n1}")),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), Some(Bytes::from((*value).to_owned()))))
                .collect(),
            wire: String::new(),
        }
    }

    const DIED: [(&str, &str); 5] = [
        ("error", "no such\ncustomer"),
        ("original_topic", "orders"),
        ("original_partition", "2"),
        ("original_offset", "17"),
        ("attempts", "3"),
    ];

    #[test]
    fn a_letter_that_is_sent_back_has_its_own_headers_and_one_redrive_more() {
        // It has a header of its own that is named as one of the broker's, and was sent back before.
        let own = [("error", "its own"), ("trace", "abc"), ("redrive_count", "1")];
        let record = record(&[&own[..], &DIED].concat());
        let letter = Letter::of(&record).expect("it is a letter");
        assert_eq!((letter.original_partition, letter.original_offset), (Some(2), Some(17)));
        assert_eq!((letter.error.as_deref(), letter.attempts), (Some("no such\ncustomer"), Some(3)));
        let back = sent_back(&record, &letter);
        let headers: Vec<_> = back.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let text = |text: &'static str| Some(text.as_bytes());
        assert_eq!(headers, [("error", text("its own")), ("trace", text("abc")), ("redrive_count", text("2"))]);
        assert!(matches!(back.value, NewValue::Text(text) if text == "{\"a\":\n1}"));
        assert_eq!((back.key.as_deref(), back.partition, back.timestamp), (Some(b"k".as_slice()), None, None));
    }

    #[test]
    fn a_warning_is_one_line_whatever_the_record_holds() {
        let expected = "2023-11-14T22:13:20.123Z WARN dead letter of orders 2:17 error=\"no such\\ncustomer\" attempts=3 \
                        at=0:5 key=\"k\" value={\"a\":\\n1}";
        assert_eq!(warning_line(&record(&DIED)), expected);
        assert!(Letter::of(&record(&[("error", "x")])).is_none());
        assert!(warning_line(&record(&[])).contains("WARN record without original_topic"));
    }
}
