//! Makes a record of each item of an array: an order of ten lines becomes ten lines. Items keep their bytes; headers and
//! time are those of the record that they came in.

use levada_plugin::{Emitted, Fields, Module, Pointer, Record, Transform, Verdict};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The most records that may take the place of one.
const EMITTED_MAX: usize = 100;

/// The transform, and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlattenArray {
    /// Where the array is.
    array: Pointer,
    /// Where, in an item, its key is: a text, or JSON as its text. Where it is not said, or not there, items have the key of
    /// the record that they came in.
    #[serde(default)]
    key: Option<Pointer>,
}

impl Module for FlattenArray {
    type Config = Self;
    const FIELDS: Fields = Fields::VALUE;
    const CONFIG_SCHEMA: Option<&'static str> = Some(include_str!("../config.schema.json"));

    fn new(config: Self) -> Result<Self, String> {
        Ok(config)
    }
}

impl Transform for FlattenArray {
    fn transform(&self, record: &Record<'_>) -> Verdict {
        if record.value.is_none() {
            return Verdict::Pass;
        }
        match record.json_at::<Vec<&RawValue>>(&self.array) {
            Ok(None) => Verdict::Drop,
            Ok(Some(items)) if items.len() > EMITTED_MAX => {
                Verdict::Reject(format!("the array has {} items, more than {EMITTED_MAX}", items.len()))
            }
            Ok(Some(items)) => Verdict::Emit(items.into_iter().map(|item| self.emitted(item)).collect()),
            Err(error) => Verdict::Reject(format!("there is no array: {error}")),
        }
    }
}

impl FlattenArray {
    fn emitted(&self, item: &RawValue) -> Emitted {
        let whole = Emitted::new().value(item.get());
        let key = self.key.as_ref().and_then(|key| key.find::<serde_json::Value>(item.get().as_bytes()).ok().flatten());
        match key {
            None => whole,
            Some(serde_json::Value::String(text)) => whole.key(text),
            Some(other) => whole.key(other.to_string()),
        }
    }
}

levada_plugin::export!(FlattenArray: transform);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, module, transform};

    use super::FlattenArray;

    #[test]
    fn each_item_becomes_a_record_with_its_own_key() {
        let flatten: FlattenArray = module(r#"{"array":"/lines","key":"/sku"}"#).expect("a config");
        let order = r#"{"order":7,"lines":[{"sku":"a","price":1.50},{"price":2},{"sku":3},[]]}"#;
        let record = TestRecord { headers: vec![("h".to_owned(), None)], ..TestRecord::new("order-7", order).at(9) };
        let item =
            |key: &str, value: &str| TestRecord { key: Some(key.into()), value: Some(value.into()), ..record.clone() };
        let expected = [
            item("a", r#"{"sku":"a","price":1.50}"#),
            item("order-7", r#"{"price":2}"#),
            item("3", r#"{"sku":3}"#),
            item("order-7", "[]"),
        ];
        assert_eq!(transform(&flatten, std::slice::from_ref(&record)), [Ok(expected.to_vec())]);
    }

    #[test]
    fn what_has_no_items_is_dropped_and_what_has_no_array_rejected() {
        let flatten: FlattenArray = module(r#"{"array":"/lines"}"#).expect("a config");
        let records = [r#"{"lines":[]}"#, "{}", r#"{"lines":7}"#, "words"].map(TestRecord::value);
        let outcomes = transform(&flatten, &records);
        assert_eq!(outcomes[..2], [Ok(vec![]), Ok(vec![])]);
        assert!(outcomes[2..].iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.contains("no array"))));
        assert_eq!(transform(&flatten, &[TestRecord::default()]), [Ok(vec![TestRecord::default()])]);
    }

    #[test]
    fn an_array_may_have_as_many_items_as_may_be_emitted() {
        let flatten: FlattenArray = module(r#"{"array":""}"#).expect("a config");
        let array = |items: usize| TestRecord::value(serde_json::to_vec(&vec![0; items]).expect("JSON"));
        let outcomes = transform(&flatten, &[array(100), array(101)]);
        assert_eq!(outcomes[0].as_ref().map(Vec::len), Ok(100));
        assert_eq!(outcomes[1], Err("the array has 101 items, more than 100".to_owned()));
    }
}
