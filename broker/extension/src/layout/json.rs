//! The JSON form of a batch and its verdicts, for modules in script languages.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use levada_model::{Header, Timestamp, limits};
use serde::de::{DeserializeSeed, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use super::verdicts::at_most;
use super::{AnswerError, AnswerLimits, check_verdicts};
use crate::{CallBatch, CallRecord, EmittedRecord, Fields, MalformedRecord, Part, Verdict, Verdicts};

/// Why a batch has no JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonFormError {
    /// A declared part of a record is not what JSON could hold: the record goes another way, the others may come again.
    #[error("the {part} of record {place} of the call is not {wanted}")]
    Record {
        /// Its place.
        place: usize,
        /// Which part.
        part: &'static str,
        /// What it would have to be.
        wanted: &'static str,
    },
    /// The batch itself is malformed.
    #[error(transparent)]
    Malformed(#[from] MalformedRecord),
}

/// A record as the module sees it; parts that it did not declare are absent.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<(&'a str, Option<&'a str>)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    place: Option<Place<'a>>,
}

#[derive(Serialize)]
struct Place<'a> {
    topic: &'a str,
    partition: u32,
    offset: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Judged<'a> {
    Pass,
    Drop,
    Reject(String),
    #[serde(borrow)]
    Emit(Few<Written<'a>, { limits::MODULE_EMITTED_RECORDS_MAX }>),
}

/// An emitted record; what is absent is the input's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(default, deserialize_with = "present")]
    key: Option<Option<String>>,
    #[serde(borrow, default, deserialize_with = "raw")]
    value: Option<&'a RawValue>,
    #[serde(default)]
    tombstone: bool,
    headers: Option<Few<(String, Option<String>), { limits::RECORD_HEADERS_MAX }>>,
    timestamp: Option<i64>,
}

/// An array of which no more is kept than there may be, and one to see that there are more: an item takes a few bytes of the
/// answer and a hundred in memory.
struct Few<T, const MAX: usize>(Vec<T>);

/// The batch as a module that reads `fields` is given it in JSON. Values are spliced as they are; each is checked first, so
/// that none can end its place and forge others.
///
/// # Errors
/// At the first record that has no such form.
pub fn encode_json(batch: &CallBatch, fields: Fields) -> Result<String, JsonFormError> {
    let mut text = String::from("[");
    for (place, record) in batch.records().enumerate() {
        if place > 0 {
            text.push(',');
        }
        let shown = show(&record?, fields, place)?;
        text.push_str(&serde_json::to_string(&shown).expect("texts and numbers have a JSON form"));
    }
    text.push(']');
    Ok(text)
}

/// Reads and checks verdicts in JSON for `records` records.
///
/// # Errors
/// What is wrong first.
pub fn decode_json_verdicts(answer: &str, records: usize, limits: &AnswerLimits) -> Result<Vec<Verdict>, AnswerError> {
    if answer.len() > limits.answer_bytes_max {
        return Err(AnswerError::TooLarge { bytes: answer.len(), bytes_max: limits.answer_bytes_max });
    }
    let wrong = |error: serde_json::Error| AnswerError::json(error.to_string());
    let mut deserializer = serde_json::Deserializer::from_str(answer);
    let emitted_max = limits.emitted_in_all_max;
    let each = AtMost { records, emitted_max }.deserialize(&mut deserializer).map_err(wrong)?;
    deserializer.end().map_err(wrong)?;
    let verdicts = Verdicts::Each(each);
    check_verdicts(&verdicts, records, limits)?;
    let Verdicts::Each(each) = verdicts else { unreachable!("it was made so above") };
    Ok(each)
}

fn show<'a>(record: &CallRecord<'a>, fields: Fields, place: usize) -> Result<Shown<'a>, JsonFormError> {
    let error = |part, wanted| JsonFormError::Record { place, part, wanted };
    let text = |part, bytes| std::str::from_utf8(bytes).map_err(|_| error(part, "UTF-8"));
    let key = match fields.contains(Fields::KEY) {
        true => Some(record.key.map(|key| text("key", key)).transpose()?),
        false => None,
    };
    let value = record.value.filter(|_| fields.contains(Fields::VALUE));
    let value = value.map(|value| serde_json::from_slice(value).map_err(|_| error("value", "JSON"))).transpose()?;
    let headers = match fields.contains(Fields::HEADERS) {
        true => {
            let shown = |(name, value): (&'a str, Option<&'a [u8]>)| {
                Ok::<_, JsonFormError>((name, value.map(|value| text("header value", value)).transpose()?))
            };
            Some(record.headers()?.into_iter().map(shown).collect::<Result<_, _>>()?)
        }
        false => None,
    };
    let timestamp = fields.contains(Fields::TIMESTAMP).then_some(record.timestamp.0);
    let place = fields.contains(Fields::PLACE).then(|| Place {
        topic: record.topic.as_str(),
        partition: record.partition.0,
        offset: record.offset.0,
    });
    Ok(Shown { key, value, headers, timestamp, place })
}

/// Reads no more verdicts than there are records, and one to see that there are more; and no more records in all.
struct AtMost {
    records: usize,
    emitted_max: usize,
}

impl<'de> DeserializeSeed<'de> for AtMost {
    type Value = Vec<Verdict>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for AtMost {
    type Value = Vec<Verdict>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of {} verdicts", self.records)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let (mut verdicts, mut emitted) = (Vec::new(), 0);
        while let Some(judged) = sequence.next_element::<Judged<'de>>()? {
            let item = verdicts.len();
            if item == self.records {
                return Err(serde::de::Error::invalid_length(item + 1, &self));
            }
            let verdict = verdict(judged).map_err(serde::de::Error::custom)?;
            if let Verdict::Emit(records) = &verdict {
                emitted += records.len();
                at_most(item, "records in all", emitted, self.emitted_max).map_err(serde::de::Error::custom)?;
            }
            verdicts.push(verdict);
        }
        Ok(verdicts)
    }
}

fn verdict(judged: Judged<'_>) -> Result<Verdict, &'static str> {
    Ok(match judged {
        Judged::Pass => Verdict::Pass,
        Judged::Drop => Verdict::Drop,
        Judged::Reject(reason) => Verdict::Reject(reason),
        Judged::Emit(Few(records)) => Verdict::Emit(records.into_iter().map(emitted).collect::<Result<_, _>>()?),
    })
}

fn emitted(written: Written<'_>) -> Result<EmittedRecord, &'static str> {
    let owned = |text: String| Bytes::from(text.into_bytes());
    let value = match (written.tombstone, written.value) {
        (true, Some(_)) => return Err("a record has a value and is a tombstone"),
        (true, None) => Part::Given(None),
        (false, Some(value)) => Part::Given(Some(Bytes::copy_from_slice(value.get().as_bytes()))),
        (false, None) => Part::Input,
    };
    let headers = written.headers.map_or(Part::Input, |Few(headers)| {
        let header = |(name, value): (String, Option<String>)| Header { name, value: value.map(owned) };
        Part::Given(headers.into_iter().map(header).collect())
    });
    Ok(EmittedRecord {
        key: written.key.map_or(Part::Input, |key| Part::Given(key.map(owned))),
        value,
        headers,
        timestamp: written.timestamp.map_or(Part::Input, |timestamp| Part::Given(Timestamp(timestamp))),
    })
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FewVisitor(PhantomData))
    }
}

struct FewVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for FewVisitor<T, MAX> {
    type Value = Few<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut few = Vec::new();
        while few.len() <= MAX {
            match sequence.next_element()? {
                Some(item) => few.push(item),
                None => return Ok(Few(few)),
            }
        }
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Few(few))
    }
}

/// Tells null from absent.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Tells null from absent, for raw JSON.
fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}
