//! Blots out fields of JSON values. All other bytes of a value stay as they were produced: numbers keep their digits, members
//! their order. What is not JSON is rejected, since nobody can say what is in it.

mod spans;

use levada_plugin::{Emitted, Fields, Module, Pointer, Record, Transform, Verdict};
use serde::Deserialize;

use crate::spans::spans;

/// What is blotted out, and with what.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the fields are; `*` stands for every member or item: `/customers/*/email`.
    fields: Vec<Pointer>,
    /// What stands there instead, any JSON.
    #[serde(default = "blot")]
    with: serde_json::Value,
}

/// The transform.
pub struct RedactFields {
    fields: Vec<Pointer>,
    with: String,
}

fn blot() -> serde_json::Value {
    "[redacted]".into()
}

impl Module for RedactFields {
    type Config = Config;
    const FIELDS: Fields = Fields::VALUE;
    const CONFIG_SCHEMA: Option<&'static str> = Some(include_str!("../config.schema.json"));

    fn new(config: Config) -> Result<Self, String> {
        if config.fields.is_empty() {
            return Err("fields names no field".to_owned());
        }
        Ok(Self { fields: config.fields, with: config.with.to_string() })
    }
}

impl Transform for RedactFields {
    fn transform(&self, record: &Record<'_>) -> Verdict {
        let Some(value) = record.value else { return Verdict::Pass };
        let paths: Vec<&[String]> = self.fields.iter().map(Pointer::tokens).collect();
        match spans(value, &paths) {
            Ok(spans) if spans.is_empty() => Verdict::Pass,
            Ok(spans) => {
                let mut redacted = Vec::with_capacity(value.len());
                let mut rest = 0;
                for span in spans {
                    redacted.extend_from_slice(&value[rest..span.start]);
                    redacted.extend_from_slice(self.with.as_bytes());
                    rest = span.end;
                }
                redacted.extend_from_slice(&value[rest..]);
                Verdict::Replace(Emitted::new().value(redacted))
            }
            Err(error) => Verdict::Reject(format!("the value is not JSON: {error}")),
        }
    }
}

levada_plugin::export!(RedactFields: transform);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, module, transform};

    use super::RedactFields;

    fn redacted(config: &str, value: &str) -> String {
        let records = [TestRecord { headers: vec![("h".to_owned(), None)], ..TestRecord::new("key", value).at(7) }];
        let mut outcome =
            transform(&module::<RedactFields>(config).expect("a config"), &records).remove(0).expect("taken");
        let out = outcome.pop().expect("a record");
        assert_eq!((&out.key, out.timestamp_ms), (&records[0].key, 7), "only the value changes");
        String::from_utf8(out.value.expect("a value")).expect("text")
    }

    #[test]
    fn only_the_named_fields_change_and_every_other_byte_stays() {
        let config = r#"{"fields":["/email","/card/number"]}"#;
        let value = r#"{ "z":1.50, "email" : "a@b.c","card":{"number":4111,"name":"A"}, "n":12345678901234567890123 }"#;
        let expected = r#"{ "z":1.50, "email" : "[redacted]","card":{"number":"[redacted]","name":"A"}, "n":12345678901234567890123 }"#;
        assert_eq!(redacted(config, value), expected);
        assert_eq!(redacted(config, r#"{"e mail":1}"#), r#"{"e mail":1}"#);
    }

    #[test]
    fn a_star_is_every_member_and_every_item() {
        let config = r#"{"fields":["/people/*/email"],"with":null}"#;
        let value = r#"{"people":[{"email":"a"},{"name":"b"},{"email":["c"]}]}"#;
        assert_eq!(redacted(config, value), r#"{"people":[{"email":null},{"name":"b"},{"email":null}]}"#);
        assert_eq!(redacted(config, r#"{"people":{"x":{"email":1}}}"#), r#"{"people":{"x":{"email":null}}}"#);
    }

    #[test]
    fn nothing_hides_behind_a_second_member_or_an_escape() {
        let config = r#"{"fields":["/email","/a/0"],"with":0}"#;
        assert_eq!(
            redacted(config, r#"{"email":1,"em\u0061il":2,"a":[3,4]}"#),
            r#"{"email":0,"em\u0061il":0,"a":[0,4]}"#
        );
    }

    #[test]
    fn a_field_within_a_field_is_blotted_out_once() {
        assert_eq!(redacted(r#"{"fields":["/a/b","/a","/*"],"with":0}"#, r#"{"a":{"b":1},"c":2}"#), r#"{"a":0,"c":0}"#);
        assert_eq!(redacted(r#"{"fields":[""],"with":{}}"#, " [1] "), " {} ");
    }

    #[test]
    fn what_cannot_be_read_is_rejected_and_tombstones_pass() {
        let module: RedactFields = module(r#"{"fields":["/email"]}"#).expect("a config");
        let outcomes = transform(&module, &[TestRecord::value(r#"{"email":"#), TestRecord::default()]);
        assert!(outcomes[0].as_ref().expect_err("rejected").starts_with("the value is not JSON"));
        assert_eq!(outcomes[1], Ok(vec![TestRecord::default()]));
    }

    #[test]
    fn a_config_names_fields() {
        for config in ["{}", r#"{"fields":[]}"#, r#"{"fields":["email"]}"#] {
            assert!(module::<RedactFields>(config).is_err(), "{config}");
        }
    }
}
