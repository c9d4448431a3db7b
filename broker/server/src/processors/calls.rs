//! Processors as they are: put, list, describe, pause, resume, reset, delete.

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use http::StatusCode;
use levada_api::{ErrorCode, Problem, Processor, ProcessorDocument, ProcessorList, ProcessorReset, ResetProcessor};
use levada_engine::From;
use levada_model::{Offset, ProcessorName};

use super::document::{Document, DocumentBody, start};
use super::refusal::refuse;
use super::words::{processor, task};
use crate::AppState;
use crate::extract::{JsonBody, NoParams, Params, ProcessorPath, json_integer};
use crate::listing::{Page, next_cursor};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// What a reset may be to.
const RESET_RULE: &str = "earliest, latest, time:MS, tail:N or offset:N is taken";

/// Put a processor
///
/// It begins to run at once: where it begins is settled when this is answered. Another document takes over at a batch
/// boundary, where the one before stands.
#[utoipa::path(put, path = "/v1/processors/{processor}", operation_id = "put_processor", tag = "Processors",
    params(("processor" = String, Path, description = "The processor's name; as for topics, but of at most 200 characters")),
    request_body = ProcessorDocument,
    responses(
        (status = 200, description = "This document takes over, durably", body = Processor),
        (status = 201, description = "It runs, durably", body = Processor),
        (status = 409, description = "`processors-full`"),
        (status = 422, description = "`invalid-field`: what is unknown or wrong, each at its place; also topics and modules \
            that are not there, and windows, which this broker has not yet"),
    ))]
pub(super) async fn put(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(name): ProcessorPath,
    _: NoParams,
    request: Request,
) -> Result<(StatusCode, Json<Processor>), Refusal> {
    let DocumentBody(Document { spec, from, max_records }) = DocumentBody::from_request(request, &state).await?;
    let of_trials = [("/from", from.is_some()), ("/max_records", max_records.is_some())];
    if let Some((pointer, _)) = of_trials.into_iter().find(|(_, is_there)| *is_there) {
        let detail = "a trial has this; a source has a start";
        return Err(Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}")).at(pointer, detail).into());
    }
    let (info, is_new) = engine.put_processor(&who, &name, spec).await.map_err(refuse)?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(processor(info))))
}

/// List processors, by name
#[utoipa::path(get, path = "/v1/processors", operation_id = "list_processors", tag = "Processors",
    params(
        ("limit" = Option<u32>, Query, description = "Most processors; 100 by default, cut to 1000", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before", min_length = 1),
    ),
    responses((status = 200, description = "A page of processors", body = ProcessorList)))]
pub(super) async fn list(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    mut params: Params,
) -> Result<Json<ProcessorList>, Refusal> {
    let page = Page::<ProcessorName>::read(&mut params)?;
    params.finish()?;
    let (infos, has_more) = engine.processors(&who, page.after.as_ref(), page.limit).await.map_err(refuse)?;
    let processors: Vec<_> = infos.into_iter().map(processor).collect();
    let next_cursor = processors.last().filter(|_| has_more).map(|last| next_cursor(&last.name));
    Ok(Json(ProcessorList { processors, next_cursor }))
}

/// Describe a processor: how it stands, and where
#[utoipa::path(get, path = "/v1/processors/{processor}", operation_id = "describe_processor", tag = "Processors",
    params(("processor" = String, Path, description = "The processor's name")),
    responses(
        (status = 200, description = "The processor", body = Processor),
        (status = 404, description = "`processor-not-found`"),
    ))]
pub(super) async fn describe(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(name): ProcessorPath,
    _: NoParams,
) -> Result<Json<Processor>, Refusal> {
    Ok(Json(processor(engine.processor(&who, &name).await.map_err(refuse)?)))
}

/// Delete a processor with its positions
#[utoipa::path(delete, path = "/v1/processors/{processor}", operation_id = "delete_processor", tag = "Processors",
    params(
        ("processor" = String, Path, description = "The processor's name"),
        ("keep_state" = Option<bool>, Query, description = "Keep its positions: one put under this name goes on there"),
    ),
    responses(
        (status = 204, description = "Deleted, durably"),
        (status = 404, description = "`processor-not-found`"),
    ))]
pub(super) async fn delete(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(name): ProcessorPath,
    mut params: Params,
) -> Result<StatusCode, Refusal> {
    let keep_state = params.flag("keep_state")?;
    params.finish()?;
    engine.delete_processor(&who, &name, keep_state).await.map_err(refuse)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a processor
///
/// Answers when it stands still, at a batch boundary with its positions committed.
#[utoipa::path(post, path = "/v1/processors/{processor}/pause", operation_id = "pause_processor", tag = "Processors",
    params(("processor" = String, Path, description = "The processor's name")),
    responses(
        (status = 200, description = "It stands still", body = Processor),
        (status = 404, description = "`processor-not-found`"),
    ))]
pub(super) async fn pause(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(name): ProcessorPath,
    _: NoParams,
) -> Result<Json<Processor>, Refusal> {
    Ok(Json(processor(engine.pause_processor(&who, &name, true).await.map_err(refuse)?)))
}

/// Have a processor go on
///
/// Also one that failed: it tries the same record again.
#[utoipa::path(post, path = "/v1/processors/{processor}/resume", operation_id = "resume_processor", tag = "Processors",
    params(("processor" = String, Path, description = "The processor's name")),
    responses(
        (status = 200, description = "It runs", body = Processor),
        (status = 404, description = "`processor-not-found`"),
    ))]
pub(super) async fn resume(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(name): ProcessorPath,
    _: NoParams,
) -> Result<Json<Processor>, Refusal> {
    Ok(Json(processor(engine.pause_processor(&who, &name, false).await.map_err(refuse)?)))
}

/// Set where a processor goes on, while it stands still
#[utoipa::path(post, path = "/v1/processors/{processor}/reset", operation_id = "reset_processor", tag = "Processors",
    params(("processor" = String, Path, description = "The processor's name")),
    request_body = ResetProcessor,
    responses(
        (status = 200, description = "Where it goes on", body = ProcessorReset),
        (status = 404, description = "`processor-not-found`"),
        (status = 409, description = "`processor-running`: pause it first"),
        (status = 422, description = "`invalid-field`"),
    ))]
pub(super) async fn reset(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ProcessorPath(name): ProcessorPath,
    _: NoParams,
    JsonBody(wanted): JsonBody<ResetProcessor>,
) -> Result<Json<ProcessorReset>, Refusal> {
    let ResetProcessor { start: text, dry_run } = wanted;
    let offset = || text.strip_prefix("offset:").and_then(json_integer).map(|offset| From::Offset(Offset(offset)));
    let start = start(&text).or_else(offset).ok_or_else(|| {
        Problem::new(ErrorCode::InvalidField, format!("/start: {RESET_RULE}")).at("/start", RESET_RULE)
    })?;
    let reset = levada_engine::ProcessorReset { start, dry_run };
    let tasks = engine.reset_processor(&who, &name, reset).await.map_err(refuse)?;
    Ok(Json(ProcessorReset { dry_run, tasks: tasks.into_iter().map(task).collect() }))
}
