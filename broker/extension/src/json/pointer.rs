//! JSON pointers (RFC 6901) over JSON that is not built up in memory.

use std::fmt;
use std::str::FromStr;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

/// A place in a JSON document; the empty pointer is the whole of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonPointer {
    tokens: Vec<Token>,
}

/// Why a pointer was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a JSON pointer is empty or begins with /, and ~ is followed by 0 or 1 (RFC 6901); {pointer:?} is not")]
pub struct JsonPointerError {
    pointer: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: String,
    /// The place in an array that the name stands for, if it is one.
    index: Option<usize>,
}

impl JsonPointer {
    /// The text of what the pointer names in `document`; of members with one name the last counts. None where nothing is
    /// named so, and where `document` is not JSON.
    #[must_use]
    pub fn find<'a>(&self, document: &'a [u8]) -> Option<&'a str> {
        let mut deserializer = serde_json::Deserializer::from_slice(document);
        let found = Below(&self.tokens).deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        found.map(RawValue::get)
    }
}

impl FromStr for JsonPointer {
    type Err = JsonPointerError;

    fn from_str(pointer: &str) -> Result<Self, Self::Err> {
        if pointer.is_empty() {
            return Ok(Self { tokens: Vec::new() });
        }
        let wrong = || JsonPointerError { pointer: pointer.to_owned() };
        let tokens = pointer.strip_prefix('/').ok_or_else(wrong)?.split('/').map(|token| {
            if !token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1'])) {
                return Err(wrong());
            }
            let name = token.replace("~1", "/").replace("~0", "~");
            let canonical = name == "0" || !name.starts_with(['0', '+']);
            let index = name.parse().ok().filter(|_| canonical);
            Ok(Token { name, index })
        });
        Ok(Self { tokens: tokens.collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens.iter().try_for_each(|token| write!(f, "/{}", token.name.replace('~', "~0").replace('/', "~1")))
    }
}

impl TryFrom<String> for JsonPointer {
    type Error = JsonPointerError;

    fn try_from(pointer: String) -> Result<Self, JsonPointerError> {
        pointer.parse()
    }
}

impl From<JsonPointer> for String {
    fn from(pointer: JsonPointer) -> Self {
        pointer.to_string()
    }
}

/// Goes down along the tokens, and over everything else without keeping it.
struct Below<'p>(&'p [Token]);

impl<'de> DeserializeSeed<'de> for Below<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => <&RawValue>::deserialize(deserializer).map(Some),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Below<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (token, rest) = self.0.split_first().expect("without tokens nothing is visited");
        let mut found = None;
        while let Some(wanted) = map.next_key_seed(Is(&token.name))? {
            if wanted {
                found = map.next_value_seed(Below(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let (token, rest) = self.0.split_first().expect("without tokens nothing is visited");
        let mut before = token.index.unwrap_or(usize::MAX);
        while before > 0 {
            if sequence.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
            before -= 1;
        }
        let found = sequence.next_element_seed(Below(rest))?.flatten();
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Whether a member has this name.
struct Is<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}
