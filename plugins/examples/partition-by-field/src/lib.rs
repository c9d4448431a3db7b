//! Places records by a field of their JSON value: what belongs together lies together, whatever key it was produced with.
//! Equal fields go where Kafka's clients send a key of that text. Records without the field go where their key says.

use levada_plugin::{Fields, KeyRecord, Module, Partitioner, Pointer, default_partition};
use serde::Deserialize;
use serde_json::Value;

/// The partitioner, and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionByField {
    /// Where the field is: a text, or a number or boolean as its text.
    field: Pointer,
}

impl Module for PartitionByField {
    type Config = Self;
    const FIELDS: Fields = Fields::KEY.union(Fields::VALUE);
    const CONFIG_SCHEMA: Option<&'static str> = Some(
        r#"{"type":"object","properties":{"field":{"type":"string","description":"A JSON pointer, such as /user/id"}},"required":["field"],"additionalProperties":false}"#,
    );

    fn new(config: Self) -> Result<Self, String> {
        Ok(config)
    }
}

impl Partitioner for PartitionByField {
    fn partition(&self, record: &KeyRecord<'_>, partition_count: u32) -> u32 {
        let text = match record.json_at::<Value>(&self.field) {
            Ok(Some(Value::String(text))) => text,
            Ok(Some(value @ (Value::Number(_) | Value::Bool(_)))) => value.to_string(),
            _ => return default_partition(record, partition_count),
        };
        default_partition(&KeyRecord { key: Some(text.as_bytes()), ..record.clone() }, partition_count)
    }
}

levada_plugin::export!(PartitionByField: partitioner);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, module, partition};

    use super::PartitionByField;

    fn placed(records: &[TestRecord]) -> Vec<u32> {
        partition(&module::<PartitionByField>(r#"{"field":"/user/id"}"#).expect("a config"), records, 12)
    }

    #[test]
    fn equal_fields_go_to_one_partition_whatever_the_key() {
        let records = [
            TestRecord::new("x", r#"{"user":{"id":"100:48069"}}"#),
            TestRecord::new("y", r#"{"n":1,"user":{"id":"100:48069","name":"Ada"}}"#),
            TestRecord::value(r#"{"user":{"id":"100:48069"}}"#),
        ];
        assert_eq!(placed(&records), [9, 9, 9], "where Kafka's client sends the key 100:48069");
        let numbers = [r#"{"user":{"id":7}}"#, r#"{"user":{"id":"7"}}"#].map(TestRecord::value);
        let [number, text] = placed(&numbers)[..] else { panic!("two records") };
        assert_eq!(number, text);
    }

    #[test]
    fn fields_spread_over_all_partitions() {
        let records: Vec<_> = (0..1000).map(|id| TestRecord::value(format!(r#"{{"user":{{"id":{id}}}}}"#))).collect();
        let used: std::collections::BTreeSet<_> = placed(&records).into_iter().collect();
        assert_eq!(used.len(), 12);
    }

    #[test]
    fn without_the_field_the_key_decides() {
        for value in ["words", "{}", r#"{"user":{"id":null}}"#, r#"{"user":{"id":[1]}}"#] {
            assert_eq!(placed(&[TestRecord::new("100:48069", value)]), [9], "{value}");
        }
    }
}
