//! Processors: what comes out, what becomes of what fails, and that nothing is lost or doubled.

mod changes;
mod dry_runs;
mod failing;
mod life;
mod moving;
mod neighbours;
mod once;

use levada_engine::{
    Engine, From, Guarantee, OnError, ProcessorError, ProcessorInfo, ProcessorSpec, ProcessorState, ProcessorStep,
    ProcessorTask, SourceSpec, Then,
};
use levada_extension::{JsonFilter, JsonTest};
use levada_model::{GroupName, ProcessorName};
use serde_json::Value;

use crate::modules::of;
use crate::support::{all, me, name, until};

/// The name of the processor of most tests.
const P: &str = "p";

fn called(text: &str) -> ProcessorName {
    ProcessorName::new(text).expect("a processor's name")
}

/// From topic `in` to topic `out`.
fn spec(steps: Vec<ProcessorStep>) -> ProcessorSpec {
    ProcessorSpec {
        sources: vec![from("in", From::Earliest)],
        timestamp: None,
        steps,
        sink: name("out"),
        on_error: OnError { attempts: 2, then: Then::DeadLetter(None) },
        guarantee: Guarantee::ExactlyOnce,
        commit_interval_ms: 2,
        document: r#"{"a":  "document"}"#.to_owned(),
    }
}

fn failing(then: Then, spec: ProcessorSpec) -> ProcessorSpec {
    ProcessorSpec { on_error: OnError { then, ..spec.on_error.clone() }, ..spec }
}

/// The same with another document.
fn documented(document: Value, spec: ProcessorSpec) -> ProcessorSpec {
    ProcessorSpec { document: document.to_string(), ..spec }
}

fn from(topic: &str, start: From) -> SourceSpec {
    SourceSpec { topic: name(topic), start }
}

fn transform(module: &str) -> ProcessorStep {
    ProcessorStep::Transform { module: of(module), config: "{}".to_owned() }
}

fn filter(pointer: &str, test: JsonTest) -> ProcessorStep {
    ProcessorStep::Filter(JsonFilter::new(pointer.parse().expect("a pointer"), vec![test]))
}

async fn put(engine: &Engine, spec: ProcessorSpec) -> (ProcessorInfo, bool) {
    engine.put_processor(&me(), &called(P), spec).await.expect("the processor is taken")
}

async fn info(engine: &Engine) -> ProcessorInfo {
    engine.processor(&me(), &called(P)).await.expect("the processor is there")
}

async fn pause(engine: &Engine, paused: bool) -> ProcessorInfo {
    engine.pause_processor(&me(), &called(P), paused).await.expect("it is there")
}

/// Waits until all that was there is processed and committed.
async fn caught_up(engine: &Engine) {
    caught_up_as(engine, P).await;
}

/// The same of another processor.
async fn caught_up_as(engine: &Engine, name: &str) {
    until("the processor has caught up", async || match engine.processor(&me(), &called(name)).await {
        Ok(info) => {
            assert_eq!(info.state, ProcessorState::Running);
            !info.tasks.is_empty() && info.tasks.iter().all(|task| task.lag == 0)
        }
        Err(ProcessorError::Busy { .. }) => false,
        Err(error) => panic!("{error}"),
    })
    .await;
}

/// The first task once so many of its records are processed and counted, which comes just behind their commit.
async fn counted(engine: &Engine, records_in: u64) -> ProcessorTask {
    until("the records are counted", async || info(engine).await.tasks[0].records_in == records_in).await;
    info(engine).await.tasks.remove(0)
}

/// Waits until it stands still; the reason and the offset.
async fn failed(engine: &Engine) -> (String, Option<u64>) {
    let mut found = None;
    until("the processor stands still", async || {
        if let ProcessorState::Failed { reason, at } = info(engine).await.state {
            found = Some((reason, at.map(|record| record.offset.0)));
        }
        found.is_some()
    })
    .await;
    found.expect("it does")
}

/// Committed values of a partition, in order.
async fn out(engine: &Engine, topic: &str, partition: u32) -> Vec<String> {
    all(engine, topic, partition, 0).await.into_iter().map(|(_, value)| value).collect()
}

fn group() -> GroupName {
    GroupName::new("__processor.p").expect("a group's name")
}

fn exists(pointer: &str) -> ProcessorStep {
    filter(pointer, JsonTest::Exists(true))
}

fn equals(pointer: &str, value: Value) -> ProcessorStep {
    filter(pointer, JsonTest::Equals(value))
}
