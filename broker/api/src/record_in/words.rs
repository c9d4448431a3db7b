//! The words of a record object: text that shares the body's bytes, base64, whole numbers.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use levada_model::limits::JSON_INTEGER_MAX;
use levada_model::{PartitionIndex, Timestamp};
use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A string, borrowed from the body unless it has escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn share(self, body: &Bytes) -> Bytes {
        match self.0 {
            Cow::Borrowed(text) => body.slice_ref(text.as_bytes()),
            Cow::Owned(text) => Bytes::from(text),
        }
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        de.deserialize_str(TextVisitor)
    }
}

/// Bytes that came as base64.
pub(super) struct Decoded(pub(super) Bytes);

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        let Text(text) = Text::deserialize(de)?;
        let bytes = STANDARD
            .decode(text.as_bytes())
            .map_err(|e| D::Error::custom(format_args!("not base64 (RFC 4648 section 4, with padding): {e}")))?;
        Ok(Self(Bytes::from(bytes)))
    }
}

/// A whole number from 0 to 2^53 - 1.
pub(super) struct Integer(u64);

impl Integer {
    pub(super) fn timestamp(self) -> Timestamp {
        Timestamp(self.0.cast_signed())
    }

    pub(super) fn partition(self) -> Result<PartitionIndex, String> {
        u32::try_from(self.0).map(PartitionIndex).map_err(|_| format!("the topic has no partition {}", self.0))
    }
}

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        struct IntegerVisitor;
        impl Visitor<'_> for IntegerVisitor {
            type Value = Integer;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer from 0 to 2^53 - 1")
            }
            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Integer, E> {
                if n > JSON_INTEGER_MAX {
                    return Err(E::invalid_value(Unexpected::Unsigned(n), &self));
                }
                Ok(Integer(n))
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Integer, E> {
                Err(E::invalid_value(Unexpected::Signed(n), &self))
            }
            fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<Integer, E> {
                Err(E::invalid_value(Unexpected::Float(n), &self))
            }
        }
        de.deserialize_u64(IntegerVisitor)
    }
}
