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
/// Milliseconds since 1970.
const ORIGINAL_TIMESTAMP: &str = "original_timestamp";
const ERROR: &str = "error";
const GROUP: &str = "group";
const MODULE: &str = "module";
const ATTEMPTS: &str = "attempts";
/// How often the record was sent back already. It stays with the record, so that it is there when the record fails again.
const REDRIVE_COUNT: &str = "redrive_count";

/// What the broker adds to a record that goes to the dead letters, behind the record's own headers.
const ADDED: [&str; 8] =
    [ERROR, ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, ORIGINAL_TIMESTAMP, GROUP, MODULE, ATTEMPTS];

/// What a record's headers say of the record that it was before it died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Letter {
    /// The topic that it comes from.
    pub(crate) original_topic: String,
    pub(crate) original_partition: Option<u32>,
    pub(crate) original_offset: Option<u64>,
    /// The record's time there, in milliseconds since 1970.
    pub(crate) original_timestamp: Option<i64>,
    /// Why it could not be processed.
    pub(crate) error: Option<String>,
    /// The consumer group that rejected it.
    pub(crate) group: Option<String>,
    pub(crate) module: Option<String>,
    pub(crate) attempts: Option<u32>,
    /// How often it was sent back already.
    pub(crate) redrive_count: u32,
}

impl Letter {
    /// The letter that a record is; none without `original_topic`.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let added = added(&record.headers);
        let text = |name| {
            let index = added.iter().find(|index| record.headers[**index].0 == name)?;
            record.headers[*index].1.as_ref().map(|value| String::from_utf8_lossy(value).into_owned())
        };
        Some(Self {
            original_topic: text(ORIGINAL_TOPIC)?,
            original_partition: text(ORIGINAL_PARTITION).and_then(|text| text.parse().ok()),
            original_offset: text(ORIGINAL_OFFSET).and_then(|text| text.parse().ok()),
            original_timestamp: text(ORIGINAL_TIMESTAMP).and_then(|text| text.parse().ok()),
            error: text(ERROR),
            group: text(GROUP),
            module: text(MODULE),
            attempts: text(ATTEMPTS).and_then(|text| text.parse().ok()),
            redrive_count: redrive_count(record),
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
/// redrives is one higher. It has its own time, where the letter tells it.
pub(crate) fn sent_back(record: &Record, letter: &Letter) -> NewRecord {
    let added = added(&record.headers);
    let own = record.headers.iter().enumerate();
    let own = own.filter(|(index, (name, _))| name != REDRIVE_COUNT && !added.contains(index));
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
    // A time before 1970 means to the broker that there is none.
    let timestamp = letter.original_timestamp.filter(|time| *time >= 0);
    NewRecord { key: record.key.clone(), value, headers, timestamp, partition: None }
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
            let group = letter
                .group
                .as_deref()
                .map_or_else(String::new, |group| format!(" group={}", one_line(group.as_bytes())));
            let error = letter.error.as_deref().unwrap_or("no reason given");
            format!("dead letter of {} error={error:?}{group}{attempts}", letter.origin())
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

/// Which headers tell of the death; a record may have headers of its own under the same names. The broker's stand in one
/// run at the end. In a letter that somebody else wrote otherwise, they are the last ones of their names; `group` is too
/// usual a name for that.
fn added(headers: &[(String, Option<Bytes>)]) -> Vec<usize> {
    let is_added = |index: &usize| {
        let name = &headers[*index].0;
        ADDED.contains(&name.as_str()) && headers[index + 1..].iter().all(|(later, _)| later != name)
    };
    let run: Vec<_> = (0..headers.len()).rev().take_while(is_added).collect();
    if run.iter().any(|index| headers[*index].0 == ORIGINAL_TOPIC) {
        return run;
    }
    (0..headers.len()).filter(is_added).filter(|index| headers[*index].0 != GROUP).collect()
}

fn redrive_count(record: &Record) -> u32 {
    let last = record.headers.iter().rfind(|(name, _)| name == REDRIVE_COUNT).and_then(|(_, value)| value.as_deref());
    last.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or_default()
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

    const DIED: [(&str, &str); 7] = [
        ("error", "no such\ncustomer"),
        ("original_topic", "orders"),
        ("original_partition", "2"),
        ("original_offset", "17"),
        ("original_timestamp", "1600000000000"),
        ("group", "shop"),
        ("attempts", "3"),
    ];

    #[test]
    fn a_letter_that_is_sent_back_has_its_own_headers_and_one_redrive_more() {
        // It has headers of its own that are named as the broker's, and was sent back before.
        let own = [("error", "its own"), ("module", "m"), ("trace", "abc"), ("redrive_count", "1")];
        let record = record(&[&own[..], &DIED].concat());
        let letter = Letter::of(&record).expect("it is a letter");
        assert_eq!((letter.original_partition, letter.original_offset), (Some(2), Some(17)));
        assert_eq!((letter.error.as_deref(), letter.attempts), (Some("no such\ncustomer"), Some(3)));
        assert_eq!((letter.group.as_deref(), letter.module.as_deref()), (Some("shop"), None));
        let back = sent_back(&record, &letter);
        let headers: Vec<_> = back.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let text = |text: &'static str| Some(text.as_bytes());
        let own = [("error", "its own"), ("module", "m"), ("trace", "abc"), ("redrive_count", "2")];
        assert!(headers.into_iter().eq(own.map(|(name, value)| (name, text(value)))));
        assert!(matches!(back.value, NewValue::Text(text) if text == "{\"a\":\n1}"));
        let time = Some(1_600_000_000_000);
        assert_eq!((back.key.as_deref(), back.partition, back.timestamp), (Some(b"k".as_slice()), None, time));
    }

    #[test]
    fn a_letter_that_somebody_wrote_by_hand_is_understood_too() {
        let record = record(&[("group", "own"), ("attempts", "2"), ("original_topic", "orders"), ("trace", "abc")]);
        let letter = Letter::of(&record).expect("it is a letter");
        assert_eq!((letter.attempts, letter.group.as_deref()), (Some(2), None));
        let back = sent_back(&record, &letter);
        let names = back.headers.iter().map(|(name, _)| name);
        assert!(names.eq(["group", "trace", "redrive_count"]), "{back:?}");
        assert_eq!(back.timestamp, None, "nobody knows when it was");
    }

    #[test]
    fn a_warning_is_one_line_whatever_the_record_holds() {
        let expected = "2023-11-14T22:13:20.123Z WARN dead letter of orders 2:17 error=\"no such\\ncustomer\" group=shop attempts=3 \
                        at=0:5 key=\"k\" value={\"a\":\\n1}";
        assert_eq!(warning_line(&record(&DIED)), expected);
        assert!(Letter::of(&record(&[("error", "x")])).is_none());
        assert!(warning_line(&record(&[])).contains("WARN record without original_topic"));
    }
}
