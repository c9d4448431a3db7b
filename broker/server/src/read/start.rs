//! Where a read begins: `offset=` of a partition, `from=` of a topic.

use levada_engine::{From, TopicStart};
use levada_model::{Offset, Timestamp};

use crate::cursor::decode_topic;
use crate::extract::json_integer;

/// What `offset=` takes, in words.
pub(super) const OFFSET_RULE: &str =
    "an offset, earliest, latest, time:MS (milliseconds since 1970) or tail:N (N offsets before the end)";

/// Reads `offset=`.
pub(super) fn partition_start(text: &str) -> Result<From, &'static str> {
    match json_integer(text) {
        Some(offset) => Ok(From::Offset(Offset(offset))),
        None => word(text).ok_or(OFFSET_RULE),
    }
}

/// Reads `from=` or `Last-Event-ID`; none where it is neither a word nor a cursor of ours.
pub(super) fn topic_start(text: &str) -> Option<TopicStart> {
    word(text).map(TopicStart::From).or_else(|| decode_topic(text).map(TopicStart::Positions))
}

pub(crate) fn word(text: &str) -> Option<From> {
    match text.split_once(':') {
        None if text == "earliest" => Some(From::Earliest),
        None if text == "latest" => Some(From::Latest),
        Some(("time", ms)) => json_integer(ms).map(|ms| From::Time(Timestamp(ms.cast_signed()))),
        Some(("tail", count)) => json_integer(count).map(From::Tail),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use levada_model::limits::JSON_INTEGER_MAX;

    use super::*;

    #[test]
    fn every_form_of_a_start_is_read() {
        for (text, start) in [
            ("0", From::Offset(Offset(0))),
            ("9007199254740991", From::Offset(Offset(JSON_INTEGER_MAX))),
            ("earliest", From::Earliest),
            ("latest", From::Latest),
            ("time:1700000000123", From::Time(Timestamp(1_700_000_000_123))),
            ("tail:10", From::Tail(10)),
        ] {
            assert_eq!(partition_start(text), Ok(start));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-1",
            "+1",
            "1.0",
            "9007199254740992",
            "99999999999999999999",
            "Latest",
            "time:",
            "time:-1",
            "tail:x",
            "tail",
            "now",
        ] {
            assert_eq!(partition_start(text), Err(OFFSET_RULE), "{text}");
            assert!(topic_start(text).is_none(), "{text}");
        }
        assert!(topic_start("7").is_none(), "a number is no place in a whole topic");
    }
}
