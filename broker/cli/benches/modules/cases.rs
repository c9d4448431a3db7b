//! The measurements: each runs both sides by turns in one run, and prints one row.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use levada_fixtures::{ENDLESS, EVERYTHING, JSON_FILTER, KEYS};
use reqwest::Method;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::load::{self, Measured};
use crate::{records, table};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const BATCH: &str = "application/vnd.levada.record-batch";
/// Partitions where records are placed.
const PARTITIONS: u32 = 4;
/// Modules of a broker that has many.
const MODULES: u32 = 100;

/// What every measurement needs.
pub(crate) struct Setting<'a> {
    /// An empty directory on the disk under test.
    pub(crate) dir: &'a Path,
    /// How long each load runs.
    pub(crate) duration: Duration,
    /// How often the two sides take turns; the median counts.
    pub(crate) turns: usize,
    /// How many records go from topic to topic.
    pub(crate) records: usize,
}

impl Setting<'_> {
    fn fresh(&self, name: &str) -> PathBuf {
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir).expect("the disk takes it, and the name is new");
        dir
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn create(broker: &Broker, topic: &str, partitions: u32, config: Value) {
    let mut config = config;
    config["retention.bytes"] = json!(4_u64 << 30);
    broker.json(Method::POST, "/v1/topics", &json!({ "name": topic, "partitions": partitions, "config": config }));
}

/// Produces of 100 keyed records that a module places, against the same that murmur2 places.
pub(crate) fn partitioner(setting: &Setting<'_>) {
    let broker = Broker::start(&setting.fresh("partitioner"));
    broker.module("keys", KEYS);
    let request = |topic: &str| {
        let body = records::request(&records::values(100));
        [load::request("POST", &format!("/v1/topics/{topic}/records"), &[JSON], &body)]
    };
    for durability in ["page-cache", "fsync"] {
        let (ours, theirs) = (format!("module-{durability}"), format!("murmur2-{durability}"));
        create(&broker, &theirs, PARTITIONS, json!({ "durability": durability }));
        create(&broker, &ours, PARTITIONS, json!({ "durability": durability, "partitioner": "module:keys" }));
        for connections in [1, 16] {
            let run = |topic: &str| load::run(&broker.server, &request(topic), connections, setting.duration);
            let turns: Vec<_> = (0..setting.turns).map(|_| (run(&ours), run(&theirs))).collect();
            let pick = |value: &dyn Fn(&(Measured, Measured)) -> f64| median(turns.iter().map(value).collect());
            table::row(
                &format!(
                    "100 JSON records of 100 B a request, placed by a module, {durability}, {connections} connections"
                ),
                &format!(
                    "{:.0} records/s, {:.0} µs CPU",
                    pick(&|it| it.0.rate()) * 100.0,
                    pick(&|it| it.0.server_cpu_us)
                ),
                &format!(
                    "murmur2 {:.0} records/s, {:.0} µs CPU",
                    pick(&|it| it.1.rate()) * 100.0,
                    pick(&|it| it.1.server_cpu_us)
                ),
                pick(&|it| it.0.rate() / it.1.rate()),
                "at least 0.90",
            );
        }
        let fallbacks = &broker.get("/v1/modules/keys/stats")["fallbacks"];
        assert!(fallbacks.as_u64().is_none_or(|count| count == 0), "the module placed all: {fallbacks}");
    }
}

/// Nanoseconds of this thread's processor time.
fn thread_cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// A JSON filter from log to log, against the same filter as a native closure over values in memory.
pub(crate) fn topic_to_topic(setting: &Setting<'_>) {
    let broker = Broker::start(&setting.fresh("topic-to-topic"));
    let values = records::values(setting.records);
    broker.module("json-filter", JSON_FILTER);
    create(&broker, "in", 1, json!({ "durability": "page-cache" }));
    for body in records::bodies(&values) {
        broker.ask(Method::POST, "/v1/topics/in/records?partition=0", BATCH, body);
    }
    let passing = values.iter().filter(|value| records::passes(value)).count();
    let native = || {
        let began = thread_cpu_ns();
        assert_eq!(black_box(&values).iter().filter(|value| records::passes(value)).count(), passing);
        values.len() as f64 / (thread_cpu_ns() - began) * 1e9
    };
    for guarantee in ["exactly-once", "at-least-once"] {
        let mut turns: Vec<(Carried, f64)> = Vec::new();
        for turn in 0..setting.turns {
            let sink = format!("{guarantee}-{turn}");
            create(&broker, &sink, 1, json!({ "durability": "page-cache" }));
            turns.push((carry(&broker, guarantee, &sink, (values.len(), passing)), native()));
        }
        let pick = |value: &dyn Fn(&(Carried, f64)) -> f64| median(turns.iter().map(value).collect());
        table::row(
            &format!("JSON filter from topic to topic, 100 B, {guarantee}, one partition, records per second of CPU"),
            &format!("{:.0}/s ({:.0}/s of wall time)", pick(&|it| it.0.a_cpu_second), pick(&|it| it.0.a_second)),
            &format!("native closure in memory {:.0}/s", pick(&|it| it.1)),
            pick(&|it| it.0.a_cpu_second / it.1),
            "at least 0.45; 1 million/s",
        );
    }
}

/// Records that a processor carries in a second of wall time, and of the server's processor time.
struct Carried {
    a_second: f64,
    a_cpu_second: f64,
}

/// Lets a processor carry all.
#[expect(clippy::disallowed_methods, reason = "the load is the server's; asking all the time would be one more")]
fn carry(broker: &Broker, guarantee: &str, sink: &str, (all, passing): (usize, usize)) -> Carried {
    let document = json!({
        "sources": [{ "topic": "in", "start": "earliest" }],
        "steps": [{ "transform": { "module": "json-filter", "config": {} } }],
        "sink": { "topic": sink },
        "guarantee": guarantee,
    });
    let (began, cpu) = (Instant::now(), broker.server.cpu_seconds());
    let path = format!("/v1/processors/{sink}");
    broker.json(Method::PUT, &path, &document);
    let task = loop {
        let task = broker.get(&path)["tasks"][0].clone();
        if task["lag"] == 0 && task["position"] != 0 {
            break task;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), broker.server.cpu_seconds() - cpu);
    assert_eq!((&task["records_in"], &task["records_out"]), (&json!(all), &json!(passing)), "each is carried once");
    broker.ask(Method::DELETE, &path, "", Vec::new());
    Carried { a_second: all as f64 / seconds, a_cpu_second: all as f64 / cpu }
}

/// From the first byte of an upload to the first record that has passed the module in a processor.
pub(crate) fn upload(setting: &Setting<'_>) {
    let broker = Broker::start(&setting.fresh("upload"));
    create(&broker, "in", 1, json!({}));
    broker.json(Method::POST, "/v1/topics/in/records", &json!({ "records": [{ "value": { "n": 1 } }] }));
    let (mut seconds, mut of_upload) = (Vec::new(), Vec::new());
    for turn in 0..setting.turns {
        let name = format!("m{turn}");
        create(&broker, &name, 1, json!({}));
        let wasm = marked(EVERYTHING, u32::try_from(turn).expect("few"));
        let began = Instant::now();
        broker.module(&name, &wasm);
        of_upload.push(began.elapsed().as_secs_f64());
        let steps = json!([{ "transform": { "module": name, "config": { "at_least": 0 } } }]);
        let document = json!({ "sources": [{ "topic": "in" }], "steps": steps, "sink": { "topic": name } });
        broker.json(Method::PUT, &format!("/v1/processors/{name}"), &document);
        let path = format!("/v1/topics/{name}/partitions/0/records?wait_ms=60000");
        assert_eq!(broker.get(&path)["records"].as_array().map(Vec::len), Some(1));
        seconds.push(began.elapsed().as_secs_f64());
    }
    let kib = EVERYTHING.len() / 1024;
    let text = format!("{:.0} ms, {:.0} ms of it the upload", median(seconds) * 1e3, median(of_upload) * 1e3);
    table::figure(&format!("upload of {kib} KiB to its first record through a processor"), &text, "under 1 s (300 KB)");
}

/// The same module with a custom section of its own, so that it is another.
fn marked(wasm: &[u8], mark: u32) -> Vec<u8> {
    [wasm, &[0, 5, 0], &mark.to_le_bytes()].concat()
}

/// From the start of the program until it is ready, with and without modules that it knows.
pub(crate) fn start(setting: &Setting<'_>) {
    let (with, without) = (setting.fresh("start-with"), setting.fresh("start-without"));
    let broker = Broker::start(&with);
    for mark in 0..MODULES {
        broker.module(&format!("m{mark}"), &marked(EVERYTHING, mark));
    }
    broker.server.stop();
    Broker::start(&without).server.stop();
    let ready = |dir: &Path| {
        let server = Broker::start(dir).server;
        let seconds = server.ready_seconds;
        server.stop();
        seconds * 1e3
    };
    let turns: Vec<_> = (0..setting.turns.max(5)).map(|_| (ready(&with), ready(&without))).collect();
    let (a, b) = (median(turns.iter().map(|it| it.0).collect()), median(turns.iter().map(|it| it.1).collect()));
    table::row(
        &format!("start to readyz with {MODULES} known modules of {} KiB", EVERYTHING.len() / 1024),
        &format!("{a:.1} ms"),
        &format!("without any {b:.1} ms"),
        a / b,
        "30 ms more at most",
    );
}

/// A load beside a hostile one, how many requests of that one were answered, and the load alone.
type Turn = ((Measured, u64), Measured);

/// What a module that never ends costs the producers of another topic.
pub(crate) fn neighbours(setting: &Setting<'_>) {
    let broker = Broker::start(&setting.fresh("neighbours"));
    broker.module("endless", ENDLESS);
    create(&broker, "hot", 1, json!({ "validator": "module:endless" }));
    let body = records::request(&records::values(1));
    for durability in ["page-cache", "fsync"] {
        let calm = format!("calm-{durability}");
        create(&broker, &calm, 1, json!({ "durability": durability }));
        let request = [load::request("POST", &format!("/v1/topics/{calm}/records"), &[JSON], &body)];
        let run = || load::run(&broker.server, &request, 4, setting.duration);
        let turns: Vec<Turn> = (0..setting.turns).map(|_| (beside(&broker, &body, run), run())).collect();
        let pick = |value: &dyn Fn(&Turn) -> f64| median(turns.iter().map(value).collect());
        let text = |p50: f64, p99: f64, rate: f64| format!("p50 {p50:.0} µs, p99 {p99:.0} µs, {rate:.0} requests/s");
        let ours = |percent| pick(&|it: &Turn| it.0.0.percentile_us(percent));
        let theirs = |percent| pick(&|it: &Turn| it.1.percentile_us(percent));
        table::row(
            &format!(
                "one record a request, 4 connections, {durability}, beside 8 producers of a topic whose validator never ends ({:.0} of their requests refused)",
                pick(&|it| it.0.1 as f64)
            ),
            &text(ours(50.0), ours(99.0), pick(&|it| it.0.0.rate())),
            &format!("alone {}", text(theirs(50.0), theirs(99.0), pick(&|it| it.1.rate()))),
            pick(&|it| it.0.0.percentile_us(50.0) / it.1.percentile_us(50.0)),
            "reported (p50)",
        );
    }
}

/// Runs a load beside producers whose module never ends; how many of their requests were answered meanwhile.
fn beside(broker: &Broker, body: &[u8], run: impl Fn() -> Measured) -> (Measured, u64) {
    let (ended, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let url = format!("http://127.0.0.1:{}/v1/topics/hot/records", broker.server.port);
    let hostile = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = reqwest::Client::new();
        while !ended.load(Ordering::Relaxed) {
            let request = client.post(&url).header(JSON.0, JSON.1).body(body.to_vec());
            let status = runtime.block_on(request.send()).expect("it answers").status();
            assert!(status.is_server_error(), "the module never ends: {status}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let measured = thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(hostile)));
        let measured = run();
        ended.store(true, Ordering::Relaxed);
        measured
    });
    (measured, answered.load(Ordering::Relaxed))
}
