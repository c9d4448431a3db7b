//! The aggregators that are built in, behind one mechanism.

use std::sync::Arc;

use bytes::Bytes;

use super::count::Count;
use super::extreme::{Extreme, Side};
use super::sum::{Sum, Worth};
use super::{Aggregator, Group, Groups};
use crate::{CallBatch, CallRecord, JsonPointer, ModuleFault};

/// The accumulators of all of them have this version.
const STATE_VERSION: u32 = 1;

/// Which of the aggregators that are built in. Numbers are those at a pointer in a record's value; a record without a number
/// there changes nothing, but for `Count`, which counts all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeAggregator {
    /// How many records there are, tombstones included.
    Count,
    /// The sum; an integer, of any length, as long as only integers of 64 bits are in it.
    Sum(JsonPointer),
    /// The least number, digit for digit; null without numbers.
    Min(JsonPointer),
    /// The largest number, digit for digit; null without numbers.
    Max(JsonPointer),
    /// The mean, as a double; null without numbers.
    Avg(JsonPointer),
}

impl NativeAggregator {
    /// The aggregator.
    #[must_use]
    pub fn build(self) -> Arc<dyn Aggregator> {
        match self {
            Self::Count => Arc::new(Native(Count)),
            Self::Sum(pointer) => Arc::new(Native(Sum { pointer, worth: Worth::Total })),
            Self::Avg(pointer) => Arc::new(Native(Sum { pointer, worth: Worth::Mean })),
            Self::Min(pointer) => Arc::new(Native(Extreme { pointer, side: Side::Least })),
            Self::Max(pointer) => Arc::new(Native(Extreme { pointer, side: Side::Largest })),
        }
    }
}

/// What one of them does with its accumulators.
pub(super) trait Fold: Send + Sync {
    /// An accumulator, read.
    type State;

    /// That of no records.
    fn empty(&self) -> Self::State;
    /// Reads what [`write`](Self::write) wrote.
    fn read(&self, bytes: &[u8]) -> Option<Self::State>;
    /// The accumulator's bytes.
    fn write(&self, state: &Self::State) -> Bytes;
    /// Takes a record in.
    fn add(&self, state: &mut Self::State, record: &CallRecord<'_>);
    /// Takes a record out again; none where that cannot be.
    fn remove(&self, state: &mut Self::State, record: &CallRecord<'_>) -> Option<()>;
    /// Takes in what came later in time.
    fn merge(&self, state: &mut Self::State, later: Self::State);
    /// What it is worth, as JSON text.
    fn value(&self, state: &Self::State) -> String;
}

struct Native<F>(F);

impl<F: Fold> Native<F> {
    fn read(&self, group: &Group, accumulator: &[u8]) -> Result<F::State, ModuleFault> {
        let reason = || format!("group {:?} has an accumulator that is not of this aggregator", group.key);
        self.0.read(accumulator).ok_or_else(|| failed(reason()))
    }

    /// The one accumulator that a group brings.
    fn only(&self, group: &Group) -> Result<F::State, ModuleFault> {
        match &group.accumulators[..] {
            [accumulator] => self.read(group, accumulator),
            others => Err(failed(format!("group {:?} has {} accumulators, not one", group.key, others.len()))),
        }
    }
}

impl<F: Fold> Aggregator for Native<F> {
    fn state_version(&self) -> u32 {
        STATE_VERSION
    }

    fn fold(&self, groups: &Groups, batch: &CallBatch, each_record: bool) -> Result<Vec<Bytes>, ModuleFault> {
        let records = batch.records().collect::<Result<Vec<_>, _>>()?;
        let mut accumulators = Vec::with_capacity(groups.fold_answers(each_record));
        for group in &groups.groups {
            let mut state = match group.accumulators.is_empty() {
                true => self.0.empty(),
                false => self.only(group)?,
            };
            for place in &group.records {
                self.0.add(&mut state, record_at(&records, *place)?);
                if each_record {
                    accumulators.push(self.0.write(&state));
                }
            }
            if !each_record {
                accumulators.push(self.0.write(&state));
            }
        }
        Ok(accumulators)
    }

    fn result(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        let value = |group| Ok(Some(self.0.value(&self.only(group)?).into()));
        groups.groups.iter().map(value).collect()
    }

    fn merge(&self, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        let merge = |group: &Group| {
            let mut state = self.0.empty();
            for accumulator in &group.accumulators {
                self.0.merge(&mut state, self.read(group, accumulator)?);
            }
            Ok(self.0.write(&state))
        };
        groups.groups.iter().map(merge).collect()
    }

    fn subtract(&self, groups: &Groups, batch: &CallBatch) -> Result<Vec<Bytes>, ModuleFault> {
        let records = batch.records().collect::<Result<Vec<_>, _>>()?;
        let subtract = |group: &Group| {
            let mut state = self.only(group)?;
            for place in &group.records {
                self.0.remove(&mut state, record_at(&records, *place)?).ok_or(ModuleFault::Unsupported)?;
            }
            Ok(self.0.write(&state))
        };
        groups.groups.iter().map(subtract).collect()
    }

    fn close(&self, groups: &Groups) -> Result<Vec<Option<Bytes>>, ModuleFault> {
        self.result(groups)
    }

    fn migrate(&self, from_version: u32, groups: &Groups) -> Result<Vec<Bytes>, ModuleFault> {
        if from_version != STATE_VERSION {
            return Err(ModuleFault::Unsupported);
        }
        groups.groups.iter().map(|group| Ok(self.0.write(&self.only(group)?))).collect()
    }
}

fn record_at<'r, 'b>(records: &'r [CallRecord<'b>], place: u32) -> Result<&'r CallRecord<'b>, ModuleFault> {
    records.get(place as usize).ok_or_else(|| failed(format!("a group names record {place} of {}", records.len())))
}

fn failed(reason: String) -> ModuleFault {
    ModuleFault::Failed { reason }
}
