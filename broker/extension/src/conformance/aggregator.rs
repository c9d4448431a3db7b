//! What every aggregator must do.

use bytes::Bytes;
use levada_model::Timestamp;

use super::{MOMENT, batch, some_records};
use crate::{Aggregator, CallBatch, Group, GroupWindow, Groups, ModuleFault};

/// Runs the suite of [`Aggregator`] over records of all sorts, which it must fold. Accumulators are compared by what they
/// are worth.
///
/// # Panics
/// At the first duty that `aggregator` breaks.
pub fn aggregator(aggregator: &dyn Aggregator) {
    let records = some_records();
    let suite = Suite { aggregator, batch: batch(&[&records[..5], &records[5..]]) };
    suite.nothing();
    suite.groups_are_apart();
    suite.every_change();
    suite.in_parts();
    suite.merged();
    suite.subtracted();
    suite.migrated();
}

struct Suite<'a> {
    aggregator: &'a dyn Aggregator,
    batch: CallBatch,
}

impl Suite<'_> {
    fn nothing(&self) {
        let none = groups(vec![]);
        assert_eq!(self.aggregator.fold(&none, &self.batch, false), Ok(vec![]), "no groups, no accumulators");
        assert_eq!(self.aggregator.fold(&none, &self.batch, true), Ok(vec![]), "no groups, no accumulators");
        assert_eq!(self.aggregator.result(&none), Ok(vec![]), "no groups, no values");
        assert_eq!(self.aggregator.close(&none), Ok(vec![]), "no groups, no values");
    }

    fn groups_are_apart(&self) {
        let cut = [self.all(), vec![], vec![0], vec![0, 2, 4, 6, 8], vec![1, 3], self.all()];
        let together = groups((0..).zip(&cut).map(|(i, places)| group(i, None, places)).collect());
        let accumulators = self.aggregator.fold(&together, &self.batch, false).expect("an answer");
        assert_eq!(accumulators.len(), cut.len(), "one accumulator a group");
        for (places, accumulator) in cut.iter().zip(accumulators) {
            let alone = self.fold(None, places);
            assert_eq!(self.worth(accumulator), self.worth(alone), "groups of one call have to do with one another");
        }
        let again = self.aggregator.fold(&together, &self.batch, false);
        assert_eq!(again, self.aggregator.fold(&together, &self.batch, false), "equal calls had different answers");
    }

    fn every_change(&self) {
        let two = groups(vec![group(0, None, &self.all()), group(1, None, &[1, 2])]);
        let changes = self.aggregator.fold(&two, &self.batch, true).expect("an answer");
        assert_eq!(changes.len(), two.fold_answers(true), "one accumulator a record");
        let all = self.all();
        for (count, change) in changes.iter().take(all.len()).enumerate() {
            let upto = self.worth(self.fold(None, &all[..=count]));
            assert_eq!(
                self.worth(change.clone()),
                upto,
                "the change of record {count} is not that of the fold up to it"
            );
        }
        let last = changes.last().expect("there are changes").clone();
        assert_eq!(self.worth(last), self.worth(self.fold(None, &[1, 2])), "changes come group by group");
    }

    fn in_parts(&self) {
        let all = self.all();
        let whole = self.worth(self.fold(None, &all));
        for cut in 0..=all.len() {
            let first = self.fold(None, &all[..cut]);
            let second = self.fold(Some(first), &all[cut..]);
            assert_eq!(self.worth(second), whole, "a fold in two calls, cut at {cut}, is worth something else");
        }
    }

    fn merged(&self) {
        let all = self.all();
        for cut in [0, 1, 4, all.len() - 1, all.len()] {
            let parts = vec![self.fold(None, &all[..cut]), self.fold(None, &all[cut..])];
            match self.aggregator.merge(&groups(vec![with(parts)])) {
                Err(ModuleFault::Unsupported) => return,
                Err(fault) => panic!("no merge: {fault}"),
                Ok(merged) => {
                    let worth = self.worth(only(merged));
                    assert_eq!(
                        worth,
                        self.worth(self.fold(None, &all)),
                        "a merge, cut at {cut}, is worth something else"
                    );
                }
            }
        }
    }

    fn subtracted(&self) {
        let all = self.all();
        let whole = Some(self.fold(None, &all));
        let (kept, taken) = all.split_at(all.len() / 2);
        match self.aggregator.subtract(&groups(vec![group(0, whole, taken)]), &self.batch) {
            Err(ModuleFault::Unsupported) => (),
            Err(fault) => panic!("no subtraction: {fault}"),
            Ok(rest) => {
                let worth = self.worth(only(rest));
                assert_eq!(worth, self.worth(self.fold(None, kept)), "what is left is not the fold of what was kept");
            }
        }
    }

    fn migrated(&self) {
        let before = self.fold(None, &self.all());
        let present = self.aggregator.state_version();
        let after = self.aggregator.migrate(present, &groups(vec![with(vec![before.clone()])]));
        match after {
            Err(ModuleFault::Unsupported) => (),
            Err(fault) => panic!("no migration: {fault}"),
            Ok(after) => {
                assert_eq!(self.worth(only(after)), self.worth(before), "the present version migrates to itself")
            }
        }
    }

    fn all(&self) -> Vec<u32> {
        (0..).take(self.batch.record_count()).collect()
    }

    fn fold(&self, accumulator: Option<Bytes>, places: &[u32]) -> Bytes {
        let groups = groups(vec![group(0, accumulator, places)]);
        only(self.aggregator.fold(&groups, &self.batch, false).unwrap_or_else(|fault| panic!("no fold: {fault}")))
    }

    fn worth(&self, accumulator: Bytes) -> Option<Bytes> {
        let groups = groups(vec![with(vec![accumulator])]);
        let values = self.aggregator.result(&groups).unwrap_or_else(|fault| panic!("no value: {fault}"));
        let value = only(values);
        if let Some(json) = &value {
            serde_json::from_slice::<serde::de::IgnoredAny>(json).expect("a value is JSON");
        }
        self.aggregator.close(&groups).expect("what has a value can be closed");
        value
    }
}

fn groups(groups: Vec<Group>) -> Groups {
    Groups { moment: MOMENT, groups }
}

fn group(number: i64, accumulator: Option<Bytes>, places: &[u32]) -> Group {
    let window = GroupWindow { start: Timestamp(number * 10), end: Timestamp(number * 10 + 10) };
    Group {
        key: format!("group-{number}"),
        window: (number % 2 == 0).then_some(window),
        accumulators: accumulator.into_iter().collect(),
        records: places.to_vec(),
    }
}

fn with(accumulators: Vec<Bytes>) -> Group {
    Group { accumulators, ..group(0, None, &[]) }
}

fn only<T>(mut answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "one answer for one group");
    answers.remove(0)
}
