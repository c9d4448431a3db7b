//! The load and the judge together, against a broker that keeps every promise, and such that break one.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use levada_history::{Event, Rule, Setting, View, Violation, Workload};
use levada_model::{GroupName, Offset};

use crate::memory::{Memory, Mistake};
use crate::tale::partition;

const PRODUCERS: u32 = 3;

/// Runs what never waits for anything.
fn run<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

fn setting() -> Setting {
    Setting {
        partitions: (0..2).map(partition).collect(),
        groups: ["g", "h"].map(|name| GroupName::new(name).expect("a name")).to_vec(),
        source: partition(9),
        source_end: Offset(1 << 20),
        timeout_ms: 1000,
    }
}

fn violations(seed: u64, mistake: Mistake) -> Vec<Violation> {
    let workload = Workload::new(Memory::new(seed, mistake), setting());
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let workload = &workload;
            scope.spawn(move || run(workload.produce(producer, seed + u64::from(producer))));
        }
        scope.spawn(|| run(workload.execute(seed)));
        for partition in &workload.setting().partitions {
            for view in [View::Committed, View::Uncommitted] {
                let workload = &workload;
                scope.spawn(move || run(workload.read(view, partition, seed)));
            }
        }
        for crash in 1..=3 {
            while workload.ended().0 < 15 * crash || workload.ended().1 < 4 * crash {
                thread::yield_now();
            }
            workload.history().note(Event::Down("killed"));
            workload.broker().crash();
            workload.history().note(Event::Up);
        }
        workload.stop();
    });
    run(workload.settle(PRODUCERS));
    let (committed, aborted) = workload.ended();
    assert!(committed >= 45 && aborted >= 12, "it was about something: {committed} and {aborted}");
    workload.history().check()
}

#[test]
fn a_broker_that_keeps_its_promises_is_found_innocent() {
    for seed in 0..10 {
        let found = violations(seed, Mistake::None);
        assert!(found.is_empty(), "seed {seed}: {}", found[0]);
    }
}

#[test]
fn every_mistake_is_found() {
    let expected = [
        (Mistake::ForgetAborted, Rule::NoAbortedRead),
        (Mistake::IgnoreEpoch, Rule::Fencing),
        (Mistake::LoseTail, Rule::NothingLost),
        (Mistake::StoreTwice, Rule::NothingDoubled),
        (Mistake::ShowUndecided, Rule::NoUndecidedRead),
        (Mistake::CountOffsets, Rule::NoUndecidedRead),
    ];
    for (mistake, rule) in expected {
        let mut found = BTreeSet::new();
        for seed in 0..10 {
            if !found.contains(&rule) {
                found.extend(violations(seed, mistake).iter().map(|violation| violation.rule));
            }
        }
        assert!(found.contains(&rule), "{mistake:?} breaks {found:?}");
    }
}
