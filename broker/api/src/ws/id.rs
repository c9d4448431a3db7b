//! What a client calls its subscriptions and requests.

use std::fmt;

use levada_model::limits::{JSON_INTEGER_MAX, WS_FRAME_ID_CHARS_MAX};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A frame's `id`, chosen by the client and told back as it came: a short text or an integer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum FrameId {
    /// An integer from 0 to 2^53 - 1.
    Number(u64),
    /// A text of 1 to 64 characters.
    Text(Box<str>),
}

impl<'de> Deserialize<'de> for FrameId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = FrameId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "a text of 1 to {WS_FRAME_ID_CHARS_MAX} characters or an integer from 0 to {JSON_INTEGER_MAX}"
                )
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<FrameId, E> {
                let refused = || E::invalid_value(Unexpected::Unsigned(n), &self);
                if n > JSON_INTEGER_MAX { Err(refused()) } else { Ok(FrameId::Number(n)) }
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<FrameId, E> {
                // A character has at most four bytes.
                let is_short = text.len() <= 4 * WS_FRAME_ID_CHARS_MAX && text.chars().count() <= WS_FRAME_ID_CHARS_MAX;
                if text.is_empty() || !is_short {
                    return Err(E::invalid_length(text.len(), &self));
                }
                Ok(FrameId::Text(text.into()))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}
