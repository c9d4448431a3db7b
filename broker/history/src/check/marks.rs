//! High watermarks and last stable offsets rise, and nobody reads beyond them.

use std::collections::BTreeMap;

use levada_model::Offset;

use crate::account::Account;
use crate::event::{At, Marks, Partition, Read, View};
use crate::violation::{Rule, Violation};

/// The highest marks that were told before some moment.
#[derive(Clone, Copy, Default)]
struct Highest {
    high_watermark: (Offset, At),
    last_stable: (Offset, At),
}

pub(super) fn check(account: &Account<'_>) -> Vec<Violation> {
    let mut partitions: BTreeMap<&Partition, Vec<(At, &Read, Marks)>> = BTreeMap::new();
    for (at, read) in &account.reads {
        if let Some(marks) = read.marks {
            partitions.entry(&read.partition).or_default().push((*at, read, marks));
        }
    }
    let mut violations: Vec<Violation> =
        account.reads.iter().flat_map(|(at, read)| is_bounded(account, *at, read)).collect();
    violations.extend(partitions.values().flat_map(|reads| rise(account, reads)));
    violations
}

fn rise(account: &Account<'_>, reads: &[(At, &Read, Marks)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    // By when they asked; those that were answered before that moment are taken in first.
    let mut asking: Vec<&(At, &Read, Marks)> = reads.iter().collect();
    asking.sort_by_key(|(_, read, _)| read.asked);
    let (mut answered, mut known) = (reads.iter().peekable(), Highest::default());
    for (at, read, marks) in asking {
        while let Some((before, _, earlier)) = answered.next_if(|(before, ..)| *before < read.asked) {
            known.high_watermark = known.high_watermark.max((earlier.high_watermark, *before));
            known.last_stable = known.last_stable.max((earlier.last_stable, *before));
        }
        let marks = [
            ("high watermark", known.high_watermark, marks.high_watermark),
            ("last stable offset", known.last_stable, marks.last_stable),
        ];
        for (name, (mark, when), now) in marks {
            if now < mark {
                let what = format!("the {name} of {} was {mark}, and then {now}", read.partition);
                violations.push(Violation::new(Rule::MarksRise, what, account.events, [when, *at]));
            }
        }
    }
    violations
}

fn is_bounded(account: &Account<'_>, at: At, read: &Read) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut broken = |rule, what: String| {
        violations.push(Violation::new(rule, format!("{}: {what}", read.partition), account.events, [at]));
    };
    let offsets = read.records.iter().map(|(offset, _)| *offset);
    if !offsets.clone().is_sorted_by(|a, b| a < b) || offsets.clone().any(|o| o < read.from || o >= read.next) {
        let (from, next) = (read.from, read.next);
        broken(Rule::Bounds, format!("records out of order or not from {from} to {next}"));
    }
    let Some(Marks { high_watermark, last_stable }) = read.marks else { return violations };
    if last_stable > high_watermark {
        broken(Rule::Bounds, format!("last stable offset {last_stable} beyond the high watermark {high_watermark}"));
    }
    let bound = if read.view == View::Committed { last_stable } else { high_watermark };
    if read.next > bound.max(read.from) {
        broken(Rule::Bounds, format!("it goes on at {}, beyond {bound}", read.next));
    }
    let is_last = account.settled.is_some_and(|settled| settled < read.asked);
    if is_last && last_stable < high_watermark {
        broken(Rule::NothingStuck, format!("nothing is open, and only {last_stable} of {high_watermark} is stable"));
    }
    violations
}
