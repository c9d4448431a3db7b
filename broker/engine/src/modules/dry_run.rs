//! Trials of versions, on records that are given or stored. Nothing is stored, and the module that is tried is a twin of its
//! own, so that the same trial has the same outcome every time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use levada_extension::{
    Aggregator, CallBatch, CallSection, Group, Groups, KeyRecord, Keys, ModuleConfigError, ModuleFault, ModuleVersion,
    ModuleWorld, Moment, check_outputs,
};
use levada_model::{ModuleName, ModuleRef, Offset, PartitionIndex, Principal, Timestamp, TopicName, limits};
use tokio::time::Instant;

use super::changes::config_error;
use super::extension::run;
use super::group_trial::GroupTrial;
use super::judging::judge;
use super::registry::refused;
use super::terms::{DryRun, DryRunInput, DryRunOutput, DryRunRecord, DryRunReport, DryRunSide, ModuleError};
use crate::partition::blocking;
use crate::{Engine, FetchRequest, From, Isolation};

/// Partitions that a partitioner is tried with where neither a number nor a topic is given.
const PARTITIONS: u32 = 12;
/// What records that are given are said to be of.
const NO_TOPIC: &str = "dry-run";

/// Keys of records, and the values of all records of each.
type Values = Vec<(Option<Bytes>, Option<Bytes>)>;

/// What is tried, on what.
struct Trial {
    world: ModuleWorld,
    config: String,
    /// Of an assignor.
    group: Option<GroupTrial>,
    topic: TopicName,
    records: Vec<DryRunRecord>,
    partition_count: u32,
    moment: Moment,
}

impl Engine {
    /// Runs a trial that `who` may do.
    pub(super) async fn try_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        trial: DryRun,
    ) -> Result<DryRunReport, ModuleError> {
        let group = match (trial.world, &trial.input) {
            (ModuleWorld::Assignor, DryRunInput::Group { members, topics }) => Some(GroupTrial::new(members, topics)?),
            (ModuleWorld::Assignor, DryRunInput::Records(_) | DryRunInput::Topic { .. }) => {
                let detail = "an assignor is tried on members and topics, not on records";
                return Err(ModuleError::DryRun(detail.to_owned()));
            }
            (_, DryRunInput::Group { .. }) => {
                let detail = "only an assignor is tried on members and topics";
                return Err(ModuleError::DryRun(detail.to_owned()));
            }
            _ => None,
        };
        let members = if let DryRunInput::Group { members, .. } = &trial.input { members.len() } else { 0 };
        let (topic, records, partitions) = self.input(who, trial.input).await?;
        let inputs = members + records.len();
        let time = records.iter().map(|record| record.timestamp).max().unwrap_or(Timestamp(0));
        let partition_count = trial.partition_count.or(partitions).unwrap_or(PARTITIONS);
        if !(1..=limits::PARTITIONS_MAX).contains(&partition_count) {
            let detail = format!("a topic has 1 to {} partitions, not {partition_count}", limits::PARTITIONS_MAX);
            return Err(ModuleError::DryRun(detail));
        }
        let (world, config, moment) = (trial.world, trial.config, Moment { time, seed: 0 });
        let shared = Arc::new(Trial { world, config, group, topic, records, partition_count, moment });
        let tried = self.try_version(name, trial.version, &shared).await?;
        let compared = match trial.compare_with {
            Some(version) => Some(self.try_version(name, Some(version), &shared).await?),
            None => None,
        };
        let Trial { records, .. } = &*shared;
        let differences =
            compared.as_ref().map(|compared| differences(records, inputs, &tried.output, &compared.output));
        let differences = differences.unwrap_or_default();
        Ok(DryRunReport { inputs, records: records.clone(), tried, compared, differences })
    }

    /// The records of a trial, of which topic they are, and its partitions if it is one.
    async fn input(
        &self,
        who: &Principal,
        input: DryRunInput,
    ) -> Result<(TopicName, Vec<DryRunRecord>, Option<u32>), ModuleError> {
        match input {
            DryRunInput::Records(given) if given.len() > limits::DRY_RUN_RECORDS_MAX => {
                Err(ModuleError::DryRun(format!("a trial has at most {} records", limits::DRY_RUN_RECORDS_MAX)))
            }
            DryRunInput::Records(given) => {
                let given = given.into_iter();
                let records = given.map(|(timestamp, record)| DryRunRecord { place: None, timestamp, record });
                Ok((TopicName::new(NO_TOPIC).expect("the name keeps the rule"), records.collect(), None))
            }
            DryRunInput::Group { .. } => {
                Ok((TopicName::new(NO_TOPIC).expect("the name keeps the rule"), Vec::new(), None))
            }
            DryRunInput::Topic { topic, from, max_records } => {
                let count = self.readable(who, &topic)?.state().active_count;
                let records = self.stored(who, &topic, from, max_records.min(limits::DRY_RUN_RECORDS_MAX)).await?;
                Ok((topic, records, Some(count)))
            }
        }
    }

    /// Stored records, the same share of each partition.
    async fn stored(
        &self,
        who: &Principal,
        topic: &TopicName,
        from: From,
        max_records: usize,
    ) -> Result<Vec<DryRunRecord>, ModuleError> {
        let state = self.readable(who, topic)?.state_full();
        let partitions: Vec<_> = state.partitions().map(|partition| partition.index()).collect();
        let share = max_records.div_ceil(partitions.len().max(1));
        let bytes = limits::DRY_RUN_BYTES_MAX / partitions.len().max(1);
        let mut records = Vec::new();
        for partition in partitions {
            let (mut from, mut left, mut bytes_left) = (from, share.min(max_records - records.len()), bytes);
            while left > 0 && bytes_left > 0 {
                let (wait, isolation) = (Duration::ZERO, Isolation::ReadCommitted);
                let request = FetchRequest {
                    from,
                    max_records: left,
                    max_bytes: bytes_left,
                    wait,
                    isolation,
                    filter: None,
                    as_stored: false,
                };
                let mut fetched = self.fetch(who, topic, partition, request).await?;
                if from == From::Offset(fetched.next_offset) {
                    break;
                }
                from = From::Offset(fetched.next_offset);
                for record in fetched.take_records().filter_map(Result::ok) {
                    left = left.saturating_sub(1);
                    bytes_left = bytes_left.saturating_sub(record.record.size_bytes());
                    let place = Some((partition, record.offset));
                    records.push(DryRunRecord { place, timestamp: record.timestamp, record: record.record });
                }
            }
        }
        Ok(records)
    }

    /// What one version does.
    async fn try_version(
        &self,
        name: &ModuleName,
        version: Option<u32>,
        trial: &Arc<Trial>,
    ) -> Result<DryRunSide, ModuleError> {
        let module = ModuleRef { name: name.clone(), version };
        let (number, _) = self.core.modules.resolve(&module)?;
        let module = ModuleRef { version: Some(number), ..module };
        let version = self.core.modules.version(&module).await?;
        let modules = self.core.modules.clone();
        let twin = blocking(move || modules.twin(&*version)).await.map_err(refused)?;
        let started = Instant::now();
        let (shared, asked) = (trial.clone(), twin.clone());
        let output = run(&twin, move || shared.ask(&*asked)).await;
        let elapsed = started.elapsed();
        let output = output.map_err(|busy| ModuleError::Busy(busy.reason))?;
        let output = output.map_err(|error| config_error(module, error))?;
        let stats = twin.stats();
        Ok(DryRunSide {
            version: number,
            output,
            logs: twin.logs(0, limits::MODULE_LOG_LINES_MAX).lines,
            instructions: stats.instructions.unwrap_or(0),
            memory_peak_bytes: stats.memory_peak_bytes,
            elapsed,
        })
    }
}

impl Trial {
    /// Asks a version. Runs on a thread of the host.
    fn ask(&self, version: &dyn ModuleVersion) -> Result<Result<DryRunOutput, ModuleFault>, ModuleConfigError> {
        Ok(match self.world {
            ModuleWorld::Transform => {
                let transform = version.transform(&self.config)?;
                let batch = self.batch();
                judge(&*transform, &batch).and_then(|verdicts| {
                    check_outputs(&batch, &verdicts)?;
                    Ok(DryRunOutput::Verdicts(verdicts))
                })
            }
            ModuleWorld::Partitioner => {
                let partitioner = version.partitioner(&self.config)?;
                let key = |DryRunRecord { timestamp, record, .. }: &'_ DryRunRecord| (*timestamp, record.clone());
                let records: Vec<_> = self.records.iter().map(key).collect();
                let keys: Vec<_> = records
                    .iter()
                    .map(|(timestamp, record)| KeyRecord {
                        timestamp: *timestamp,
                        key: record.key.as_deref(),
                        value: record.value.as_deref(),
                        headers: &record.headers,
                    })
                    .collect();
                let keys = Keys { topic: &self.topic, moment: self.moment, records: &keys };
                crate::produce::choose(&*partitioner, &keys, self.partition_count).map(DryRunOutput::Partitions)
            }
            ModuleWorld::Aggregator => {
                let aggregator = version.aggregator(&self.config)?;
                self.values(&*aggregator).map(DryRunOutput::Values)
            }
            ModuleWorld::Assignor => {
                let group = self.group.as_ref().expect("an assignor is tried on a group");
                group.ask(version, &self.config)?.map(DryRunOutput::Assignment)
            }
        })
    }

    /// The records as a module is given them: sections whose offsets are dense.
    fn batch(&self) -> CallBatch {
        let follows = |a: &DryRunRecord, b: &DryRunRecord| match (a.place, b.place) {
            (None, None) => true,
            (Some((p, a)), Some((q, b))) => p == q && a.advance(1) == b,
            _ => false,
        };
        let section = |records: &[DryRunRecord]| {
            let (partition, base_offset) = records[0].place.unwrap_or((PartitionIndex(0), Offset(0)));
            let given: Vec<_> = records.iter().map(|record| (record.timestamp, record.record.clone())).collect();
            CallSection { base_offset, ..CallSection::unstored(self.topic.clone(), partition, &given) }
        };
        CallBatch { moment: self.moment, sections: self.records.chunk_by(follows).map(section).collect() }
    }

    /// The value of all records of each key.
    fn values(&self, aggregator: &dyn Aggregator) -> Result<Values, ModuleFault> {
        let mut by_key: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (place, record) in (0..).zip(&self.records) {
            by_key.entry(record.record.key.clone()).or_default().push(place);
        }
        let group = |(key, records): (&Option<Bytes>, &Vec<u32>)| {
            let key = String::from_utf8_lossy(key.as_deref().unwrap_or_default()).into_owned();
            Group { key, window: None, accumulators: Vec::new(), records: records.clone() }
        };
        let mut groups = Groups { moment: self.moment, groups: by_key.iter().map(group).collect() };
        let accumulators = aggregator.fold(&groups, &self.batch(), false)?;
        for (group, accumulator) in groups.groups.iter_mut().zip(accumulators) {
            (group.accumulators, group.records) = (vec![accumulator], Vec::new());
        }
        Ok(by_key.into_keys().zip(aggregator.result(&groups)?).collect())
    }
}

/// Places of the records, or members, for which two versions differ.
fn differences(
    records: &[DryRunRecord],
    inputs: usize,
    a: &Result<DryRunOutput, ModuleFault>,
    b: &Result<DryRunOutput, ModuleFault>,
) -> Vec<usize> {
    let places = 0..inputs;
    match (a, b) {
        (Ok(a), Ok(b)) => {
            let (a, b) = (by_record(records, a), by_record(records, b));
            places.filter(|place| a[*place] != b[*place]).collect()
        }
        (a, b) if a == b => Vec::new(),
        _ => places.collect(),
    }
}

/// What became of each record or member, in a form that can be compared.
fn by_record(records: &[DryRunRecord], output: &DryRunOutput) -> Vec<String> {
    match output {
        DryRunOutput::Verdicts(verdicts) => verdicts.iter().map(|verdict| format!("{verdict:?}")).collect(),
        DryRunOutput::Assignment(shares) => shares.iter().map(|share| format!("{share:?}")).collect(),
        DryRunOutput::Partitions(partitions) => partitions.iter().map(PartitionIndex::to_string).collect(),
        DryRunOutput::Values(values) => {
            let values: BTreeMap<_, _> = values.iter().map(|(key, value)| (key, value)).collect();
            records.iter().map(|record| format!("{:?}", values.get(&record.record.key))).collect()
        }
    }
}
