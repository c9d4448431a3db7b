//! Keeps the earthquakes that are strong enough: the shortest filter that there is.

use levada_plugin::{Fields, Filter, Module, Record};
use serde::Deserialize;

/// The filter, and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrongQuakes {
    at_least: f64,
}

#[derive(Deserialize)]
struct Quake {
    magnitude: f64,
}

impl Module for StrongQuakes {
    type Config = Self;
    const FIELDS: Fields = Fields::VALUE;
    const CONFIG_SCHEMA: Option<&'static str> = Some(
        r#"{"type":"object","properties":{"at_least":{"type":"number"}},"required":["at_least"],"additionalProperties":false}"#,
    );

    fn new(config: Self) -> Result<Self, String> {
        Ok(config)
    }
}

impl Filter for StrongQuakes {
    fn keep(&self, record: &Record<'_>) -> bool {
        record.json::<Quake>().is_ok_and(|quake| quake.magnitude >= self.at_least)
    }
}

levada_plugin::export!(StrongQuakes: filter);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, filter, module};

    use super::StrongQuakes;

    #[test]
    fn strong_ones_are_kept_and_what_is_no_quake_is_not() {
        let strong: StrongQuakes = module(r#"{"at_least":4.5}"#).expect("a config");
        let records = [r#"{"magnitude":4.5}"#, r#"{"magnitude":4.4}"#, r#"{"magnitude":null}"#, "words"];
        assert_eq!(filter(&strong, &records.map(TestRecord::value)), [true, false, false, false]);
        assert_eq!(filter(&strong, &[TestRecord::default()]), [false]);
    }

    #[test]
    fn the_config_is_complete_and_has_nothing_else() {
        assert!(module::<StrongQuakes>("{}").is_err());
        assert!(module::<StrongQuakes>(r#"{"at_least":1,"at_most":2}"#).is_err());
    }
}
