//! The hostile modules of `levada-fixtures` through the whole broker, each with its stated outcome, while others produce.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use levada_api::{Effect, Problem};
use levada_client::{AcksWord, Client, NewRecord};
use levada_fixtures::{Guest, Hostile, Outcome, hostile};
use serde_json::json;
use tokio::task::JoinHandle;

use super::broker::{Broker, document, says};
use super::report;

/// Produces to a topic of its own, one record at a time, and notes how long each takes.
struct Neighbour {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Duration>>,
}

impl Neighbour {
    fn start(broker: &Broker, topic: &'static str) -> Self {
        let client = Client::new(&broker.server.url).expect("a good address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let produce = async move {
            let mut times = Vec::new();
            while !stopped.load(Ordering::Relaxed) || times.is_empty() {
                let begun = Instant::now();
                client.produce(topic, &[NewRecord::text("x")], AcksWord::All).await.expect("it is stored");
                times.push(begun.elapsed());
            }
            times
        };
        Self { stop, task: tokio::spawn(produce) }
    }

    /// How long its produces took, shortest first.
    async fn end(self) -> Vec<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let mut times = self.task.await.expect("all were stored");
        times.sort_unstable();
        times
    }
}

fn figures(what: &str, times: &[Duration]) {
    let at = |hundredths: usize| times[(times.len() - 1) * hundredths / 100];
    report(&format!("{what}: {} produces, median {:?}, p99 {:?}, longest {:?}", times.len(), at(50), at(99), at(100)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hostile_module_has_its_stated_outcome_and_a_neighbour_does_not_notice() {
    let broker = Broker::new(&[]);
    broker.topic("stored", 1, json!({})).await;
    broker.produce("stored", "a").await.expect("it is stored");
    broker.topic("calm", 1, json!({})).await;
    broker.topic("neighbour", 1, json!({})).await;
    let calm = Neighbour::start(&broker, "neighbour");
    for _ in 0..50 {
        broker.produce("calm", "a").await.expect("it is stored");
    }
    let calm = calm.end().await;
    let neighbour = Neighbour::start(&broker, "neighbour");
    let mut taken = Vec::new();
    for it in hostile() {
        if outcome(&broker, &it).await {
            taken.push(it.name);
        }
    }
    let times = neighbour.end().await;
    figures("calm", &calm);
    figures("beside hostile modules", &times);
    let names = broker.client.modules().await.expect("a list").into_iter().map(|module| module.name);
    taken.sort_unstable();
    assert_eq!(names.collect::<Vec<_>>(), taken, "of what is refused nothing is kept");
    let (status, _) = broker.server.terminate();
    assert!(status.success());
}

/// Holds a module to its outcome; answers whether it was taken.
async fn outcome(broker: &Broker, it: &Hostile) -> bool {
    let put = broker.client.put_module(it.name, it.wasm.clone().into(), true).await;
    let refusal = match (&put, it.outcome) {
        (Err(error), _) => error.problem().cloned().unwrap_or_else(|| panic!("{}: {error}", it.name)),
        (Ok(_), Outcome::Refused(_) | Outcome::TooLarge) => panic!("{} is taken", it.name),
        (Ok(_), _) => {
            used(broker, it).await;
            return true;
        }
    };
    match it.outcome {
        Outcome::Refused(words) => says(&refusal, "invalid-module", words),
        Outcome::TooLarge => assert_eq!(refusal.status, 413, "{refusal:?}"),
        _ => panic!("{}: {refusal:?}", it.name),
    }
    false
}

async fn used(broker: &Broker, it: &Hostile) {
    let (name, filter) = (it.name, format!("module:{}", it.name));
    match it.outcome {
        Outcome::ConfigRefused(words) => {
            let at_read = broker.filtered("stored", &filter).await.expect_err(name);
            says(&at_read, "invalid-module-config", words);
            says(&broker.no_topic(name, json!({ "validator": filter })).await, "invalid-config", words);
        }
        Outcome::TimesOut => fails(broker, name, "module-timeout", "too long").await,
        Outcome::Fails(words) => fails(broker, name, "module-failed", words).await,
        Outcome::FailsEachThird(words) => {
            let trial = json!({ "world": "transform", "records": [{ "value": 1 }] });
            let trial = serde_json::from_value(trial).expect("a trial");
            let trial = broker.client.dry_run_module(name, &trial).await.expect("it is tried");
            assert_eq!(trial.fault, None, "{name} is right in a dry run");
            for call in 1..=9 {
                match broker.filtered("stored", &filter).await {
                    Ok(values) => assert!(call % 3 != 0 && values == ["a"], "{name}, call {call}: {values:?}"),
                    Err(problem) => {
                        says(&problem, "module-failed", words);
                        assert_eq!(call % 3, 0, "{name}");
                    }
                }
            }
        }
        Outcome::Bounded => {
            for _ in 0..40 {
                broker.filtered("stored", &filter).await.unwrap_or_else(|problem| panic!("{name}: {problem:?}"));
            }
            let stats = broker.client.module_stats(name, None).await.expect("numbers");
            assert_eq!((stats.calls, stats.traps, stats.deadlines, stats.refused_answers), (40, 0, 0, 0), "{name}");
        }
        Outcome::Refused(_) | Outcome::TooLarge => unreachable!("it is not there to be used"),
    }
}

/// That neither a read through the module nor a record that it is to judge goes through, and nothing is stored.
async fn fails(broker: &Broker, name: &str, code: &str, words: &str) {
    let filter = format!("module:{name}");
    broker.topic(name, 1, json!({ "validator": filter })).await;
    let is_so = |problem: &Problem| {
        assert_eq!((problem.status, problem.effect), (503, Effect::None), "{name}: {problem:?}");
        says(problem, code, words);
    };
    is_so(&broker.filtered("stored", &filter).await.expect_err(name));
    is_so(&broker.produce(name, "a").await.expect_err(name));
    assert_eq!(broker.stored(name).await, 0, "{name}: nothing is stored");
    let stats = broker.client.module_stats(name, None).await.expect("numbers");
    let failed = stats.traps + stats.deadlines + stats.refused_answers;
    // A module that fails in words is not at fault.
    assert!(failed == 2 || name == "reason-long", "{name}: {stats:?}");
    assert!(stats.memory_peak_bytes <= 128 << 20, "{name}: {stats:?}");
    broker.client.delete_topic(name).await.expect("it is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_loop_without_end_runs_others_are_answered() {
    let broker = Broker::new(&[]);
    broker.topic("other", 1, json!({})).await;
    let endless = Guest::transform("(loop $forever (br $forever))").build();
    broker.put("endless", endless).await;
    broker.topic("held", 1, json!({ "validator": "module:endless" })).await;
    // As many as the module has threads and more, all day long.
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let client = Client::new(&broker.server.url).expect("a good address");
        held.spawn(async move { client.produce("held", &[NewRecord::text("a")], AcksWord::All).await });
    }
    let neighbour = Neighbour::start(&broker, "other");
    while let Some(answer) = held.join_next().await {
        let problem = super::broker::refused(answer.expect("no panic").expect_err("it is not judged"));
        assert_eq!(problem.code.as_str(), "module-timeout", "{problem:?}");
    }
    let times = neighbour.end().await;
    figures("beside six endless calls", &times);
    assert!(times.len() > 6, "the neighbour went on meanwhile: {times:?}");
    assert_eq!(broker.stored("held").await, 0);
}

/// A processor over a module that fails goes by its document's rule, and the others run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_with_a_hostile_step_sets_records_aside_and_others_run() {
    let broker = Broker::new(&[]);
    broker.topic("in", 1, json!({})).await;
    broker.store("in", &["1", "2", "3"].map(|value| NewRecord::text(value).with_key("k"))).await;
    let list = hostile();
    let names = ["recursion", "memory-bomb", "place-huge", "call-endless"];
    let rule = |name: &str| json!({ "on_error": { "attempts": 2, "topic": format!("aside.{name}") } });
    broker.put("good", levada_fixtures::CASES).await;
    for name in names {
        let it = list.iter().find(|it| it.name == name).expect("it is listed");
        broker.put(name, it.wasm.clone()).await;
        broker.topic(&format!("out.{name}"), 1, json!({})).await;
        let document = document("in", name, &format!("out.{name}"), rule(name));
        broker.processor(name, &document).await;
    }
    broker.topic("out.good", 1, json!({})).await;
    broker.processor("good", &document("in", "good", "out.good", json!({}))).await;
    broker.worked_off("good").await;
    assert_eq!(broker.all("out.good").await.len(), 3);
    for name in names {
        let standing = broker.worked_off(name).await;
        assert_eq!(broker.all(&format!("out.{name}")).await.len(), 0, "{name}: {standing:?}");
        let letters = broker.all(&format!("aside.{name}")).await;
        assert_eq!(letters.len(), 3, "{name}: {standing:?}");
        let header = |wanted: &str| {
            let found = letters[2].headers.iter().find(|(name, _)| name == wanted).and_then(|(_, text)| text.clone());
            String::from_utf8(found.unwrap_or_else(|| panic!("{wanted}")).to_vec()).expect("text")
        };
        assert_eq!(
            (header("original_topic"), header("original_offset"), header("attempts")),
            ("in".into(), "2".into(), "2".into())
        );
        assert!(header("module").starts_with(name) && !header("error").is_empty());
    }
}
