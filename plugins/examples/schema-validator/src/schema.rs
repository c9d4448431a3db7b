//! A part of JSON Schema (2020-12): `type`, `enum`, `required`, `properties`, `additionalProperties` as true or false, `items`,
//! and bounds. Titles and descriptions are allowed and say nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use thiserror::Error;

/// What a value must be.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Schema {
    #[serde(default, rename = "type")]
    kinds: Option<Kinds>,
    #[serde(default, rename = "enum")]
    values: Option<Vec<Value>>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default)]
    properties: BTreeMap<String, Schema>,
    #[serde(default = "yes")]
    additional_properties: bool,
    #[serde(default)]
    items: Option<Box<Schema>>,
    #[serde(default)]
    minimum: Option<f64>,
    #[serde(default)]
    maximum: Option<f64>,
    #[serde(default)]
    min_length: Option<usize>,
    #[serde(default)]
    max_length: Option<usize>,
    #[serde(default)]
    min_items: Option<usize>,
    #[serde(default)]
    max_items: Option<usize>,
    #[serde(default, rename = "$schema")]
    _dialect: IgnoredAny,
    #[serde(default, rename = "title")]
    _title: IgnoredAny,
    #[serde(default, rename = "description")]
    _description: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Kinds {
    One(Kind),
    Several(Vec<Kind>),
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

/// What is wrong, and where.
#[derive(Debug, Error)]
#[error("{} {what}", if place.is_empty() { "the value" } else { place.as_str() })]
pub(crate) struct Wrong {
    /// A JSON pointer.
    place: String,
    what: String,
}

impl Schema {
    /// Checks a value; the first thing that is wrong ends it.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Wrong> {
        self.check_kind(value)?;
        match value {
            Value::Number(number) => self.check_number(number),
            Value::String(text) => within("a length of", text.chars().count(), self.min_length, self.max_length, ""),
            Value::Array(items) => self.check_items(items),
            Value::Object(members) => self.check_members(members),
            Value::Null | Value::Bool(_) => Ok(()),
        }
    }

    fn check_kind(&self, value: &Value) -> Result<(), Wrong> {
        let kinds = match &self.kinds {
            None => &[][..],
            Some(Kinds::One(kind)) => std::slice::from_ref(kind),
            Some(Kinds::Several(kinds)) => kinds,
        };
        let own = Kind::of(value);
        let fits = |kind: &Kind| *kind == own || (*kind == Kind::Number && own == Kind::Integer);
        if self.kinds.is_some() && !kinds.iter().any(fits) {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            return Err(wrong(format!("is {}, not {}", own.with_article(), names.join(" or "))));
        }
        match &self.values {
            Some(values) if !values.contains(value) => Err(wrong("is none of the values that it may be".to_owned())),
            _ => Ok(()),
        }
    }

    fn check_number(&self, number: &serde_json::Number) -> Result<(), Wrong> {
        let value = number.as_f64().unwrap_or(f64::NAN);
        match (self.minimum, self.maximum) {
            (Some(least), _) if value < least => Err(wrong(format!("is {number}, below {least}"))),
            (_, Some(most)) if value > most => Err(wrong(format!("is {number}, above {most}"))),
            _ => Ok(()),
        }
    }

    fn check_items(&self, items: &[Value]) -> Result<(), Wrong> {
        within("", items.len(), self.min_items, self.max_items, " items")?;
        let Some(schema) = &self.items else { return Ok(()) };
        for (place, item) in items.iter().enumerate() {
            schema.check(item).map_err(|wrong| wrong.inside(&place.to_string()))?;
        }
        Ok(())
    }

    fn check_members(&self, members: &serde_json::Map<String, Value>) -> Result<(), Wrong> {
        if let Some(name) = self.required.iter().find(|name| !members.contains_key(*name)) {
            return Err(wrong(format!("lacks {name:?}")));
        }
        for (name, value) in members {
            match self.properties.get(name) {
                Some(schema) => schema.check(value).map_err(|wrong| wrong.inside(name))?,
                None if self.additional_properties => {}
                None => return Err(wrong("is not known".to_owned()).inside(name)),
            }
        }
        Ok(())
    }
}

impl Kind {
    /// JSON Schema's rule: 2.0 is an integer.
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.as_f64().is_none_or(|value| value.fract() != 0.0) => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    fn with_article(self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Integer | Self::Array | Self::Object => format!("an {}", self.name()),
            _ => format!("a {}", self.name()),
        }
    }
}

impl Wrong {
    /// The same, seen from one level further out.
    fn inside(mut self, name: &str) -> Self {
        let token = name.replace('~', "~0").replace('/', "~1");
        self.place.insert_str(0, &format!("/{token}"));
        self
    }
}

fn wrong(what: String) -> Wrong {
    Wrong { place: String::new(), what }
}

fn within(measure: &str, size: usize, least: Option<usize>, most: Option<usize>, unit: &str) -> Result<(), Wrong> {
    let gap = if measure.is_empty() { "" } else { " " };
    match (least, most) {
        (Some(least), _) if size < least => Err(wrong(format!("has {measure}{gap}{size}{unit}, below {least}"))),
        (_, Some(most)) if size > most => Err(wrong(format!("has {measure}{gap}{size}{unit}, above {most}"))),
        _ => Ok(()),
    }
}

fn yes() -> bool {
    true
}
