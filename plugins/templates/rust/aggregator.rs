//! Count, sum and mean of a number in each group and window.

use levada_plugin::{Aggregator, Fault, Fields, Group, Module, Pointer, Record};
use serde::{Deserialize, Serialize};

/// The module, and its config: `{"field":"/amount"}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MyAggregator {
    field: Pointer,
}

/// What is kept of a group.
#[derive(Default, Deserialize, Serialize)]
pub struct Totals {
    count: u64,
    sum: f64,
}

/// What a group is worth.
#[derive(Serialize)]
pub struct Row {
    count: u64,
    sum: f64,
    mean: f64,
}

impl Module for MyAggregator {
    type Config = Self;
    const FIELDS: Fields = Fields::VALUE;

    fn new(config: Self) -> Result<Self, String> {
        Ok(config)
    }
}

impl Aggregator for MyAggregator {
    type Accumulator = Totals;
    type Value = Row;

    fn add(&self, totals: &mut Totals, record: &Record<'_>, _: &Group<'_>) {
        if let Ok(Some(number)) = record.json_at::<f64>(&self.field) {
            totals.count += 1;
            totals.sum += number;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn value(&self, totals: &Totals, _: &Group<'_>) -> Option<Row> {
        let Totals { count, sum } = *totals;
        (count > 0).then(|| Row { count, sum, mean: sum / count as f64 })
    }

    // Session windows need this: they grow together.
    fn merge(&self, totals: &mut Totals, later: Totals) -> Result<(), Fault> {
        totals.count += later.count;
        totals.sum += later.sum;
        Ok(())
    }
}

levada_plugin::export!(MyAggregator: aggregator);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, aggregate, module};

    use super::MyAggregator;

    #[test]
    fn numbers_add_up() {
        let module: MyAggregator = module(r#"{"field":"/amount"}"#).expect("a config");
        let records = [r#"{"amount":1}"#, "words", r#"{"amount":2}"#].map(TestRecord::value);
        let rows = aggregate(&module, "group", &records);
        assert_eq!(rows[2].as_ref().expect("a row")["mean"], 1.5);
    }
}
