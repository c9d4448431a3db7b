//! Where the values lie that paths lead to, in a JSON text: every one of them, also where a name comes twice.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The bytes of all values that `paths` lead to, in order; what lies within another of them is left out.
///
/// # Errors
/// When `json` is not JSON.
pub(crate) fn spans(json: &[u8], paths: &[&[String]]) -> Result<Vec<Range<usize>>, serde_json::Error> {
    let whole: &RawValue = serde_json::from_slice(json)?;
    let mut search = Search { start: json.as_ptr().addr(), found: Vec::new() };
    search.look(whole, paths)?;
    Ok(search.found)
}

struct Search {
    /// The address of the text's first byte.
    start: usize,
    found: Vec<Range<usize>>,
}

impl Search {
    fn look(&mut self, value: &RawValue, paths: &[&[String]]) -> Result<(), serde_json::Error> {
        if paths.iter().any(|path| path.is_empty()) {
            let start = value.get().as_ptr().addr() - self.start;
            self.found.push(start..start + value.get().len());
        } else if !paths.is_empty() && value.get().starts_with(['{', '[']) {
            Inside { search: self, paths }.deserialize(&mut serde_json::Deserializer::from_str(value.get()))?;
        }
        Ok(())
    }
}

/// Looks at the members or items of a value.
struct Inside<'s, 'p> {
    search: &'s mut Search,
    paths: &'p [&'p [String]],
}

impl<'p> Inside<'_, 'p> {
    fn member(&mut self, name: &str, value: &RawValue) -> Result<(), serde_json::Error> {
        let follow = |path: &&'p [String]| {
            let (first, rest) = path.split_first().expect("paths that end here were taken before");
            (first == "*" || first == name).then_some(rest)
        };
        let paths: Vec<_> = self.paths.iter().filter_map(follow).collect();
        self.search.look(value, &paths)
    }
}

impl<'de> DeserializeSeed<'de> for Inside<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Inside<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        while let Some((name, value)) = members.next_entry::<String, &RawValue>()? {
            self.member(&name, value).map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut place = 0_usize;
        while let Some(value) = items.next_element::<&RawValue>()? {
            self.member(&place.to_string(), value).map_err(serde::de::Error::custom)?;
            place += 1;
        }
        Ok(())
    }
}
