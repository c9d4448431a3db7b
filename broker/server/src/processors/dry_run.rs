//! `POST …/dry-run`: a document over stored records, without any effect.

use axum::Json;
use levada_api::{DryRunFailure, DryRunProcessor, ErrorCode, Problem, ProcessorDryRun};
use levada_engine::{From, Work, compute};
use levada_model::limits::DRY_RUN_RECORDS_MAX;
use levada_model::{Offset, PartitionIndex};

use super::document::{Document, DocumentBody, START_RULE, start};
use super::refusal::refuse;
use super::words::record_out;
use crate::extract::{NoParams, ProcessorPath};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Records that a trial reads where nothing is said.
const RECORDS_DEFAULT: u64 = 1_000;

/// Try a document
///
/// What it would make of stored records of its sources; nothing is stored. It need not be the processor's own, and there
/// need be no processor of this name.
#[utoipa::path(post, path = "/v1/processors/{processor}/dry-run", operation_id = "dry_run_processor", tag = "Processors",
    params(
        ("processor" = String, Path, description = "A processor's name"),
    ),
    request_body = DryRunProcessor,
    responses(
        (status = 200, description = "What would go to the sink", body = ProcessorDryRun),
        (status = 422, description = "`invalid-field`: what is wrong with the document, each at its place"),
    ))]
pub(super) async fn dry_run(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(_): ProcessorPath,
    _: NoParams,
    DocumentBody(document): DocumentBody,
) -> Result<Json<ProcessorDryRun>, Refusal> {
    let Document { spec, from, max_records } = document;
    let from = from.as_deref().map_or(Ok(From::Earliest), |text| {
        let wrong = || Problem::new(ErrorCode::InvalidField, format!("/from: {START_RULE}")).at("/from", START_RULE);
        start(text).ok_or_else(wrong)
    })?;
    let max_records = max_records.unwrap_or(RECORDS_DEFAULT).clamp(1, DRY_RUN_RECORDS_MAX as u64);
    let max_records = usize::try_from(max_records).expect("cut to a small number");
    let report = engine.dry_run_processor(&who, spec, from, max_records).await.map_err(refuse)?;
    let size = report.rows.iter().map(|(.., record)| record.size_bytes()).sum();
    let told = move || Ok::<_, Problem>(told(report));
    Ok(Json(compute(Work::Parse, size, told).await?))
}

fn told(report: levada_engine::ProcessorDryRun) -> ProcessorDryRun {
    let row = |(partition, offset, timestamp, record)| record_out(partition, offset, timestamp, &record);
    let failure = |(partition, offset, reason): (PartitionIndex, Offset, String)| DryRunFailure {
        partition: partition.0,
        offset: offset.0,
        reason,
    };
    ProcessorDryRun {
        records_in: report.records_in,
        rows: report.rows.into_iter().map(row).collect(),
        failed: report.failed.into_iter().map(failure).collect(),
        truncated: report.truncated,
    }
}
