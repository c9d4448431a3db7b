//! Records that a member cannot process, on their way to the dead letters.

use levada_model::limits::{REJECT_REASON_CHARS_MAX, REJECT_RECORDS_MAX};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};

use super::GroupPlace;
use crate::strict::{objects, whole};

/// Records to reject: each goes to its topic's dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"records": [{"topic": "orders", "partition": 0, "offset": 10}], "reason": "no such customer", "attempts": 3}))]
pub struct RejectRecords {
    /// Which; the member must hold their partitions.
    #[serde(deserialize_with = "objects")]
    #[schema(schema_with = records)]
    pub records: Vec<GroupPlace>,
    /// Why: the dead letters' header `error`.
    #[schema(schema_with = reason)]
    pub reason: String,
    /// How often they were tried: the dead letters' header `attempts`.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}

/// Where rejected records were stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetters {
    /// One place a record, in the order of the request.
    pub dead_letters: Vec<GroupPlace>,
}

/// An integer or null.
fn count<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    struct Count(#[serde(deserialize_with = "whole")] u32);
    Ok(Option::<Count>::deserialize(deserializer)?.map(|Count(count)| count))
}

fn records() -> ArrayBuilder {
    ArrayBuilder::new()
        .items(RefOr::<Schema>::Ref(Ref::from_schema_name("GroupPlace")))
        .min_items(Some(1))
        .max_items(Some(REJECT_RECORDS_MAX))
        .description(Some("Which; the member must hold their partitions"))
}

fn reason() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .max_length(Some(REJECT_REASON_CHARS_MAX))
        .description(Some("Why: the dead letters' header `error`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn attempts_may_be_absent_or_null() {
        for (field, attempts) in [("", None), (r#","attempts":null"#, None), (r#","attempts":3"#, Some(3))] {
            let body = format!(r#"{{"records":[],"reason":"r"{field}}}"#);
            assert_eq!(from_json::<RejectRecords>(body.as_bytes()).expect("valid").attempts, attempts);
        }
        let body = br#"{"records":[],"reason":"r","attempts":-1}"#;
        assert_eq!(from_json::<RejectRecords>(body).expect_err("below 0").errors[0].pointer, "/attempts");
    }
}
