//! What was acknowledged lies before what was sent after that, and the records of a request lie in their order.

use std::collections::BTreeMap;

use levada_model::Offset;

use super::contents::Contents;
use crate::account::Account;
use crate::event::{At, Partition, Value};
use crate::violation::{Rule, Violation};

/// One thing that happened to a record of a partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Asked(Value, Offset),
    Acknowledged(Value, Offset),
}

pub(super) fn check(account: &Account<'_>, contents: &Contents) -> Vec<Violation> {
    let mut partitions: BTreeMap<&Partition, Vec<(At, Step)>> = BTreeMap::new();
    for (value, sent) in &account.sends {
        let is_only_try = !account.is_tried_anew(value.transaction);
        let mut seen = contents.sightings(*value).iter();
        let seen =
            seen.find(|sighting| sighting.partition == sent.partition && (is_only_try || sighting.committed.is_some()));
        let offset = sent.acknowledged.map(|(_, offset)| offset).or(seen.map(|sighting| sighting.offset));
        let Some(offset) = offset else { continue };
        let steps = partitions.entry(&sent.partition).or_default();
        steps.push((sent.asked, Step::Asked(*value, offset)));
        steps.extend(sent.acknowledged.map(|(at, offset)| (at, Step::Acknowledged(*value, offset))));
    }
    partitions.into_iter().flat_map(|(partition, steps)| in_order(account, partition, steps)).collect()
}

fn in_order(account: &Account<'_>, partition: &Partition, mut steps: Vec<(At, Step)>) -> Vec<Violation> {
    steps.sort_unstable();
    let mut violations = Vec::new();
    let mut newest: Option<(Offset, Value, At)> = None;
    let mut before: Option<(At, Value, Offset)> = None;
    for (at, step) in steps {
        match step {
            Step::Asked(value, offset) => {
                let same_request =
                    before.filter(|(asked, ..)| *asked == at).map(|(_, value, offset)| (offset, value, at));
                let behind = newest.max(same_request).filter(|(known, ..)| *known > offset);
                if let Some((known, earlier, when)) = behind {
                    let what =
                        format!("{partition} has {value} at {offset}, and {earlier}, which came before, at {known}");
                    violations.push(Violation::new(Rule::Order, what, account.events, [when, at]));
                }
                before = Some((at, value, offset));
            }
            Step::Acknowledged(value, offset) => newest = newest.max(Some((offset, value, at))),
        }
    }
    violations
}
