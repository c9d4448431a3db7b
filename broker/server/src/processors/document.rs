//! The document of a processor in the engine's words; all that cannot be said in these is told at once. Not here: what
//! the engine refuses, such as topics that are not there.

use std::str::FromStr;

use axum::extract::{FromRequest, Request};
use levada_api::media::JSON;
use levada_api::{
    ErrorCode, FilterStep, GuaranteeWord, OnError, Problem, ProcessorDocument, ProcessorStep, ProcessorTime, ThenWord,
    strict,
};
use levada_engine::{From, Guarantee, ProcessorSpec, SourceSpec, Then};
use levada_extension::{JsonFilter, JsonPointer, JsonTest};
use levada_model::limits::{PROCESSOR_ATTEMPTS_DEFAULT, PROCESSOR_COMMIT_INTERVAL_MS_DEFAULT};
use levada_model::{ModuleRef, TopicName};
use serde_json::Value;
use serde_json::value::RawValue;

use super::refusal::document as refused;
use crate::AppState;
use crate::extract::{BodyBytes, content_type, unsupported_media_type};
use crate::read::start;
use crate::refusal::Refusal;

/// What a start may be.
pub(super) const START_RULE: &str = "earliest, latest, time:MS or tail:N is taken";

/// A body that is the document of a processor.
pub(super) struct DocumentBody(pub(super) Document);

/// A document, with what a trial says beside it.
pub(super) struct Document {
    pub(super) spec: ProcessorSpec,
    pub(super) from: Option<String>,
    pub(super) max_records: Option<u64>,
}

impl FromRequest<AppState> for DocumentBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        if content_type(request.headers()).as_deref() != Some(JSON) {
            return Err(unsupported_media_type(request.headers(), &[JSON]).into());
        }
        let BodyBytes(body) = BodyBytes::from_request(request, state).await?;
        Ok(Self(read(&body)?))
    }
}

/// Reads a document.
///
/// # Errors
/// 400 where it is no JSON, 422 with the places that are wrong.
fn read(body: &[u8]) -> Result<Document, Problem> {
    let read: ProcessorDocument = strict::from_json(body)?;
    let document = serde_json::from_slice::<&RawValue>(body);
    let document = document.map_err(|error| Problem::new(ErrorCode::InvalidJson, error.to_string()))?;
    let document = document.get().to_owned();
    let mut wrong = Wrong::default();
    let timestamp = match read.timestamp {
        None | Some(ProcessorTime::Record(_)) => None,
        Some(ProcessorTime::Json { json }) => wrong.read::<JsonPointer>("/timestamp/json", &json).map(|_| json),
    };
    let mut sources = Vec::new();
    for (at, source) in read.sources.iter().enumerate() {
        let topic = wrong.topic(&format!("/sources/{at}/topic"), &source.topic);
        let start = start(&source.start);
        if start.is_none() {
            wrong.put(format!("/sources/{at}/start"), START_RULE);
        }
        if let (Some(topic), Some(start)) = (topic, start) {
            sources.push(SourceSpec { topic, start });
        }
    }
    let steps = read.steps.into_iter().enumerate();
    let steps = steps.filter_map(|(at, step)| wrong.step(&format!("/steps/{at}"), step)).collect();
    let sink = wrong.topic("/sink/topic", &read.sink.topic);
    let on_error = wrong.on_error(read.on_error);
    let commit_interval_ms = read.commit_interval_ms.unwrap_or(PROCESSOR_COMMIT_INTERVAL_MS_DEFAULT);
    let guarantee = match read.guarantee {
        GuaranteeWord::ExactlyOnce => Guarantee::ExactlyOnce,
        GuaranteeWord::AtLeastOnce => Guarantee::AtLeastOnce,
    };
    match (wrong.0.is_empty(), sink) {
        (true, Some(sink)) => {
            let spec =
                ProcessorSpec { sources, timestamp, steps, sink, on_error, guarantee, commit_interval_ms, document };
            Ok(Document { spec, from: read.from, max_records: read.max_records })
        }
        _ => Err(refused(wrong.0)),
    }
}

/// Reads where a source begins.
pub(super) fn start(text: &str) -> Option<From> {
    start::word(text)
}

/// Places that are wrong, each with what is.
#[derive(Default)]
struct Wrong(Vec<(String, String)>);

impl Wrong {
    fn put(&mut self, pointer: impl Into<String>, detail: impl ToString) {
        self.0.push((pointer.into(), detail.to_string()));
    }

    fn taken<T>(&mut self, pointer: &str, read: Result<T, impl ToString>) -> Option<T> {
        read.map_err(|error| self.put(pointer, error)).ok()
    }

    fn read<T: FromStr<Err: ToString>>(&mut self, pointer: &str, text: &str) -> Option<T> {
        self.taken(pointer, text.parse())
    }

    fn topic(&mut self, pointer: &str, name: &str) -> Option<TopicName> {
        self.taken(pointer, TopicName::new(name))
    }

    fn step(&mut self, pointer: &str, step: ProcessorStep) -> Option<levada_engine::ProcessorStep> {
        match step {
            ProcessorStep::Filter(filter) => {
                self.filter(&format!("{pointer}/filter"), filter).map(levada_engine::ProcessorStep::Filter)
            }
            ProcessorStep::Transform(step) => {
                let module = self.taken(&format!("{pointer}/transform/module"), ModuleRef::new(&step.module));
                let config = step.config.map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned());
                module.map(|module| levada_engine::ProcessorStep::Transform { module, config })
            }
        }
    }

    fn filter(&mut self, pointer: &str, filter: FilterStep) -> Option<JsonFilter> {
        let place = self.read::<JsonPointer>(&format!("{pointer}/json"), &filter.json);
        let mut tests = Vec::new();
        for (name, operand, test) in [
            ("equals", filter.equals, JsonTest::Equals as fn(Value) -> JsonTest),
            ("not_equals", filter.not_equals, JsonTest::NotEquals),
            ("less", filter.less, JsonTest::Less),
            ("greater", filter.greater, JsonTest::Greater),
            ("contains", filter.contains, JsonTest::Contains),
        ] {
            let Some(operand) = operand else { continue };
            if matches!(name, "less" | "greater") && !(operand.is_number() || operand.is_string()) {
                self.put(format!("{pointer}/{name}"), "a number or a text is taken");
            }
            tests.push(test(operand));
        }
        tests.extend(filter.exists.map(JsonTest::Exists));
        if tests.is_empty() {
            self.put(pointer, "at least one of equals, not_equals, less, greater, exists and contains is needed");
        }
        place.map(|place| JsonFilter::new(place, tests))
    }

    fn on_error(&mut self, wanted: Option<OnError>) -> levada_engine::OnError {
        let Some(OnError { attempts, then, topic }) = wanted else {
            return levada_engine::OnError { attempts: PROCESSOR_ATTEMPTS_DEFAULT, then: Then::DeadLetter(None) };
        };
        let attempts = attempts.unwrap_or(PROCESSOR_ATTEMPTS_DEFAULT);
        if topic.is_some() && then != ThenWord::DeadLetter {
            self.put("/on_error/topic", "only dead letters go to a topic");
        }
        let then = match then {
            ThenWord::DeadLetter => Then::DeadLetter(topic.and_then(|topic| self.topic("/on_error/topic", &topic))),
            ThenWord::Skip => Then::Skip,
            ThenWord::Pause => Then::Pause,
        };
        levada_engine::OnError { attempts, then }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_becomes_what_the_engine_runs() {
        let body = br#"{"sources":[{"topic":"a","start":"tail:5"}],"timestamp":{"json":"/at"},
            "steps":[{"filter":{"json":"/n","greater":1}},{"transform":{"module":"m@2"}}],"sink":{"topic":"b"},
            "on_error":{"then":"dead_letter","topic":"dead"},"guarantee":"at-least-once"}"#;
        let Document { spec, .. } = read(body).expect("valid");
        assert_eq!(spec.sources[0].start, From::Tail(5));
        assert_eq!((spec.timestamp.as_deref(), spec.guarantee), (Some("/at"), Guarantee::AtLeastOnce));
        let dead = TopicName::new("dead").expect("a name");
        assert_eq!(spec.on_error, levada_engine::OnError { attempts: 3, then: Then::DeadLetter(Some(dead)) });
        assert!(matches!(&spec.steps[1], levada_engine::ProcessorStep::Transform { config, .. } if config == "{}"));
        assert_eq!(spec.document.as_bytes(), body, "word for word");
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let body = br#"{"sources":[{"topic":"a b","start":"now"},{"topic":"a b"}],"timestamp":{"json":"at"},
            "steps":[{"filter":{"json":"n"}},{"filter":{"json":"","less":[]}},{"transform":{"module":"m@0"}}],
            "sink":{"topic":""},"on_error":{"then":"skip","topic":"t"}}"#;
        let problem = read(body).err().expect("nearly all is wrong");
        let places: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = [
            "/timestamp/json",
            "/sources/0/topic",
            "/sources/0/start",
            "/sources/1/topic",
            "/steps/0/filter/json",
            "/steps/0/filter",
            "/steps/1/filter/less",
            "/steps/2/transform/module",
            "/sink/topic",
            "/on_error/topic",
        ];
        assert_eq!((problem.status, &places[..]), (422, &expected[..]));
    }
}
