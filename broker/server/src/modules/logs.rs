//! How a module fares: its log, also as an endless event stream, and its numbers.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName};
use levada_api::media::{EVENT_STREAM, JSON};
use levada_api::{ErrorCode, ModuleLog, ModuleStats, Problem, echo};
use levada_engine::{Engine, ModuleError};
use levada_model::limits::MODULE_LOG_LINES_MAX;
use levada_model::{ModuleName, ModuleRef, Principal};
use tokio::time::{Instant, timeout};

use super::refusal::refuse;
use super::words::line;
use crate::AppState;
use crate::extract::{ModulePath, Params, accepts, digits};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};
use crate::streamed::streamed;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How often an event stream looks for new lines.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Read a module's log
///
/// The newest 1000 lines of a version are kept, in memory: they go with a restart of the broker. As `text/event-stream` the
/// log goes on for ever, with the lines of whichever version is active: events `log` (`data`: a line, `id`: its place, for
/// `Last-Event-ID`), `dropped` (lines that nobody can read any more), `heartbeat` and `error` (a problem, the last event).
#[utoipa::path(get, path = "/v1/modules/{module}/logs", operation_id = "module_logs", tag = "Modules",
    params(
        ("module" = String, Path, description = "The module's name"),
        ("version" = Option<u32>, Query, description = "The version; the active one by default", minimum = 1),
        ("from" = Option<u64>, Query, description = "Number of the first line; 0 by default; not for an event stream"),
        ("limit" = Option<u64>, Query, description = "Most lines; 1000 by default and at most; not for an event stream", minimum = 1),
        ("Last-Event-ID" = Option<String>, Header, description = "Event streams only: the `id` of the last event seen"),
    ),
    responses(
        (status = 200, description = "The lines; none where nothing was logged", content(
            (ModuleLog = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, description = "`module-not-found`: no such module or version"),
        (status = 409, description = "`modules-off`"),
        (status = 422, description = "`integer-too-large`: beyond 2^53 - 1"),
    ))]
pub(super) async fn logs(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ModulePath(name): ModulePath,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let is_stream = accepts(&headers, &[JSON, EVENT_STREAM])? == EVENT_STREAM;
    let version = version(&mut params)?;
    if is_stream {
        params.finish()?;
        let at = last_event(&headers)?;
        // What cannot be read at all is refused while it still can be.
        page(&engine, &who, &name, version, 0, 0).await.map_err(refuse)?;
        let now = Instant::now();
        let feed = Feed { state, engine, who, name, version, at, dropped: 0, last: now, stage: Stage::New };
        return Ok(answer(feed));
    }
    let from = params.integer("from")?.unwrap_or(0);
    let most = MODULE_LOG_LINES_MAX as u64;
    let limit = params.clamped("limit", 1, most, most)?;
    params.finish()?;
    let limit = usize::try_from(limit).expect("cut to a small number");
    Ok(Json(page(&engine, &who, &name, version, from, limit).await.map_err(refuse)?).into_response())
}

/// Tell a module's numbers
///
/// Of one version, since it was loaded.
#[utoipa::path(get, path = "/v1/modules/{module}/stats", operation_id = "module_stats", tag = "Modules",
    params(
        ("module" = String, Path, description = "The module's name"),
        ("version" = Option<u32>, Query, description = "The version; the active one by default", minimum = 1),
    ),
    responses(
        (status = 200, description = "The numbers", body = ModuleStats),
        (status = 404, description = "`module-not-found`: no such module or version"),
        (status = 409, description = "`modules-off`"),
    ))]
pub(super) async fn stats(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ModulePath(name): ModulePath,
    mut params: Params,
) -> Result<Json<ModuleStats>, Refusal> {
    let version = version(&mut params)?;
    params.finish()?;
    let version = resolve(&engine, &who, &name, version).map_err(refuse)?;
    let module = ModuleRef { name, version: Some(version) };
    let stats = engine.module_stats(&who, &module).await.map_err(refuse)?;
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Ok(Json(ModuleStats {
        version,
        calls: stats.calls,
        records: stats.records,
        cpu_us: us(stats.cpu),
        call_p99_us: us(stats.call_p99),
        memory_peak_bytes: stats.memory_peak_bytes,
        traps: stats.traps,
        deadlines: stats.deadlines,
        refused_answers: stats.refused_answers,
        fallbacks: stats.fallbacks,
        instances: stats.instances,
        counters: stats.counters,
        counters_dropped: stats.counters_dropped,
    }))
}

fn version(params: &mut Params) -> Result<Option<u32>, Problem> {
    params.value("version", |text| digits(text).filter(|version| *version > 0).ok_or("a version, from 1"))
}

/// The version that is meant, which may be the active one.
fn resolve(engine: &Engine, who: &Principal, name: &ModuleName, version: Option<u32>) -> Result<u32, ModuleError> {
    let active = engine.module(who, name)?.active_version;
    Ok(version.unwrap_or(active))
}

async fn page(
    engine: &Engine,
    who: &Principal,
    name: &ModuleName,
    version: Option<u32>,
    from: u64,
    lines_max: usize,
) -> Result<ModuleLog, ModuleError> {
    let version = resolve(engine, who, name, version)?;
    let module = ModuleRef { name: name.clone(), version: Some(version) };
    let page = engine.module_logs(who, &module, from, lines_max).await?;
    let lines = page.lines.into_iter().map(|logged| line(version, logged)).collect();
    Ok(ModuleLog { version, lines, next: page.next, dropped: page.dropped })
}

/// Where a reader of an event stream stands: a version, and the number of its next line.
type At = Option<(u32, u64)>;

fn last_event(headers: &HeaderMap) -> Result<At, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) else { return Ok(None) };
    let text = id.to_str().unwrap_or_default();
    let place = text.split_once('.').and_then(|(version, line)| Some((digits(version)?, digits::<u64>(line)?)));
    let Some((version, number)) = place else {
        let detail = format!("Last-Event-ID {:?} was not given out here", echo(text));
        return Err(Problem::new(ErrorCode::InvalidCursor, detail));
    };
    Ok(Some((version, number.saturating_add(1))))
}

fn answer(feed: Feed) -> Response {
    let events = stream::unfold(feed, |mut feed| async move {
        let events = feed.step().await?;
        Some((Ok::<_, Infallible>(events), feed))
    });
    streamed(Body::from_stream(events), EVENT_STREAM)
}

#[derive(PartialEq, Eq)]
enum Stage {
    /// Nothing was written yet.
    New,
    /// On and on.
    Going,
    /// The error was told.
    Over,
}

struct Feed {
    state: AppState,
    engine: Engine,
    who: Principal,
    name: ModuleName,
    version: Option<u32>,
    at: At,
    dropped: u64,
    /// When something was written last.
    last: Instant,
    stage: Stage,
}

impl Feed {
    /// The next events; none after an error, and when the server ends.
    async fn step(&mut self) -> Option<Bytes> {
        if self.stage == Stage::Over {
            return None;
        }
        // The head goes out at once, also where nothing was logged.
        if self.stage == Stage::New {
            self.stage = Stage::Going;
            return Some(Bytes::from_static(b": the log of a module\n\n"));
        }
        let mut out = String::new();
        loop {
            if let Err(error) = self.read(&mut out).await {
                self.stage = Stage::Over;
                put(&mut out, "error", None, &refuse(error));
            } else if out.is_empty() && self.last.elapsed() >= self.state.heartbeat() {
                out.push_str("event: heartbeat\ndata: {}\n\n");
            }
            if !out.is_empty() {
                self.last = Instant::now();
                return Some(out.into());
            }
            // The engine tells nobody of new lines, so that a module that logs costs its callers no more.
            if timeout(LOOK_INTERVAL.min(self.state.heartbeat()), self.state.closing()).await.is_ok() {
                return None;
            }
        }
    }

    /// Writes the lines that are new.
    async fn read(&mut self, out: &mut String) -> Result<(), ModuleError> {
        let version = resolve(&self.engine, &self.who, &self.name, self.version)?;
        let from = match self.at {
            Some((of, next)) if of == version => next,
            before => {
                // Its calls went on until this version was active, and what they logged since the last look was not told.
                if let Some((of, next)) = before {
                    self.read_rest(of, next, out).await;
                }
                self.dropped = 0;
                0
            }
        };
        let Self { engine, who, name, .. } = self;
        let mut log = page(engine, who, name, Some(version), from, MODULE_LOG_LINES_MAX).await?;
        // The broker has started again since, and counts anew.
        if log.next < from {
            log = page(engine, who, name, Some(version), 0, MODULE_LOG_LINES_MAX).await?;
            self.dropped = 0;
        }
        if log.dropped > self.dropped {
            put(out, "dropped", None, &serde_json::json!({ "lines": log.dropped - self.dropped }));
            self.dropped = log.dropped;
        }
        put_lines(out, &log);
        self.at = Some((version, log.next));
        Ok(())
    }

    /// Writes what a version that was active has logged behind its last line that was told, if that can still be read.
    async fn read_rest(&mut self, version: u32, next: u64, out: &mut String) {
        let Self { engine, who, name, .. } = self;
        match page(engine, who, name, Some(version), next, MODULE_LOG_LINES_MAX).await {
            Ok(log) => {
                // Not where the broker has started again since and counts anew.
                if log.dropped > self.dropped && log.next >= next {
                    put(out, "dropped", None, &serde_json::json!({ "lines": log.dropped - self.dropped }));
                }
                put_lines(out, &log);
            }
            Err(error) => tracing::debug!(module = %name, version, %error, "the rest of a log is not told"),
        }
    }
}

fn put_lines(out: &mut String, log: &ModuleLog) {
    for line in &log.lines {
        put(out, "log", Some((log.version, line.number)), line);
    }
}

fn put(out: &mut String, event: &str, id: Option<(u32, u64)>, data: &impl serde::Serialize) {
    let data = serde_json::to_string(data).expect("it is plain data");
    out.push_str(&format!("event: {event}\ndata: {data}\n"));
    if let Some((version, number)) = id {
        out.push_str(&format!("id: {version}.{number}\n"));
    }
    out.push('\n');
}
