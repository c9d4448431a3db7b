//! Refuses records whose JSON value is not of a schema, and says where and why. The schema is a part of JSON Schema that is
//! often enough; what it does not know it refuses as config, so that no rule is silently ignored.

mod schema;

use levada_plugin::{Fields, Module, Record, Transform, Verdict};
use serde::Deserialize;
use serde_json::Value;

use crate::schema::Schema;

/// The validator, and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaValidator {
    schema: Schema,
    /// Whether a record without a value is right.
    #[serde(default)]
    tombstones: bool,
}

impl Module for SchemaValidator {
    type Config = Self;
    const FIELDS: Fields = Fields::VALUE;
    const CONFIG_SCHEMA: Option<&'static str> = Some(include_str!("../config.schema.json"));

    fn new(config: Self) -> Result<Self, String> {
        Ok(config)
    }
}

impl Transform for SchemaValidator {
    fn transform(&self, record: &Record<'_>) -> Verdict {
        if record.value.is_none() && self.tombstones {
            return Verdict::Pass;
        }
        match record.json::<Value>() {
            Err(_) if record.value.is_none() => Verdict::Reject("there is no value".to_owned()),
            Err(error) => Verdict::Reject(format!("the value is not JSON: {error}")),
            Ok(value) => match self.schema.check(&value) {
                Ok(()) => Verdict::Pass,
                Err(wrong) => Verdict::Reject(wrong.to_string()),
            },
        }
    }
}

levada_plugin::export!(SchemaValidator: transform);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, module, transform};

    use super::SchemaValidator;

    const QUAKE: &str = r#"{"schema":{"type":"object","required":["id","magnitude"],"properties":{
        "id":{"type":"string","minLength":2,"maxLength":12},
        "magnitude":{"type":["number","null"],"minimum":-2,"maximum":10},
        "kind":{"enum":["earthquake","explosion"]},
        "stations":{"type":"array","maxItems":2,"items":{"type":"integer"}}},
        "additionalProperties":false}}"#;

    fn reason(value: &str) -> Option<String> {
        let validator: SchemaValidator = module(QUAKE).expect("a config");
        transform(&validator, &[TestRecord::value(value)]).remove(0).err()
    }

    #[test]
    fn what_is_of_the_schema_passes_as_it_is() {
        for value in [
            r#"{"id":"us1","magnitude":4.50}"#,
            r#"{"magnitude":null,"kind":"earthquake","id":"us1","stations":[1,2.0]}"#,
            r#"{"id":"äöüäöüäöüäöü","magnitude":10}"#,
        ] {
            assert_eq!(reason(value), None, "{value}");
        }
    }

    #[test]
    fn what_is_not_is_rejected_with_place_and_reason() {
        for (value, expected) in [
            ("[]", "the value is an array, not object"),
            (r#"{"id":"us1"}"#, "the value lacks \"magnitude\""),
            (r#"{"id":7,"magnitude":1}"#, "/id is an integer, not string"),
            (r#"{"id":"u","magnitude":1}"#, "/id has a length of 1, below 2"),
            (r#"{"id":"0123456789abc","magnitude":1}"#, "/id has a length of 13, above 12"),
            (r#"{"id":"us1","magnitude":true}"#, "/magnitude is a boolean, not number or null"),
            (r#"{"id":"us1","magnitude":-2.1}"#, "/magnitude is -2.1, below -2"),
            (r#"{"id":"us1","magnitude":11}"#, "/magnitude is 11, above 10"),
            (r#"{"id":"us1","magnitude":1,"kind":"sonic boom"}"#, "/kind is none of the values that it may be"),
            (r#"{"id":"us1","magnitude":1,"a/b":1}"#, "/a~1b is not known"),
            (r#"{"id":"us1","magnitude":1,"stations":[1,1.5]}"#, "/stations/1 is a number, not integer"),
            (r#"{"id":"us1","magnitude":1,"stations":[1,2,3]}"#, "/stations has 3 items, above 2"),
        ] {
            assert_eq!(reason(value).as_deref(), Some(expected), "{value}");
        }
        assert!(reason("words").expect("rejected").starts_with("the value is not JSON"));
    }

    #[test]
    fn tombstones_pass_where_the_config_says_so() {
        let strict: SchemaValidator = module(r#"{"schema":{}}"#).expect("a config");
        let lax: SchemaValidator = module(r#"{"schema":{},"tombstones":true}"#).expect("a config");
        assert_eq!(transform(&strict, &[TestRecord::default()]), [Err("there is no value".to_owned())]);
        assert_eq!(transform(&lax, &[TestRecord::default()]), [Ok(vec![TestRecord::default()])]);
    }

    #[test]
    fn a_rule_that_is_not_known_is_refused_and_not_ignored() {
        let error =
            module::<SchemaValidator>(r#"{"schema":{"properties":{"a":{"pattern":"^x"}}}}"#).err().expect("refused");
        assert!(error.contains("pattern"), "{error}");
        assert!(module::<SchemaValidator>(r#"{"schema":{"type":"text"}}"#).is_err());
    }
}
