//! Strict reading of our own JSON objects: what is unknown, repeated or of another shape is refused with a JSON pointer
//! to its place. Not here: records, whose values are never built as trees.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use levada_model::limits::JSON_INTEGER_MAX;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;

use crate::{ErrorCode, Problem, echo};

/// Reads a whole body as one of our objects.
///
/// # Errors
/// 400 `invalid-json` where it is no JSON, 422 `invalid-field` with the pointer where it is another.
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(ErrorCode::InvalidJson, "the body is empty; a JSON object is needed"));
    }
    let error = match serde_json::from_slice::<Object<T>>(body) {
        Ok(Object(read)) => return Ok(read),
        Err(error) => error,
    };
    if !error.is_data() && !is_of_another_shape(body, &error) {
        return Err(Problem::new(ErrorCode::InvalidJson, format!("the body is not JSON: {error}")));
    }
    // Only now is it worth following the path to the place.
    let mut reader = serde_json::Deserializer::from_slice(body);
    let Err(error) = serde_path_to_error::deserialize::<_, Object<T>>(&mut reader) else {
        return Err(Problem::new(ErrorCode::InvalidJson, error.to_string()));
    };
    let mut pointer = pointer(error.path());
    let detail = in_words(&error.into_inner());
    // serde tells a repeat after it has left the field.
    if let Some(name) = detail.strip_prefix("duplicate field `").and_then(|rest| rest.strip_suffix('`')) {
        pointer = format!("{pointer}/{}", pointer_token(&echo(name)));
    }
    Err(Problem::new(ErrorCode::InvalidField, format!("{}: {detail}", shown(&pointer))).at(pointer, detail))
}

/// How serde_json words a fault of syntax, and one of shape in the place of an enum.
const EXPECTED_VALUE: &str = "expected value";

/// Whether what serde_json calls a fault of syntax is none: an enum of another shape, or a number that no double holds.
fn is_of_another_shape(body: &[u8], error: &serde_json::Error) -> bool {
    let detail = without_place(&error.to_string());
    let is_json = || str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    matches!(&*detail, EXPECTED_VALUE | "number out of range") && is_json()
}

/// Reads one member of an object whose JSON was checked before.
///
/// # Errors
/// 422 `invalid-field` with the pointer to the place within the object.
pub(crate) fn member<'de, T: Deserialize<'de>>(name: &str, json: &'de str) -> Result<T, Problem> {
    if let Ok(read) = serde_json::from_str(json) {
        return Ok(read);
    }
    let mut reader = serde_json::Deserializer::from_str(json);
    let error = serde_path_to_error::deserialize::<_, T>(&mut reader).err().expect("it was refused just now");
    let pointer = format!("/{name}{}", pointer(error.path()));
    let detail = in_words(&error.into_inner());
    Err(Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}")).at(pointer, detail))
}

/// Escapes a name for use in a JSON pointer (RFC 6901).
#[must_use]
pub fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn shown(pointer: &str) -> &str {
    if pointer.is_empty() { "the body" } else { pointer }
}

fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut text = String::new();
    for segment in path {
        let token = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } | Segment::Enum { variant: key } => pointer_token(&echo(key)),
            Segment::Unknown => continue,
        };
        text.push('/');
        text.push_str(&token);
    }
    text
}

/// What is wrong at a place of a body that is JSON.
fn in_words(error: &serde_json::Error) -> String {
    match without_place(&error.to_string()) {
        detail if detail == EXPECTED_VALUE => "a value of another shape is needed here".to_owned(),
        detail => detail,
    }
}

/// Takes off serde_json's " at line 1 column 20": the pointer says it better.
pub(crate) fn without_place(text: &str) -> String {
    text.rfind(" at line ").map_or(text, |at| &text[..at]).to_owned()
}

/// An object, and not the array of fields that serde's derive would take as well.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Only(PhantomData))
    }
}

/// A list of objects.
pub(crate) fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|Object(item)| item).collect())
}

/// An integer as [`whole`] takes it, for where a type is wanted.
pub(crate) struct Whole<T>(pub(crate) T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        whole(deserializer).map(Self)
    }
}

/// An integer from 0 to the largest of `T`, and below 2^53.
pub(crate) fn whole<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct WholeVisitor<T>(PhantomData<T>);
    impl<T: TryFrom<u64>> Visitor<'_> for WholeVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let bits = u32::try_from(8 * size_of::<T>()).expect("integers are small");
            let most = JSON_INTEGER_MAX.min(u64::MAX >> (64 - bits));
            write!(f, "an integer from 0 to {most}")
        }
        fn visit_u64<E: Error>(self, n: u64) -> Result<T, E> {
            let refused = || E::invalid_value(serde::de::Unexpected::Unsigned(n), &self);
            if n > JSON_INTEGER_MAX { Err(refused()) } else { T::try_from(n).map_err(|_| refused()) }
        }
    }
    deserializer.deserialize_u64(WholeVisitor(PhantomData))
}

/// The same where the field may be absent; null is refused.
pub(crate) fn whole_if_there<'de, T: TryFrom<u64>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    whole(deserializer).map(Some)
}

/// An integer within bounds.
pub(crate) fn whole_within<'de, D: Deserializer<'de>>(
    deserializer: D,
    bounds: RangeInclusive<u64>,
) -> Result<u64, D::Error> {
    struct Within(RangeInclusive<u64>);
    impl Visitor<'_> for Within {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an integer from {} to {}", self.0.start(), self.0.end())
        }
        fn visit_u64<E: Error>(self, n: u64) -> Result<u64, E> {
            if self.0.contains(&n) { Ok(n) } else { Err(E::invalid_value(serde::de::Unexpected::Unsigned(n), &self)) }
        }
    }
    deserializer.deserialize_u64(Within(bounds))
}

/// A map whose names may not repeat.
pub(crate) fn unique_names<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Unique<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Unique<T> {
        type Value = BTreeMap<String, T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut read = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                if read.contains_key(&name) {
                    return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
                }
                let value = map.next_value()?;
                read.insert(name, value);
            }
            Ok(read)
        }
    }
    deserializer.deserialize_map(Unique(PhantomData))
}
