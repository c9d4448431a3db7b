//! The suites themselves: whoever breaks a duty is found.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use levada_extension::{
    Aggregator, CallBatch, Groups, ModuleFault, NativeAggregator, Transform, Verdict, Verdicts, conformance,
};

/// What the suite says to it.
fn complaint(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the suite found nothing");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
}

struct Judge<F>(F);

impl<F: Fn(&CallBatch) -> Result<Verdicts, ModuleFault> + Send + Sync> Transform for Judge<F> {
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
        self.0(batch)
    }
}

#[test]
fn a_transform_that_breaks_a_duty_is_found() {
    let calls = AtomicU32::new(0);
    let judge = |judge: &(dyn Fn(&CallBatch) -> Result<Verdicts, ModuleFault> + Send + Sync)| {
        complaint(|| conformance::transform(&Judge(judge)))
    };
    let too_many = |batch: &CallBatch| Ok(Verdicts::Each(vec![Verdict::Pass; batch.record_count() + 1]));
    assert!(judge(&too_many).contains("well-formed"));
    let unstable = |batch: &CallBatch| {
        let verdict =
            if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { Verdict::Pass } else { Verdict::Drop };
        Ok(Verdicts::Each(vec![verdict; batch.record_count()]))
    };
    assert!(judge(&unstable).contains("equal calls"));
    let first = |batch: &CallBatch| Ok(Verdicts::Keep(if batch.record_count() > 0 { vec![0] } else { vec![] }));
    assert!(judge(&first).contains("depends on the records around it"));
    let sections = |batch: &CallBatch| match batch.sections.len() {
        0 | 1 => Ok(Verdicts::Each(vec![Verdict::Pass; batch.record_count()])),
        _ => Ok(Verdicts::Keep(vec![])),
    };
    assert!(judge(&sections).contains("cut into sections"));
    assert!(judge(&|_| Err(ModuleFault::Unsupported)).contains("no answer"));
}

/// A count that breaks one duty.
struct Bad {
    count: std::sync::Arc<dyn Aggregator>,
    duty: &'static str,
}

impl Bad {
    fn breaks(&self, duty: &str) -> bool {
        self.duty == duty
    }
}

impl Aggregator for Bad {
    fn state_version(&self) -> u32 {
        self.count.state_version()
    }

    fn fold(&self, groups: &Groups, batch: &CallBatch, each_record: bool) -> Result<Vec<Bytes>, ModuleFault> {
        let mut groups = groups.clone();
        if self.breaks("in two calls") {
            groups.groups.iter_mut().for_each(|group| group.accumulators.clear());
        }
        if self.breaks("one another") {
            let last = groups.groups.last().map(|group| group.records.clone()).unwrap_or_default();
            groups.groups.iter_mut().for_each(|group| group.records.clone_from(&last));
        }
        self.count.fold(&groups, batch, each_record && !self.breaks("one accumulator a record"))
    }

    fn result(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        match self.breaks("a value is JSON") {
            true => Ok(vec![Some(Bytes::from_static(b"words")); groups.groups.len()]),
            false => self.count.result(groups),
        }
    }

    fn merge(&self, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        let mut groups = groups.clone();
        if self.breaks("a merge") {
            groups.groups.iter_mut().for_each(|group| group.accumulators.truncate(1));
        }
        self.count.merge(&groups)
    }

    fn subtract(&self, groups: &Groups, batch: &CallBatch) -> Result<Vec<Bytes>, ModuleFault> {
        match self.breaks("what is left") {
            true => Ok(groups.groups.iter().flat_map(|group| group.accumulators.clone()).collect()),
            false => self.count.subtract(groups, batch),
        }
    }

    fn close(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        match self.breaks("can be closed") && !groups.groups.is_empty() {
            true => Err(ModuleFault::Unsupported),
            false => self.count.close(groups),
        }
    }

    fn migrate(&self, from_version: u32, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        match self.breaks("migrates to itself") {
            true => Ok(vec![Bytes::from_static(&[0; 8]); groups.groups.len()]),
            false => self.count.migrate(from_version, groups),
        }
    }
}

#[test]
fn an_aggregator_that_breaks_a_duty_is_found() {
    let duties = [
        "in two calls",
        "one another",
        "one accumulator a record",
        "a value is JSON",
        "a merge",
        "what is left",
        "can be closed",
        "migrates to itself",
    ];
    for duty in duties {
        let bad = Bad { count: NativeAggregator::Count.build(), duty };
        let complaint = complaint(|| conformance::aggregator(&bad));
        assert!(complaint.contains(duty), "{duty}: {complaint}");
    }
}
