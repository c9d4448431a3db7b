//! Keeps records by one field of their JSON value: that it is there, equals something, lies within bounds, or contains a
//! text. What is not JSON is dropped.

use levada_plugin::{Fields, Filter, Module, Pointer, Record};
use serde::Deserialize;
use serde_json::Value;

/// The filter, and its config: all that is said must hold.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonFilter {
    /// Where the field is.
    field: Pointer,
    /// Whether it is there; null counts as there.
    #[serde(default)]
    exists: Option<bool>,
    /// One of these values. Numbers are equal as the JSON that they are: 1 is not 1.0.
    #[serde(default)]
    one_of: Option<Vec<Value>>,
    /// A number from here on.
    #[serde(default)]
    at_least: Option<f64>,
    /// A number up to here.
    #[serde(default)]
    at_most: Option<f64>,
    /// A text with this in it.
    #[serde(default)]
    contains: Option<String>,
}

impl Module for JsonFilter {
    type Config = Self;
    const FIELDS: Fields = Fields::VALUE;
    const CONFIG_SCHEMA: Option<&'static str> = Some(include_str!("../config.schema.json"));

    fn new(config: Self) -> Result<Self, String> {
        let Self { exists, one_of, at_least, at_most, contains, .. } = &config;
        if exists.is_none() && one_of.is_none() && at_least.or(*at_most).is_none() && contains.is_none() {
            return Err("say one of exists, one_of, at_least, at_most, contains".to_owned());
        }
        Ok(config)
    }
}

impl Filter for JsonFilter {
    fn keep(&self, record: &Record<'_>) -> bool {
        match record.json_at::<Value>(&self.field) {
            Ok(Some(found)) => self.holds(&found),
            Ok(None) => self.exists == Some(false),
            Err(_) => false,
        }
    }
}

impl JsonFilter {
    fn holds(&self, found: &Value) -> bool {
        let number = |holds: &dyn Fn(f64) -> bool| found.as_f64().is_some_and(holds);
        self.exists != Some(false)
            && self.one_of.as_ref().is_none_or(|values| values.contains(found))
            && self.at_least.is_none_or(|least| number(&|found| found >= least))
            && self.at_most.is_none_or(|most| number(&|found| found <= most))
            && self.contains.as_ref().is_none_or(|part| found.as_str().is_some_and(|text| text.contains(part)))
    }
}

levada_plugin::export!(JsonFilter: filter);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, filter, module};

    use super::JsonFilter;

    fn kept(config: &str, values: &[&str]) -> Vec<bool> {
        let records: Vec<_> = values.iter().map(|value| TestRecord::value(*value)).collect();
        filter(&module::<JsonFilter>(config).expect("a config"), &records)
    }

    #[test]
    fn numbers_are_kept_within_bounds() {
        let values = [r#"{"m":4.9}"#, r#"{"m":5}"#, r#"{"m":7.0}"#, r#"{"m":7.1}"#, r#"{"m":"6"}"#, "{}", "words"];
        let expected = [false, true, true, false, false, false, false];
        assert_eq!(kept(r#"{"field":"/m","at_least":5,"at_most":7}"#, &values), expected);
    }

    #[test]
    fn values_are_kept_that_are_listed() {
        let values = [r#"{"a":{"b":"x"}}"#, r#"{"a":{"b":null}}"#, r#"{"a":{"b":"y"}}"#, r#"{"a":"x"}"#];
        assert_eq!(kept(r#"{"field":"/a/b","one_of":["x",null]}"#, &values), [true, true, false, false]);
    }

    #[test]
    fn fields_are_kept_that_are_there_or_are_not() {
        let values = [r#"{"a":null}"#, r#"{"b":1}"#, "words"];
        assert_eq!(kept(r#"{"field":"/a","exists":true}"#, &values), [true, false, false]);
        assert_eq!(kept(r#"{"field":"/a","exists":false}"#, &values), [false, true, false]);
    }

    #[test]
    fn texts_are_kept_that_contain_a_part() {
        let values = [r#"{"place":"near Kobuk, Alaska"}"#, r#"{"place":"Chile"}"#, r#"{"place":1}"#];
        assert_eq!(kept(r#"{"field":"/place","contains":"Alaska"}"#, &values), [true, false, false]);
    }

    #[test]
    fn a_config_that_says_nothing_is_refused() {
        for config in ["{}", r#"{"field":"/a"}"#, r#"{"field":"a","exists":true}"#, r#"{"field":"/a","equals":1}"#] {
            assert!(module::<JsonFilter>(config).is_err(), "{config}");
        }
    }
}
