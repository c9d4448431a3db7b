//! Whole transactions as they are sent: records that name their topics, and offsets of a group.

use std::fmt;

use bytes::Bytes;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::words::Text;
use super::{Path, RecordIn, RecordsFault, parse, read_list, read_record, seed};
use crate::strict::{self, Object};
use crate::transactions::{ExecuteIn, TransactionOffsets};

const RECORDS: &str = "records";
const GROUP_OFFSETS: &str = "group_offsets";

/// Takes a whole transaction, `{"records":[{"topic":…, …}],"group_offsets":{…}}`, apart. Each of the two may be absent.
///
/// # Errors
/// At the first thing that is wrong; syntax comes before meaning.
pub fn parse_execute(body: &Bytes) -> Result<ExecuteIn, RecordsFault> {
    let (records, group_offsets) = parse(body, |path, de| BodySeed { path, body }.deserialize(de))?;
    let group_offsets = group_offsets.map_or(Ok(None), |raw| {
        let read = strict::member::<Option<Object<TransactionOffsets>>>(GROUP_OFFSETS, raw.get());
        read.map_err(|problem| {
            let place = problem.errors.into_iter().next().expect("a field that is refused is named");
            RecordsFault::Unacceptable { pointer: place.pointer, detail: place.detail }
        })
    })?;
    Ok(ExecuteIn { records, group_offsets: group_offsets.map(|Object(offsets)| offsets) })
}

type Named = Vec<(String, RecordIn)>;

seed!(BodySeed: deserialize_map => (Named, Option<&'de RawValue>));

impl<'de> Visitor<'de> for BodySeed<'_, '_> {
    type Value = (Named, Option<&'de RawValue>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the fields records and group_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self { path, body } = self;
        let (mut records, mut group_offsets) = (None, None);
        while let Some(Text(name)) = map.next_key()? {
            let (name, is_there) = match &*name {
                RECORDS => (RECORDS, records.is_some()),
                GROUP_OFFSETS => (GROUP_OFFSETS, group_offsets.is_some()),
                other => return Err(path.unknown(other, "records, group_offsets")),
            };
            path.member(name);
            if is_there {
                return Err(A::Error::custom("the field is there twice"));
            }
            if name == RECORDS {
                records = Some(map.next_value_seed(RecordsSeed { path: &mut *path, body })?);
            } else {
                group_offsets = Some(map.next_value::<&RawValue>()?);
            }
            path.leave();
        }
        Ok((records.unwrap_or_default(), group_offsets))
    }
}

seed!(RecordsSeed: deserialize_seq => Named);

impl<'de> Visitor<'de> for RecordsSeed<'_, '_> {
    type Value = Named;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        let body = self.body;
        read_list(self.path, seq, |path, seq| seq.next_element_seed(RecordSeed { path, body }))
    }
}

seed!(RecordSeed: deserialize_map => (String, RecordIn));

impl<'de> Visitor<'de> for RecordSeed<'_, '_> {
    type Value = (String, RecordIn);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record object with the field topic")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let mut topic = None;
        let record = read_record(map, self.path, self.body, Some(&mut topic))?;
        let topic = topic.ok_or_else(|| A::Error::custom("the field topic is missing"))?;
        Ok((topic, record))
    }
}

#[cfg(test)]
mod tests {
    use levada_model::limits::REQUEST_RECORDS_MAX;

    use super::*;

    fn read(body: &str) -> Result<ExecuteIn, RecordsFault> {
        parse_execute(&Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn records_name_their_topics_and_offsets_stand_beside_them() {
        let body = r#"{"group_offsets":{"group":"g","offsets":[{"topic":"in","partition":1,"offset":7}]},
            "records":[{"topic":"a","key":"k","value":{"n": 1}},{"value_text":"x","topic":"b","partition":2}]}"#;
        let read = read(body).expect("valid");
        let topics: Vec<_> = read.records.iter().map(|(topic, _)| topic.as_str()).collect();
        assert_eq!(topics, ["a", "b"]);
        assert_eq!(read.records[0].1.record.value.as_deref(), Some(&b"{\"n\": 1}"[..]));
        let offsets = read.group_offsets.expect("they are there");
        assert_eq!((offsets.group.as_str(), offsets.member_id, offsets.offsets[0].offset), ("g", None, 7));
    }

    #[test]
    fn either_part_may_be_absent_and_offsets_null() {
        assert_eq!(read("{}").expect("nothing is judged here"), ExecuteIn::default());
        let records = read(r#"{"records":[{"topic":"a","value":1}],"group_offsets":null}"#).expect("valid");
        assert_eq!((records.records.len(), records.group_offsets), (1, None));
        let offsets = read(r#"{"group_offsets":{"group":"g","offsets":[]}}"#).expect("valid");
        assert!(offsets.records.is_empty() && offsets.group_offsets.is_some());
    }

    #[test]
    fn what_is_unacceptable_is_named_by_its_place() {
        for (body, pointer) in [
            ("[]", ""),
            (r#"{"records":{}}"#, "/records"),
            (r#"{"records":[{"value":1}]}"#, "/records/0"),
            (r#"{"records":[{"topic":"a"}]}"#, "/records/0"),
            (r#"{"records":[{"topic":null,"value":1}]}"#, "/records/0/topic"),
            (r#"{"records":[{"topic":"a","topic":"b","value":1}]}"#, "/records/0/topic"),
            (r#"{"records":[{"topic":"a","value":1},{"topic":"a","value":1,"offset":0}]}"#, "/records/1/offset"),
            (r#"{"records":[],"records":[]}"#, "/records"),
            (r#"{"group_offsets":null,"group_offsets":null}"#, "/group_offsets"),
            (r#"{"acks":"all"}"#, "/acks"),
            (r#"{"group_offsets":[]}"#, "/group_offsets"),
            (r#"{"group_offsets":{"group":"g"}}"#, "/group_offsets"),
            (r#"{"group_offsets":{"group":1,"offsets":[]}}"#, "/group_offsets/group"),
            (
                r#"{"group_offsets":{"group":"g","offsets":[{"topic":"t","partition":"0","offset":0}]}}"#,
                "/group_offsets/offsets/0/partition",
            ),
            (r#"{"group_offsets":{"group":"g","offsets":[],"offsets":[]}}"#, "/group_offsets"),
        ] {
            match read(body).expect_err(body) {
                RecordsFault::Unacceptable { pointer: found, .. } => assert_eq!(found, pointer, "{body}"),
                other => panic!("{body}: {other}"),
            }
        }
        assert!(matches!(read("{\"records\":[").expect_err("cut"), RecordsFault::Malformed { .. }));
        let many = vec![r#"{"topic":"t","value":1}"#; REQUEST_RECORDS_MAX + 1].join(",");
        assert_eq!(read(&format!("{{\"records\":[{many}]}}")), Err(RecordsFault::TooMany));
    }

    #[test]
    fn a_topic_is_no_field_of_a_record_that_is_sent_to_one() {
        let fault = crate::parse_record(&Bytes::from_static(br#"{"topic":"a","value":1}"#)).expect_err("unknown");
        assert!(!fault.to_string().contains("are topic"), "{fault}");
        let fault = read(r#"{"records":[{"tpoic":"a","value":1}]}"#).expect_err("unknown");
        assert!(fault.to_string().contains("topic, key"), "{fault}");
    }
}
