//! The strongest earthquake of each group and window, and how many there were. Of equally strong ones it is the first.

use levada_plugin::{Aggregator, Fault, Fields, Group, Module, NoConfig, Record};
use serde::{Deserialize, Serialize};

/// The aggregator.
pub struct StrongestQuake;

/// An earthquake of the feed; what else it says is not kept.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Quake {
    id: String,
    magnitude: f64,
    /// When, in milliseconds since 1970 (UTC).
    time: i64,
    #[serde(default)]
    place: Option<String>,
}

/// What is kept of a group.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Seen {
    count: u64,
    strongest: Option<Quake>,
}

impl Module for StrongestQuake {
    type Config = NoConfig;
    const FIELDS: Fields = Fields::VALUE;
    const STATE_VERSION: u32 = 1;

    fn new(_: NoConfig) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Aggregator for StrongestQuake {
    type Accumulator = Seen;
    type Value = Seen;

    fn add(&self, seen: &mut Seen, record: &Record<'_>, _: &Group<'_>) {
        if let Ok(quake) = record.json::<Quake>() {
            seen.count += 1;
            seen.consider(quake);
        }
    }

    fn value(&self, seen: &Seen, _: &Group<'_>) -> Option<Seen> {
        (seen.count > 0).then(|| seen.clone())
    }

    fn merge(&self, seen: &mut Seen, later: Seen) -> Result<(), Fault> {
        seen.count += later.count;
        if let Some(strongest) = later.strongest {
            seen.consider(strongest);
        }
        Ok(())
    }
}

impl Seen {
    fn consider(&mut self, quake: Quake) {
        let stronger = |strongest: &Quake| (quake.magnitude, strongest.time) > (strongest.magnitude, quake.time);
        if self.strongest.as_ref().is_none_or(stronger) {
            self.strongest = Some(quake);
        }
    }
}

levada_plugin::export!(StrongestQuake: aggregator);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{TestRecord, aggregate};
    use levada_plugin::{Aggregator, Fault};
    use serde_json::json;

    use super::{Quake, Seen, StrongestQuake};

    fn quakes() -> Vec<TestRecord> {
        let feed = include_str!("../quakes.ndjson");
        feed.lines().map(TestRecord::value).collect()
    }

    #[test]
    fn the_strongest_of_the_feed_is_found() {
        let records = quakes();
        let values = aggregate(&StrongestQuake, "all", &records);
        let strongest = json!({
            "count": 20,
            "strongest": {"id": "us2000crl8", "magnitude": 4.7, "time": 1_517_365_017_350_i64,
                "place": "232km ENE of Raoul Island, New Zealand"},
        });
        assert_eq!(values.last().expect("a value"), &Some(strongest));
        assert_eq!(values[0].as_ref().map(|value| &value["strongest"]["magnitude"]), Some(&json!(2.3)));
    }

    #[test]
    fn what_is_no_quake_counts_for_nothing() {
        let records = ["words", r#"{"id":"a","magnitude":null,"time":1}"#].map(TestRecord::value);
        assert_eq!(aggregate(&StrongestQuake, "none", &records), [None, None]);
    }

    fn seen(count: u64, magnitude: f64, time: i64) -> Seen {
        let quake = Quake { id: format!("{magnitude} at {time}"), magnitude, time, place: None };
        Seen { count, strongest: Some(quake) }
    }

    #[test]
    fn merged_parts_are_as_one_in_whatever_order() {
        let parts = [seen(2, 5.0, 10), seen(3, 6.0, 30), seen(1, 6.0, 20), Seen::default()];
        for (one, other) in [(0, 1), (1, 0), (1, 2), (2, 1), (3, 0), (0, 3)] {
            let (mut forth, mut back) = (parts[one].clone(), parts[other].clone());
            assert!(StrongestQuake.merge(&mut forth, parts[other].clone()) == Ok(()));
            assert!(StrongestQuake.merge(&mut back, parts[one].clone()) == Ok(()));
            assert_eq!(forth, back);
        }
        let mut all = Seen::default();
        parts.into_iter().for_each(|part| assert!(StrongestQuake.merge(&mut all, part) == Ok(())));
        assert_eq!(all, Seen { count: 6, ..seen(6, 6.0, 20) });
    }

    #[test]
    fn a_quake_cannot_be_taken_back() {
        let values = aggregate(&StrongestQuake, "k", &[TestRecord::value(r#"{"id":"a","magnitude":1,"time":1}"#)]);
        assert_eq!(values[0].as_ref().expect("a row")["count"], 1);
        let state = StrongestQuake.write(&seen(1, 1.5, 2));
        assert_eq!(StrongestQuake.read(&state), Ok(seen(1, 1.5, 2)));
        assert!(StrongestQuake.migrate(0, &state) == Err(Fault::Unsupported), "no older state is known");
    }
}
