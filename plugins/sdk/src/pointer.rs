//! Finds one value in a JSON text, without building the values around it.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use thiserror::Error;

/// A place in a JSON text, as RFC 6901 writes it: `/user/id`, `/items/0`; the empty text is the whole value. Configs name
/// fields with it.
///
/// ```
/// use levada_plugin::Pointer;
///
/// let id = Pointer::new("/user/id")?;
/// assert_eq!(id.find(br#"{"user":{"name":"Ada","id":7}}"#)?, Some(7));
/// assert_eq!(id.find::<u64>(br#"{"user":"Ada"}"#)?, None);
/// assert!(id.find::<u64>(b"no JSON").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Pointer {
    tokens: Vec<String>,
}

/// A text that is no pointer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no JSON pointer: it begins with \"/\" and has \"~0\" for \"~\" and \"~1\" for \"/\"")]
pub struct PointerError(String);

impl Pointer {
    /// Reads a pointer.
    ///
    /// # Errors
    /// When the text is no pointer.
    pub fn new(text: &str) -> Result<Self, PointerError> {
        let refused = || PointerError(text.to_owned());
        if text.is_empty() {
            return Ok(Self::default());
        }
        let tokens = text.strip_prefix('/').ok_or_else(refused)?.split('/');
        let tokens: Option<Vec<String>> = tokens.map(unescaped).collect();
        Ok(Self { tokens: tokens.ok_or_else(refused)? })
    }

    /// The names and places on the way, unescaped.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// The value there, or none. Of several members with one name it is the last. As `T` may serve a number, a text, any
    /// type of your own, or `&RawValue` of `serde_json` for the JSON text as it stands.
    ///
    /// # Errors
    /// When `json` is not JSON, or the value there is not a `T`.
    pub fn find<'a, T: Deserialize<'a>>(&self, json: &'a [u8]) -> Result<Option<T>, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let found = Seek { tokens: &self.tokens, found: PhantomData }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(found)
    }
}

impl TryFrom<String> for Pointer {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Self, PointerError> {
        Self::new(&text)
    }
}

fn unescaped(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escaped, rest) = part.split_at_checked(1)?;
        text.push(match escaped {
            "0" => '~',
            "1" => '/',
            _ => return None,
        });
        text.push_str(rest);
    }
    Some(text)
}

/// Goes down along the tokens.
struct Seek<'p, T> {
    tokens: &'p [String],
    found: PhantomData<T>,
}

/// Whether the name of a member is this one.
struct Named<'p>(&'p str);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Seek<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        if self.tokens.is_empty() { T::deserialize(deserializer).map(Some) } else { deserializer.deserialize_any(self) }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Seek<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        while let Some(is_next) = members.next_key_seed(Named(&self.tokens[0]))? {
            if is_next {
                found = members.next_value_seed(Seek { tokens: &self.tokens[1..], found: PhantomData })?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<T>, A::Error> {
        let digits = Some(&self.tokens[0]).filter(|token| *token == "0" || !token.starts_with(['0', '+']));
        if let Some(place) = digits.and_then(|token| token.parse::<usize>().ok()) {
            for _ in 0..place {
                if items.next_element::<IgnoredAny>()?.is_none() {
                    return Ok(None);
                }
            }
            let found = items.next_element_seed(Seek { tokens: &self.tokens[1..], found: PhantomData })?;
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(found.flatten());
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }
}

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::Pointer;

    const DOCUMENT: &str = r#"{"a":{"b":[10,{"c":"x"},1.50]},"":0,"m/n":1,"o~p":2,"twice":1,"twice":2,"none":null,
        "caf\u00e9":3,"big":12345678901234567890123}"#;

    #[test]
    fn pointers_find_what_serde_json_finds() {
        let whole: Value = serde_json::from_str(DOCUMENT).expect("JSON");
        for pointer in [
            "", "/a", "/a/b", "/a/b/0", "/a/b/1/c", "/a/b/2", "/a/b/3", "/a/b/01", "/a/b/+1", "/a/b/-", "/a/b/x",
            "/a/x", "/a/b/0/x", "/", "/m~1n", "/o~0p", "/twice", "/none", "/none/x", "/café", "/~01",
        ] {
            let found: Option<Value> =
                Pointer::new(pointer).expect("a pointer").find(DOCUMENT.as_bytes()).expect("JSON");
            assert_eq!(found.as_ref(), whole.pointer(pointer), "{pointer}");
        }
    }

    #[test]
    fn a_value_can_be_had_as_it_stands() {
        let raw = |pointer: &str| {
            let found: Option<&RawValue> =
                Pointer::new(pointer).expect("a pointer").find(DOCUMENT.as_bytes()).expect("JSON");
            found.expect("there").get()
        };
        assert_eq!(raw("/a/b/2"), "1.50");
        assert_eq!(raw("/big"), "12345678901234567890123");
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for text in ["a", "a/b", "/a~", "/a~2", "/~é"] {
            assert!(Pointer::new(text).expect_err("refused").to_string().contains(text));
        }
        assert!(serde_json::from_str::<Pointer>(r#""a""#).is_err());
        assert_eq!(serde_json::from_str::<Pointer>(r#""/a/b~1c""#).expect("a pointer").tokens(), ["a", "b/c"]);
    }

    #[test]
    fn what_follows_the_value_must_be_json_too() {
        let pointer = Pointer::new("/a").expect("a pointer");
        assert!(pointer.find::<u8>(br#"{"a":1,"b":}"#).is_err());
        assert!(pointer.find::<u8>(br#"{"a":1} {"#).is_err());
        assert!(pointer.find::<u8>(br#"{"a":"text"}"#).is_err(), "not a number");
        assert!(pointer.find::<u8>(b"").is_err());
    }
}
