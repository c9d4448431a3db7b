//! `POST …/dry-run`: a trial of a version, without any effect.

use std::time::Duration;

use axum::Json;
use bytes::Bytes;
use levada_api::{
    DryRunDifference, DryRunModule, DryRunOutput, DryRunSide, DryRunVerdict, ErrorCode, GroupPartition, ModuleDryRun,
    Problem, RecordOut, Rendering, VerdictWord, WorldWord, parse_record_list, write_pair,
};
use levada_engine::{DryRun, DryRunInput, DryRunRecord, DryRunReport, From, ModuleError, Work, compute};
use levada_extension::{ModuleConfigError, Verdict};
use levada_model::limits::{DRY_RUN_RECORDS_MAX, MODULE_CONFIG_BYTES_MAX};
use levada_model::{Offset, PartitionIndex, Record, Timestamp, TimestampType, TopicName};
use serde_json::value::RawValue;

use super::group_trial;
use super::refusal::refuse;
use super::words::{line, world};
use crate::extract::{JsonBody, ModulePath, NoParams};
use crate::produce::refusal::body;
use crate::read::start;
use crate::refusal::{Refusal, topic_name};
use crate::state::{Caller, OpenEngine};

/// Try a version of a module
///
/// On the records of the request, or on stored ones of a topic; an assignor on members and topics. It runs as it does on duty, but in an instance of its own
/// whose instructions are counted, and nothing of it is stored. With `compare_with` another version gets the same records.
#[utoipa::path(post, path = "/v1/modules/{module}/dry-run", operation_id = "dry_run_module", tag = "Modules",
    params(("module" = String, Path, description = "The module's name")),
    request_body = DryRunModule,
    responses(
        (status = 200, description = "What it did; a version that gave no answer has a `fault`", body = ModuleDryRun),
        (status = 404, description = "`module-not-found`: no such module or version; `topic-not-found`"),
        (status = 409, description = "`modules-off`"),
        (status = 422, description = "`invalid-field`; `invalid-module-config`: not of this world, or not its config"),
    ))]
pub(super) async fn dry_run(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ModulePath(name): ModulePath,
    _: NoParams,
    JsonBody(wanted): JsonBody<DryRunModule>,
) -> Result<Json<ModuleDryRun>, Refusal> {
    let word = wanted.world;
    let trial = trial(wanted).await?;
    let report = engine.dry_run_module(&who, &name, trial).await.map_err(|error| match error {
        ModuleError::Config { module, error } => {
            let at = if matches!(error, ModuleConfigError::World { .. }) { "/world" } else { "/config" };
            let problem = refuse(ModuleError::Config { module, error });
            let detail = problem.detail.clone();
            problem.at(at, detail)
        }
        error => refuse(error),
    })?;
    let size = report.records.iter().map(|given| given.record.size_bytes()).sum();
    let told = move || Ok::<_, Problem>(told(word, report));
    Ok(Json(compute(Work::Parse, size, told).await?))
}

async fn trial(mut wanted: DryRunModule) -> Result<DryRun, Problem> {
    let config = wanted.config.as_ref().map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned());
    if config.len() > MODULE_CONFIG_BYTES_MAX {
        return Err(wrong("/config", &format!("a config has at most {MODULE_CONFIG_BYTES_MAX} bytes")));
    }
    let input =
        if wanted.world == WorldWord::Assignor { group_trial::group(&wanted)? } else { records(&mut wanted).await? };
    Ok(DryRun {
        world: world(wanted.world),
        version: wanted.version,
        config,
        input,
        compare_with: wanted.compare_with,
        partition_count: wanted.partition_count,
    })
}

/// The records of a trial, given or stored.
async fn records(wanted: &mut DryRunModule) -> Result<DryRunInput, Problem> {
    let of_group = [("/members", wanted.members.is_some()), ("/topics", wanted.topics.is_some())];
    if let Some((field, _)) = of_group.into_iter().find(|(_, is_there)| *is_there) {
        return Err(wrong(field, "only an assignor is tried on members and topics"));
    }
    match (wanted.records.take(), wanted.topic.take()) {
        (Some(records), None) => {
            if wanted.from.is_some() || wanted.max_records.is_some() {
                let field = if wanted.from.is_some() { "/from" } else { "/max_records" };
                return Err(wrong(field, "there is no topic that it could be of"));
            }
            given(records).await
        }
        (None, Some(topic)) => {
            let topic = TopicName::new(&topic).map_err(|error| topic_name(&error).at("/topic", error.to_string()))?;
            let from = wanted.from.as_deref().map_or(Ok(From::Earliest), |text| {
                start::word(text).ok_or_else(|| wrong("/from", "earliest, latest, time:MS or tail:N is taken"))
            })?;
            let most = DRY_RUN_RECORDS_MAX as u64;
            let max_records = wanted.max_records.unwrap_or(most).clamp(1, most);
            let max_records = usize::try_from(max_records).expect("cut to a small number");
            Ok(DryRunInput::Topic { topic, from, max_records })
        }
        _ => Err(wrong("", "one of records and topic is needed")),
    }
}

async fn given(list: Box<RawValue>) -> Result<DryRunInput, Problem> {
    let list = Bytes::from(String::from(Box::<str>::from(list)));
    let parse = {
        let list = list.clone();
        move || parse_record_list(&list)
    };
    let records = compute(Work::Parse, list.len(), parse).await.map_err(body)?;
    if records.len() > DRY_RUN_RECORDS_MAX {
        return Err(wrong("/records", &format!("a trial has at most {DRY_RUN_RECORDS_MAX} records")));
    }
    let given = records.into_iter().map(|sent| (sent.timestamp.unwrap_or(Timestamp(0)), sent.record));
    Ok(DryRunInput::Records(given.collect()))
}

fn wrong(pointer: &str, detail: &str) -> Problem {
    Problem::new(ErrorCode::InvalidField, detail).at(pointer, detail)
}

fn told(world: WorldWord, report: DryRunReport) -> ModuleDryRun {
    let DryRunReport { inputs, records, tried, compared, differences } = report;
    let tried = side(&records, tried);
    let difference = |input: usize| {
        let (partition, offset) = records.get(input).map_or((None, None), place);
        DryRunDifference { input: input as u64, partition, offset }
    };
    ModuleDryRun {
        world,
        inputs: inputs as u64,
        version: tried.version,
        outputs: tried.outputs,
        verdicts: tried.verdicts,
        fault: tried.fault,
        logs: tried.logs,
        instructions: tried.instructions,
        memory_peak_bytes: tried.memory_peak_bytes,
        elapsed_us: tried.elapsed_us,
        compared: compared.map(|compared| side(&records, compared)),
        differences: differences.into_iter().map(difference).collect(),
    }
}

fn side(records: &[DryRunRecord], side: levada_engine::DryRunSide) -> DryRunSide {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (mut outputs, mut verdicts, mut fault) = (Vec::new(), None, None);
    match side.output {
        Err(told) => fault = Some(told.to_string()),
        Ok(levada_engine::DryRunOutput::Verdicts(judged)) => {
            verdicts = Some(judge(records, judged, &mut outputs));
        }
        Ok(levada_engine::DryRunOutput::Partitions(partitions)) => {
            let output = |(input, partition): (u64, PartitionIndex)| DryRunOutput {
                input: Some(input),
                partition: Some(partition.0),
                ..DryRunOutput::default()
            };
            outputs = (0..).zip(partitions).map(output).collect();
        }
        Ok(levada_engine::DryRunOutput::Assignment(shares)) => {
            let named = |(topic, partition): (TopicName, PartitionIndex)| GroupPartition {
                topic: topic.into(),
                partition: partition.0,
            };
            let output = |(input, share): (u64, Vec<_>)| DryRunOutput {
                input: Some(input),
                assignment: Some(share.into_iter().map(named).collect()),
                ..DryRunOutput::default()
            };
            outputs = (0..).zip(shares).map(output).collect();
        }
        Ok(levada_engine::DryRunOutput::Values(values)) => {
            outputs = values.into_iter().map(|(key, value)| group(key.as_deref(), value.as_deref())).collect();
        }
    }
    DryRunSide {
        version: side.version,
        outputs,
        verdicts,
        fault,
        logs: side.logs.into_iter().map(|logged| line(side.version, logged)).collect(),
        instructions: side.instructions,
        memory_peak_bytes: side.memory_peak_bytes,
        elapsed_us: us(side.elapsed),
    }
}

fn judge(records: &[DryRunRecord], judged: Vec<Verdict>, outputs: &mut Vec<DryRunOutput>) -> Vec<DryRunVerdict> {
    let mut verdicts = Vec::with_capacity(records.len());
    for (input, (given, verdict)) in (0..).zip(records.iter().zip(judged)) {
        let mut reason = None;
        let word = match verdict {
            Verdict::Pass => {
                outputs.push(output(input, given, given.timestamp, &given.record));
                VerdictWord::Pass
            }
            Verdict::Drop => VerdictWord::Drop,
            Verdict::Emit(emitted) => {
                for emitted in emitted {
                    let (timestamp, record) = emitted.in_place_of(given.timestamp, &given.record);
                    outputs.push(output(input, given, timestamp, &record));
                }
                VerdictWord::Emit
            }
            Verdict::Reject(told) => {
                reason = Some(told);
                VerdictWord::Reject
            }
        };
        let (partition, offset) = place(given);
        verdicts.push(DryRunVerdict { input, partition, offset, verdict: word, reason });
    }
    verdicts
}

fn place(given: &DryRunRecord) -> (Option<u32>, Option<u64>) {
    given.place.map(|(partition, offset)| (partition.0, offset.0)).unzip()
}

fn output(input: u64, given: &DryRunRecord, timestamp: Timestamp, record: &Record) -> DryRunOutput {
    let (partition, offset) = given.place.unwrap_or((PartitionIndex(0), Offset(input)));
    let place =
        RecordOut { topic: None, partition, offset, timestamp, timestamp_type: TimestampType::CreateTime, record };
    let mut json = Vec::new();
    place.write_json(Rendering::default(), &mut json);
    DryRunOutput { input: Some(input), record: Some(raw(json)), ..DryRunOutput::default() }
}

fn group(key: Option<&[u8]>, value: Option<&[u8]>) -> DryRunOutput {
    let mut json = Vec::new();
    write_pair(&mut json, key, value, Rendering::default());
    DryRunOutput { group: Some(raw(json)), ..DryRunOutput::default() }
}

/// JSON that was just written.
pub(crate) fn raw(json: Vec<u8>) -> Box<RawValue> {
    let text = String::from_utf8(json).expect("JSON is UTF-8");
    RawValue::from_string(text).expect("it is JSON")
}
