//! Records as readers get them: written straight into a buffer, no tree, values verbatim.
//!
//! What is written here can be sent back to a produce and stores the same bytes: a value is spliced as `value` only when
//! taking it out of the answer's JSON gives all of its bytes again. Not here: which records are read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use levada_model::limits::JSON_DEPTH_MAX;
use levada_model::{Header, Offset, PartitionIndex, Record, Timestamp, TimestampType, TopicName};
use serde::de::IgnoredAny;

use crate::depth::is_deeper_than;

/// How values are written (`?format=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueForm {
    /// JSON as `value`, other UTF-8 as `value_text`, the rest as `value_base64`.
    #[default]
    Auto,
    /// UTF-8 as `value_text`, the rest as `value_base64`.
    Text,
    /// All as `value_base64`.
    Base64,
}

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    /// The form of values.
    pub form: ValueForm,
    /// Whether a record must be one line (NDJSON, SSE).
    pub one_line: bool,
}

/// A record with its place, to be written.
#[derive(Clone, Copy, Debug)]
pub struct RecordOut<'a> {
    /// Its topic, where the answer holds records of several.
    pub topic: Option<&'a TopicName>,
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
    /// Its time.
    pub timestamp: Timestamp,
    /// Whose time it is.
    pub timestamp_type: TimestampType,
    /// Key, value and headers.
    pub record: &'a Record,
}

impl RecordOut<'_> {
    /// Appends the record object to `out`, without a line break behind it.
    pub fn write_json(&self, rendering: Rendering, out: &mut Vec<u8>) {
        out.push(b'{');
        if let Some(topic) = self.topic {
            // The rule of names leaves nothing to escape.
            out.extend_from_slice(b"\"topic\":\"");
            out.extend_from_slice(topic.as_str().as_bytes());
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(b"\"partition\":");
        write_integer(out, i64::from(self.partition.0));
        out.extend_from_slice(b",\"offset\":");
        write_integer(out, self.offset.0.cast_signed());
        out.extend_from_slice(b",\"timestamp\":");
        write_integer(out, self.timestamp.0);
        out.extend_from_slice(match self.timestamp_type {
            TimestampType::CreateTime => b",\"timestamp_type\":\"create\",",
            TimestampType::LogAppendTime => b",\"timestamp_type\":\"append\",",
        });
        write_key(out, self.record.key.as_deref());
        out.push(b',');
        write_value(out, self.record.value.as_deref(), rendering);
        write_headers(out, &self.record.headers);
        out.push(b'}');
    }
}

/// Appends an object of a key and a value alone, worded as those of records.
pub fn write_pair(out: &mut Vec<u8>, key: Option<&[u8]>, value: Option<&[u8]>, rendering: Rendering) {
    out.push(b'{');
    write_key(out, key);
    out.push(b',');
    write_value(out, value, rendering);
    out.push(b'}');
}

/// Appends a JSON string.
pub fn write_json_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string into memory");
}

fn write_integer(out: &mut Vec<u8>, n: i64) {
    serde_json::to_writer(out, &n).expect("a number into memory");
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).expect("the length is base64's");
    assert_eq!(start + written, out.len(), "the length is base64's");
    out.push(b'"');
}

fn write_key(out: &mut Vec<u8>, key: Option<&[u8]>) {
    match key.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => out.extend_from_slice(b"\"key\":null"),
        Some(Ok(text)) => {
            out.extend_from_slice(b"\"key\":");
            write_json_string(out, text);
        }
        Some(Err(bytes)) => {
            out.extend_from_slice(b"\"key_base64\":");
            write_base64(out, bytes);
        }
    }
}

fn write_value(out: &mut Vec<u8>, value: Option<&[u8]>, rendering: Rendering) {
    let Some(bytes) = value else {
        out.extend_from_slice(b"\"value\":null");
        return;
    };
    match std::str::from_utf8(bytes) {
        Ok(json) if rendering.form == ValueForm::Auto && can_be_spliced(json, rendering.one_line) => {
            out.extend_from_slice(b"\"value\":");
            out.extend_from_slice(bytes);
        }
        Ok(text) if rendering.form != ValueForm::Base64 => {
            out.extend_from_slice(b"\"value_text\":");
            write_json_string(out, text);
        }
        _ => {
            out.extend_from_slice(b"\"value_base64\":");
            write_base64(out, bytes);
        }
    }
}

/// Whether the text is JSON whose bytes a reader finds again between the colon and what follows. Not so for `null`
/// (that is a tombstone's) and for JSON with white space around it (nobody could tell it from the answer's own).
fn can_be_spliced(text: &str, one_line: bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    // Nearly all that is not JSON is told by its first byte.
    matches!(first, b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f')
        && !matches!(last, b' ' | b'\t' | b'\n' | b'\r')
        && !(one_line && bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r')))
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
        && !is_deeper_than(bytes, JSON_DEPTH_MAX)
}

fn write_headers(out: &mut Vec<u8>, headers: &[Header]) {
    out.extend_from_slice(b",\"headers\":[");
    for (index, header) in headers.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
        write_json_string(out, &header.name);
        out.push(b',');
        match header.value.as_deref().map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
            None => out.extend_from_slice(b"null"),
            Some(Ok(text)) => write_json_string(out, text),
            Some(Err(bytes)) => {
                out.extend_from_slice(b"{\"base64\":");
                write_base64(out, bytes);
                out.push(b'}');
            }
        }
        out.push(b']');
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::parse_record;

    fn render(record: &Record, rendering: Rendering) -> String {
        render_of(None, record, rendering)
    }

    fn render_of(topic: Option<&TopicName>, record: &Record, rendering: Rendering) -> String {
        let mut out = Vec::new();
        let place = RecordOut {
            topic,
            partition: PartitionIndex(3),
            offset: Offset(7),
            timestamp: Timestamp(1_700_000_000_123),
            timestamp_type: TimestampType::CreateTime,
            record,
        };
        place.write_json(rendering, &mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    fn of_value(value: &[u8]) -> Record {
        Record { value: Some(Bytes::copy_from_slice(value)), ..Record::default() }
    }

    /// What the rendering holds of a produce record, word for word.
    fn as_produced(rendered: &str) -> String {
        let (_, rest) = rendered.split_once("\"timestamp_type\":\"create\",").expect("it is there");
        format!("{{{rest}")
    }

    #[test]
    fn a_record_has_the_documented_shape() {
        let headers = vec![
            Header { name: "trace".to_owned(), value: Some(Bytes::from_static(b"abc")) },
            Header { name: "n".to_owned(), value: None },
            Header { name: "b".to_owned(), value: Some(Bytes::from_static(b"\xff")) },
        ];
        let record = Record { key: Some(Bytes::from_static(b"user-7")), headers, ..of_value(b"{\"n\" : 1.10}") };
        assert_eq!(
            render(&record, Rendering::default()),
            "{\"partition\":3,\"offset\":7,\"timestamp\":1700000000123,\"timestamp_type\":\"create\",\"key\":\"user-7\",\
             \"value\":{\"n\" : 1.10},\"headers\":[[\"trace\",\"abc\"],[\"n\",null],[\"b\",{\"base64\":\"/w==\"}]]}"
        );
    }

    #[test]
    fn a_record_among_those_of_several_topics_begins_with_its_own() {
        let topic = TopicName::new("orders").expect("within the rule");
        let rendered = render_of(Some(&topic), &of_value(b"1"), Rendering::default());
        assert!(rendered.starts_with("{\"topic\":\"orders\",\"partition\":3,\"offset\":7,"), "{rendered}");
    }

    #[test]
    fn the_form_of_a_value_tells_what_it_is() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let line = Rendering { one_line: true, ..Rendering::default() };
        let text = Rendering { form: ValueForm::Text, one_line: false };
        let base64 = Rendering { form: ValueForm::Base64, one_line: false };
        for (value, rendering, member) in [
            (b"{}".as_slice(), Rendering::default(), "\"value\":{},"),
            (b"\"a\"", Rendering::default(), "\"value\":\"a\","),
            (b"true", Rendering::default(), "\"value\":true,"),
            (b"null", Rendering::default(), "\"value_text\":\"null\","),
            (b" null", Rendering::default(), "\"value_text\":\" null\","),
            (b"{} ", Rendering::default(), "\"value_text\":\"{} \","),
            (b"", Rendering::default(), "\"value_text\":\"\","),
            (b"plain", Rendering::default(), "\"value_text\":\"plain\","),
            (b"{}{}", Rendering::default(), "\"value_text\":\"{}{}\","),
            (b"01", Rendering::default(), "\"value_text\":\"01\","),
            (b"\xff\x00", Rendering::default(), "\"value_base64\":\"/wA=\","),
            (b"\"\xff\"", Rendering::default(), "\"value_base64\":\"Iv8i\","),
            (b"[\n1]", Rendering::default(), "\"value\":[\n1],"),
            (b"[\n1]", line, "\"value_text\":\"[\\n1]\","),
            (b"[\r1]", line, "\"value_text\":\"[\\r1]\","),
            (b"{}", text, "\"value_text\":\"{}\","),
            (b"\xff", text, "\"value_base64\":\"/w==\","),
            (b"{}", base64, "\"value_base64\":\"e30=\","),
            (deep(128).as_bytes(), Rendering::default(), &format!("\"value\":{},", deep(128))),
            (deep(129).as_bytes(), Rendering::default(), &format!("\"value_text\":\"{}\",", deep(129))),
        ] {
            let rendered = render(&of_value(value), rendering);
            assert!(rendered.contains(&format!("\"key\":null,{member}")), "{rendered} has no {member}");
        }
        for form in [ValueForm::Auto, ValueForm::Text, ValueForm::Base64] {
            let tombstone = render(&Record::default(), Rendering { form, one_line: false });
            assert!(tombstone.contains("\"value\":null,"), "{tombstone}");
        }
    }

    fn any_bytes() -> impl Strategy<Value = Option<Bytes>> {
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from),
            any::<String>().prop_map(Bytes::from),
            "[ \n]?(null|[0-9]{1,3}|\\{\"a\":[ \n]?1\\}|\"[a-z\\\\]{0,3}\")[ \n\r]?".prop_map(Bytes::from),
        ];
        prop::option::of(bytes)
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let header = (any::<String>(), any_bytes()).prop_map(|(name, value)| Header { name, value });
        (any_bytes(), any_bytes(), prop::collection::vec(header, 0..3)).prop_map(|(key, value, headers)| Record {
            key,
            value,
            headers,
        })
    }

    proptest! {
        #[test]
        fn what_is_read_can_be_produced_again_and_stores_the_same_bytes(
            record in any_record(),
            form in prop_oneof![Just(ValueForm::Auto), Just(ValueForm::Text), Just(ValueForm::Base64)],
            one_line: bool,
        ) {
            let rendered = render(&record, Rendering { form, one_line });
            serde_json::from_str::<Value>(&rendered).expect("it is JSON");
            prop_assert!(!one_line || !rendered.contains(['\n', '\r']));
            let again = parse_record(&Bytes::from(as_produced(&rendered))).expect("it can be produced");
            prop_assert_eq!(again.record, record);
        }
    }
}
