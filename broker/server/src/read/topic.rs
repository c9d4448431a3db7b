//! `GET …/records` of a whole topic: a read of all partitions with a cursor, or an endless event stream.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderName};
use levada_api::media::{EVENT_STREAM, JSON};
use levada_api::{ErrorCode, FormatWord, IsolationWord, Problem, Rendering, TopicRecords};
use levada_engine::{From, TopicReader, TopicStart};
use levada_model::limits::READ_RECORDS_DEFAULT;

use super::partition::{Sizes, sizes};
use super::rendering::{self, format, isolation};
use super::{feed, filter, refusal, start};
use crate::AppState;
use crate::cursor::encode_topic;
use crate::extract::{Params, TopicPath, accepts, no_value};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Read a topic
///
/// All partitions, each in its order. As JSON the answer has a `cursor` to go on from. As `text/event-stream` it goes on
/// for ever: events `record` (`data`: the record, `id`: the cursor behind it), `gap` (offsets that cannot be read any
/// more), `heartbeat` and `error` (a problem, the last event). `Last-Event-ID` resumes behind that event and wins over
/// `from`.
#[utoipa::path(get, path = "/v1/topics/{topic}/records", operation_id = "read_topic", tag = "Read",
    params(
        ("topic" = String, Path, description = "The topic"),
        ("from" = Option<String>, Query, description = "Where to begin: `earliest` (the default), `latest` (the default \
            of an event stream), `time:MS`, `tail:N`, or a cursor",
            pattern = "^(earliest|latest|time:[0-9]{1,15}|tail:[0-9]{1,15}|[A-Za-z0-9_-]{28,})$"),
        ("max_records" = Option<u64>, Query, description = "Most records; 500 by default, cut to 10000; not for an event stream", minimum = 1),
        ("max_bytes" = Option<u64>, Query, description = "Most stored bytes; 1 MiB by default, cut to 64 MiB; not for an event stream", minimum = 1),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait while there is nothing; 0 by default, cut to 60000; not for an event stream"),
        ("isolation" = inline(Option<IsolationWord>), Query, description = "`read_committed` (the default) or `read_uncommitted`"),
        ("format" = inline(Option<FormatWord>), Query, description = "Force a form of values: `text` or `base64`"),
        ("filter" = Option<String>, Query, description = "`module:NAME`, or `module:NAME@2`: only what the module lets pass, as it leaves it. Positions move on over the rest", pattern = "^module:[a-zA-Z0-9._-]{1,249}(@[1-9][0-9]*)?$"),
        ("filter_config" = Option<String>, Query, description = "The module's config, as JSON"),
        ("Last-Event-ID" = Option<String>, Header, description = "Event streams only: the `id` of the last event seen"),
    ),
    responses(
        (status = 200, description = "The records; none where nothing is to be read yet", content(
            (TopicRecords = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 404, description = "`topic-not-found`, `module-not-found`"),
        (status = 410, description = "`cursor-gone`: the cursor is of another topic, or of one that was deleted; `offset-out-of-range`"),
        (status = 416, description = "`offset-beyond-end`: the cursor is beyond the end"),
        (status = 422, description = "`integer-too-large`: beyond 2^53 - 1; `invalid-module-config`: the filter is no transform, or \
            does not take its config"),
    ))]
pub(super) async fn read_topic(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(topic): TopicPath,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let is_stream = accepts(&headers, &[JSON, EVENT_STREAM])? == EVENT_STREAM;
    let from = params.text("from").map(|text| read_start("from", &text)).transpose()?;
    let isolation = isolation(&mut params)?;
    let form = format(&mut params)?;
    let sizes = if is_stream { None } else { Some(sizes(&mut params, READ_RECORDS_DEFAULT)?) };
    let wanted = filter::wanted(&mut params)?;
    params.finish()?;
    let filter = match wanted {
        Some(wanted) => Some(wanted.open(&engine, &who).await?),
        None => None,
    };
    let filtered = |reader: TopicReader| match filter {
        Some(filter) => reader.filtered(filter),
        None => reader,
    };
    let Some(Sizes { max_records, max_bytes, wait }) = sizes else {
        let from = last_event(&headers)?.or(from).unwrap_or(TopicStart::From(From::Latest));
        let reader = engine.topic_reader(&who, &topic, from, isolation).await.map_err(|e| refusal::fetch(&e))?;
        return Ok(feed::answer(filtered(reader), Rendering { form, one_line: true }, state.heartbeat()));
    };
    let from = from.unwrap_or(TopicStart::From(From::Earliest));
    let reader = engine.topic_reader(&who, &topic, from, isolation).await.map_err(|e| refusal::fetch(&e))?;
    let mut reader = filtered(reader);
    let parts = reader.next(max_records, max_bytes, wait).await.map_err(|error| refusal::fetch(&error))?;
    let rest = format!("\"cursor\":\"{}\"", encode_topic(&reader.positions()));
    Ok(rendering::json(parts, form, &rest)?)
}

fn last_event(headers: &HeaderMap) -> Result<Option<TopicStart>, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID).filter(|id| !id.is_empty()) else { return Ok(None) };
    read_start("Last-Event-ID", id.to_str().unwrap_or_default()).map(Some)
}

fn read_start(name: &str, text: &str) -> Result<TopicStart, Problem> {
    start::topic_start(text).ok_or_else(|| {
        let rule = "earliest, latest, time:MS, tail:N or a cursor of this broker, unchanged";
        let problem = no_value(name, rule, text);
        if problem.code == ErrorCode::IntegerTooLarge && text.contains(':') {
            return problem;
        }
        Problem::new(ErrorCode::InvalidCursor, problem.detail)
    })
}
