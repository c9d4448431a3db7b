//! Makes a record of one line: its value, and its key by a separator or a JSON pointer. JSON is never rewritten.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;

use bytes::Bytes;
use clap::ValueEnum;
use levada_client::{NewRecord, NewValue};
use serde_json::value::RawValue;

/// What a line's value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineFormat {
    /// A JSON text, stored as it is; blank lines are skipped.
    #[default]
    Json,
    /// Any bytes, stored as they are.
    Text,
}

/// How lines become records.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineReader {
    pub(crate) format: LineFormat,
    pub(crate) key_separator: Option<Bytes>,
    pub(crate) key_pointer: Option<String>,
    pub(crate) partition: Option<u32>,
    pub(crate) headers: Vec<(String, Option<Bytes>)>,
}

impl LineReader {
    /// The record of a line, with or without its line break; none for a line that is skipped.
    ///
    /// # Errors
    /// What is wrong with the line, in words.
    pub(crate) fn record(&self, line: &[u8]) -> Result<Option<NewRecord>, String> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if self.format == LineFormat::Json && line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let (key, value) = match &self.key_separator {
            None => (None, line),
            Some(separator) => {
                let (key, value) = split_once(line, separator)
                    .ok_or_else(|| format!("the separator {:?} is not there", String::from_utf8_lossy(separator)))?;
                (Some(Bytes::copy_from_slice(key)), value)
            }
        };
        let value = self.value(value)?;
        let key = match (&self.key_pointer, &value) {
            (None, _) => key,
            (Some(pointer), NewValue::Json(json)) => Some(find(json, pointer)?),
            (Some(pointer), NewValue::Text(text)) => {
                let json: &RawValue = serde_json::from_str(text)
                    .map_err(|error| format!("the value is not JSON, so {pointer} finds no key: {error}"))?;
                Some(find(json, pointer)?)
            }
            (Some(_), _) => return Err("the value is not UTF-8, so a JSON pointer finds no key".to_owned()),
        };
        let (headers, partition) = (self.headers.clone(), self.partition);
        Ok(Some(NewRecord { key, value, headers, timestamp: None, partition }))
    }

    fn value(&self, value: &[u8]) -> Result<NewValue, String> {
        let text = std::str::from_utf8(value);
        match (self.format, text) {
            (LineFormat::Text, Ok(text)) => Ok(NewValue::Text(text.to_owned())),
            (LineFormat::Text, Err(_)) => Ok(NewValue::Bytes(Bytes::copy_from_slice(value))),
            (LineFormat::Json, Err(error)) => Err(format!("not UTF-8 ({error}); `--format text` takes any bytes")),
            (LineFormat::Json, Ok(text)) => match RawValue::from_string(text.to_owned()) {
                Ok(json) => Ok(NewValue::Json(json)),
                Err(error) => Err(format!("not JSON ({error}); `--format text` takes any line")),
            },
        }
    }
}

/// A separator as the command line writes it: `\t` is a tab.
pub(crate) fn separator(text: &str) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(text.replace("\\t", "\t")))
}

fn split_once<'a>(line: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    if separator.is_empty() {
        return None;
    }
    let at = line.windows(separator.len()).position(|window| window == separator)?;
    Some((&line[..at], &line[at + separator.len()..]))
}

/// The key at a JSON pointer (RFC 6901): a string's text, other JSON as it stands there.
fn find(json: &RawValue, pointer: &str) -> Result<Bytes, String> {
    let nothing = || format!("there is nothing at {pointer}");
    let mut here = json;
    let path = match pointer {
        "" => None,
        _ => Some(
            pointer.strip_prefix('/').ok_or_else(|| format!("{pointer:?} is no JSON pointer; write it like /id"))?,
        ),
    };
    for token in path.iter().flat_map(|path| path.split('/')) {
        let token = token.replace("~1", "/").replace("~0", "~");
        here = match here.get().as_bytes().first() {
            Some(b'{') => {
                let members: HashMap<Cow<'_, str>, &RawValue> =
                    serde_json::from_str(here.get()).map_err(|error| error.to_string())?;
                members.get(token.as_str()).copied().ok_or_else(nothing)?
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(here.get()).map_err(|error| error.to_string())?;
                token.parse::<usize>().ok().and_then(|index| items.get(index).copied()).ok_or_else(nothing)?
            }
            _ => return Err(nothing()),
        };
    }
    match serde_json::from_str::<String>(here.get()) {
        Ok(text) => Ok(Bytes::from(text)),
        Err(_) => Ok(Bytes::copy_from_slice(here.get().as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::{LineFormat, LineReader};
    use bytes::Bytes;
    use levada_client::NewValue;

    fn key_at(pointer: &str, line: &str) -> Result<String, String> {
        let reader = LineReader { key_pointer: Some(pointer.to_owned()), ..LineReader::default() };
        let record = reader.record(line.as_bytes())?.expect("not a blank line");
        Ok(String::from_utf8(record.key.expect("there is a key").to_vec()).expect("it is text"))
    }

    #[test]
    fn a_pointer_finds_text_and_leaves_numbers_digit_for_digit() {
        let line = r#"{"id":"a\u00fc","n":1.00e2,"deep":[{"x/y~z":{"k": [1, 2]}}]}"#;
        assert_eq!(key_at("/id", line).as_deref(), Ok("aü"));
        assert_eq!(key_at("/n", line).as_deref(), Ok("1.00e2"));
        assert_eq!(key_at("/deep/0/x~1y~0z/k", line).as_deref(), Ok("[1, 2]"));
        assert_eq!(key_at("", "7").as_deref(), Ok("7"));
        assert_eq!(key_at("/deep/1", line), Err("there is nothing at /deep/1".to_owned()));
        assert!(key_at("id", line).is_err());
    }

    #[test]
    fn a_separator_cuts_the_key_off_at_its_first_place() {
        let reader = LineReader { key_separator: Some(Bytes::from_static(b"::")), ..LineReader::default() };
        let record = reader.record(b"k::\"a::b\"\n").expect("a good line").expect("not blank");
        assert_eq!(record.key.as_deref(), Some(b"k".as_slice()));
        assert!(matches!(record.value, NewValue::Json(json) if json.get() == "\"a::b\""));
        assert!(reader.record(b"\"no separator\"").is_err());
    }

    #[test]
    fn text_lines_are_kept_byte_for_byte_and_json_lines_must_be_json() {
        let text = LineReader { format: LineFormat::Text, ..LineReader::default() };
        let value = |line: &[u8]| text.record(line).expect("any line").expect("none is skipped").value;
        assert!(matches!(value(b" {\r\n"), NewValue::Text(text) if text == " {\r"));
        assert!(matches!(value(b"\n"), NewValue::Text(text) if text.is_empty()));
        assert!(matches!(value(b"\xff\n"), NewValue::Bytes(bytes) if bytes.as_ref() == b"\xff"));
        let json = LineReader::default();
        assert!(json.record(b"  \n").expect("a blank line").is_none());
        assert!(json.record(b"{\n").expect_err("not JSON").contains("not JSON"));
        assert!(json.record(b"\xff\n").expect_err("not UTF-8").contains("not UTF-8"));
    }
}
