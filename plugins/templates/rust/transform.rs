//! Drops records whose number is too small, and says of the others how it judged them.

use levada_plugin::{Emitted, Fields, Module, Pointer, Record, Transform, Verdict};
use serde::Deserialize;

/// The module, and its config: `{"field":"/amount","at_least":10}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MyTransform {
    field: Pointer,
    at_least: f64,
}

impl Module for MyTransform {
    type Config = Self;
    // What is read of a record. Fewer parts are faster.
    const FIELDS: Fields = Fields::VALUE;

    fn new(config: Self) -> Result<Self, String> {
        if config.at_least.is_finite() { Ok(config) } else { Err("at_least is beyond all numbers".to_owned()) }
    }
}

impl Transform for MyTransform {
    fn transform(&self, record: &Record<'_>) -> Verdict {
        match record.json_at::<f64>(&self.field) {
            Ok(Some(number)) if number < self.at_least => Verdict::Drop,
            Ok(Some(number)) if number > 1000.0 * self.at_least => {
                // Key and value stay as they were; what is said here takes the place of the headers.
                Verdict::Replace(Emitted::new().headers(vec![("size".to_owned(), Some(b"huge".to_vec()))]))
            }
            Ok(Some(_)) => Verdict::Pass,
            Ok(None) => Verdict::Reject("the number is not there".to_owned()),
            Err(error) => Verdict::Reject(error.to_string()),
        }
    }
}

levada_plugin::export!(MyTransform: transform);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, module, transform};

    use super::MyTransform;

    #[test]
    fn small_ones_are_dropped() {
        let module: MyTransform = module(r#"{"field":"/amount","at_least":10}"#).expect("a config");
        let records = [r#"{"amount":10}"#, r#"{"amount":9}"#, "{}", r#"{"amount":99999}"#].map(TestRecord::value);
        let outcomes = transform(&module, &records);
        assert_eq!(outcomes[0], Ok(vec![records[0].clone()]));
        assert_eq!(outcomes[1], Ok(vec![]));
        assert_eq!(outcomes[2], Err("the number is not there".to_owned()));
        assert_eq!(outcomes[3].as_ref().expect("taken")[0].headers, [("size".to_owned(), Some(b"huge".to_vec()))]);
    }
}
