//! The measurements themselves: each runs Levada and what it is held against by turns in one run, and prints one row.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::load::{self, Measured, request};
use crate::process::Server;
use crate::{disk, sockets, table};

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");
const BATCH: (&str, &str) = ("Content-Type", "application/vnd.levada.record-batch");
/// Bytes of one record's value.
const VALUE_BYTES: usize = 1024;

/// What every measurement needs.
pub(crate) struct Setting<'a> {
    /// An empty directory on the disk under test.
    pub(crate) dir: &'a Path,
    /// How long each load runs.
    pub(crate) duration: Duration,
    /// How often the two sides take turns; the median counts.
    pub(crate) turns: usize,
}

impl Setting<'_> {
    pub(crate) fn fresh(&self, name: &str) -> std::path::PathBuf {
        let dir = self.dir.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).expect("the folder is ours");
        }
        std::fs::create_dir_all(&dir).expect("the disk takes it");
        dir
    }
}

/// A request's body with so many records.
pub(crate) fn records_json(count: usize) -> Vec<u8> {
    let filler = "x".repeat(VALUE_BYTES - 40);
    let record = |i: usize| format!(r#"{{"key":"user-{i:05}","value":{{"n":1{i:07},"text":"{filler}"}}}}"#);
    format!(r#"{{"records":[{}]}}"#, (0..count).map(record).collect::<Vec<_>>().join(",")).into_bytes()
}

/// A batch of `count` records of 1 KiB, as it goes over the wire.
fn batch(count: usize) -> Vec<u8> {
    let mut builder = levada_log::BatchBuilder::new(levada_log::NewBatch::default(), 0);
    let value = bytes::Bytes::from(vec![b'x'; VALUE_BYTES]);
    for _ in 0..count {
        let record = levada_model::Record { key: None, value: Some(value.clone()), headers: Vec::new() };
        builder.push(levada_model::Timestamp(1_700_000_000_000), &record);
    }
    let built = builder.finish().expect("nothing is compressed");
    built.stamp(levada_model::Offset(0), levada_model::LeaderEpoch(0)).bytes().to_vec()
}

/// Creates a topic.
pub(crate) fn create(server: &Server, topic: &str, partitions: u32, durability: &str) {
    let body = format!(
        r#"{{"name":"{topic}","partitions":{partitions},"config":{{"durability":"{durability}","retention.bytes":2147483648}}}}"#
    );
    once(server, &request("POST", "/v1/topics", &[JSON], body.as_bytes()));
}

/// Sends one request outside of any load; the body's size.
fn once(server: &Server, bytes: &[u8]) -> usize {
    exchange(server, bytes).1.len()
}

/// Sends one request outside of any load; the body, which is small.
pub(crate) fn ask(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let (buffer, body) = exchange(server, bytes);
    buffer[body].to_vec()
}

fn exchange(server: &Server, bytes: &[u8]) -> (Vec<u8>, Range<usize>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await.expect("it listens");
        tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await.expect("it reads");
        let mut buffer = vec![0; 1 << 20];
        let body = load::answer(&mut stream, &mut buffer).await.expect("it answers with 2xx");
        (buffer, body)
    })
}

/// The value in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs two loads by turns; the median of `figure` on each side, the median of their ratios, and processor time.
pub(crate) fn by_turns(
    setting: &Setting<'_>,
    mut ours: impl FnMut() -> Measured,
    mut theirs: impl FnMut() -> Measured,
    figure: impl Fn(&Measured) -> f64,
) -> (f64, f64, f64, [f64; 2]) {
    let turns: Vec<_> = (0..setting.turns).map(|_| (ours(), theirs())).collect();
    let pick = |value: &dyn Fn(&(Measured, Measured)) -> f64| median(turns.iter().map(value).collect());
    (
        pick(&|(a, _)| figure(a)),
        pick(&|(_, b)| figure(b)),
        pick(&|(a, b)| figure(a) / figure(b)),
        [pick(&|(a, _)| a.server_cpu_us), pick(&|(_, b)| b.server_cpu_us)],
    )
}

/// One JSON record a request into `page-cache`, and its latency one by one.
pub(crate) fn json_one(setting: &Setting<'_>) {
    let (levada, bare) =
        (Server::start("levada", &setting.fresh("levada")), Server::start("bare", &setting.fresh("bare")));
    create(&levada, "t", 1, "page-cache");
    let body = records_json(1);
    let ours = [request("POST", "/v1/topics/t/records", &[JSON], &body)];
    let theirs = [request("POST", "/json", &[JSON], &body)];
    for connections in [16, 64] {
        let (a, b, ratio, cpu) = by_turns(
            setting,
            || load::run(&levada, &ours, connections, setting.duration),
            || load::run(&bare, &theirs, connections, setting.duration),
            Measured::rate,
        );
        table::row(
            &format!("one 1 KiB JSON record a request, page-cache, {connections} connections"),
            &format!("{a:.0} requests/s, {:.1} µs CPU", cpu[0]),
            &format!("bare server {b:.0} requests/s, {:.1} µs CPU", cpu[1]),
            ratio,
            "at least 0.70",
        );
    }
    let (a, b, ratio, _) = by_turns(
        setting,
        || load::run(&levada, &ours, 1, setting.duration),
        || load::run(&bare, &theirs, 1, setting.duration),
        |measured| measured.percentile_us(50.0),
    );
    table::row(
        "the same, one connection, one by one: p50",
        &format!("{a:.0} µs"),
        &format!("bare server {b:.0} µs"),
        ratio,
        "at most 1.4",
    );
}

/// A hundred JSON records a request: `page-cache` against the bare server and plain writes, `fsync` against `page-cache`.
pub(crate) fn json_hundred(setting: &Setting<'_>) {
    let levada_dir = setting.fresh("levada");
    let (levada, bare) = (Server::start("levada", &levada_dir), Server::start("bare", &setting.fresh("bare")));
    create(&levada, "cache", 4, "page-cache");
    create(&levada, "sync", 4, "fsync");
    let body = records_json(100);
    let bytes = body.len() as f64;
    let ours = |topic: &str| [request("POST", &format!("/v1/topics/{topic}/records"), &[JSON], &body)];
    let theirs = [request("POST", "/json", &[JSON], &body)];
    let rate = |measured: &Measured| measured.rate() * bytes / 1e6;
    for connections in [1, 16] {
        let (a, b, ratio, cpu) = by_turns(
            setting,
            || load::run(&levada, &ours("cache"), connections, setting.duration),
            || load::run(&bare, &theirs, connections, setting.duration),
            rate,
        );
        let what = format!("100 JSON records of 1 KiB a request, page-cache, {connections} connections");
        let us = format!("{a:.0} MB/s, {:.0} µs CPU", cpu[0]);
        table::row(&what, &us, &format!("bare server {b:.0} MB/s, {:.0} µs CPU", cpu[1]), ratio, "at least 0.70, or");
        let plain = median(
            (0..setting.turns)
                .map(|_| disk::plain_writes(setting.dir, body.len(), setting.duration, false) / 1e6)
                .collect(),
        );
        table::row("— the same", &us, &format!("plain buffered writes {plain:.0} MB/s"), a / plain, "0.90");
    }
    let (a, b, ratio, _) = by_turns(
        setting,
        || load::run(&levada, &ours("sync"), 16, setting.duration),
        || load::run(&levada, &ours("cache"), 16, setting.duration),
        rate,
    );
    let us = format!("{a:.0} MB/s");
    table::row("the same, fsync, 16 connections", &us, &format!("page-cache {b:.0} MB/s"), ratio, "at least 0.60, or");
    let plain = median(
        (0..setting.turns).map(|_| disk::plain_writes(setting.dir, body.len(), setting.duration, true) / 1e6).collect(),
    );
    table::row("— the same", &us, &format!("plain write + fdatasync {plain:.0} MB/s"), a / plain, "0.80");
}

/// Record batches in, and out of a warm page cache.
pub(crate) fn batches(setting: &Setting<'_>) {
    let bare_dir = setting.fresh("bare");
    let body = batch(100);
    let levada = Server::start("levada", &setting.fresh("levada"));
    create(&levada, "in", 1, "page-cache");
    create(&levada, "out", 1, "page-cache");
    let to = |topic: &str| request("POST", &format!("/v1/topics/{topic}/records?partition=0"), &[BATCH], &body);
    for _ in 0..400 {
        once(&levada, &to("out"));
    }
    let accept = ("Accept", "application/vnd.levada.record-batch");
    let mebibytes = 4;
    let path =
        format!("/v1/topics/out/partitions/0/records?offset=earliest&max_records=10000&max_bytes={}", mebibytes << 20);
    let out = [request("GET", &path, &[accept], b"")];
    let size = once(&levada, &out[0]);
    disk::fill(&bare_dir.join("out"), size);
    let bare = Server::start("bare", &bare_dir);
    for connections in [1, 16] {
        let (a, b, ratio, cpu) = by_turns(
            setting,
            || load::run(&levada, &[to("in")], connections, setting.duration),
            || load::run(&bare, &[request("POST", "/batches", &[BATCH], &body)], connections, setting.duration),
            |measured| measured.rate() * body.len() as f64 / 1e6,
        );
        table::row(
            &format!("record batches in (100 records of 1 KiB), page-cache, {connections} connections"),
            &format!("{a:.0} MB/s, {:.0} µs CPU", cpu[0]),
            &format!("bare: read, CRC-32C, write {b:.0} MB/s, {:.0} µs CPU", cpu[1]),
            ratio,
            "at least 0.70",
        );
    }
    for connections in [1, 16] {
        let (a, b, ratio, cpu) = by_turns(
            setting,
            || load::run(&levada, &out, connections, setting.duration),
            || load::run(&bare, &[request("GET", "/out", &[], b"")], connections, setting.duration),
            |measured| measured.rate() * size as f64 / 1e6,
        );
        table::row(
            &format!("record batches out of the page cache ({size} bytes a request), {connections} connections"),
            &format!("{a:.0} MB/s, {:.0} µs CPU", cpu[0]),
            &format!("ServeFile {b:.0} MB/s, {:.0} µs CPU", cpu[1]),
            ratio,
            "at least 1.0",
        );
    }
}

/// `fsync`, one record a request: against the disk's own fdatasync, and over 200 partitions.
pub(crate) fn fsync_one(setting: &Setting<'_>) {
    let (levada, bare) =
        (Server::start("levada", &setting.fresh("levada")), Server::start("bare", &setting.fresh("bare")));
    create(&levada, "sync", 1, "fsync");
    create(&levada, "cache", 1, "page-cache");
    create(&levada, "many", 200, "fsync");
    let body = records_json(1);
    let to = |topic: &str| [request("POST", &format!("/v1/topics/{topic}/records"), &[JSON], &body)];
    let sync_us = median((0..setting.turns).map(|_| disk::sync_of_zeros_us(setting.dir, 1100, 1000)).collect());
    let floor = load::run(&bare, &[request("POST", "/json", &[JSON], &body)], 1, setting.duration).percentile_us(50.0);
    let run = |topic: &str, connections| load::run(&levada, &to(topic), connections, setting.duration);
    let one = run("sync", 1);
    let p50 = one.percentile_us(50.0);
    table::row(
        "fsync, one record a request, one connection: p50 less the request's floor",
        &format!("{p50:.0} - {floor:.0} = {:.0} µs", p50 - floor),
        &format!("fdatasync of zero-filled bytes {sync_us:.0} µs"),
        (p50 - floor) / sync_us,
        "at most 2.0",
    );
    let four = run("sync", 4);
    table::row(
        "the same, 4 connections",
        &format!("{:.0} requests/s", four.rate()),
        &format!("one connection {:.0} requests/s", one.rate()),
        four.rate() / one.rate(),
        "at least 2.0",
    );
    let (many, cache) = (run("sync", 64), run("cache", 64));
    let us = format!("{:.0} requests/s", many.rate());
    let disk_bound = 1e6 / sync_us;
    table::row(
        "the same, 64 connections",
        &us,
        &format!("one fdatasync a record {disk_bound:.0}/s"),
        many.rate() / disk_bound,
        "at least 20, or",
    );
    table::row(
        "— the same",
        &us,
        &format!("page-cache {:.0} requests/s", cache.rate()),
        many.rate() / cache.rate(),
        "0.50",
    );
    let targeted: Vec<_> = (0..200)
        .map(|partition| {
            let pinned = body.strip_suffix(b"}]}").expect("our own body");
            let pinned = [pinned, format!(r#","partition":{partition}}}]}}"#).as_bytes()].concat();
            request("POST", "/v1/topics/many/records", &[JSON], &pinned)
        })
        .collect();
    for connections in [64, 200] {
        let spread = load::run(&levada, &targeted, connections, setting.duration);
        let together = run("sync", connections);
        table::row(
            &format!("fsync, one record a request, {connections} connections over as many partitions"),
            &format!(
                "{:.0} requests/s, p50 {:.0} µs, p99 {:.0} µs",
                spread.rate(),
                spread.percentile_us(50.0),
                spread.percentile_us(99.0)
            ),
            &format!("one partition {:.0} requests/s", together.rate()),
            spread.rate() / together.rate(),
            "reported",
        );
    }
}

/// Memory, start, recovery.
pub(crate) fn footprint(setting: &Setting<'_>) {
    let dir = setting.fresh("levada");
    let levada = Server::start("levada", &dir);
    table::figure(
        "idle, empty: resident memory",
        &format!("{:.1} MiB", levada.resident_kib() as f64 / 1024.0),
        "under 30 MiB",
    );
    create(&levada, "thousand", 1000, "fsync");
    levada.stop();
    let mut starts: Vec<_> = (0..setting.turns.max(5))
        .map(|_| {
            let levada = Server::start("levada", &dir);
            let seen = (levada.ready_seconds * 1e3, levada.resident_kib() as f64 / 1024.0);
            levada.stop();
            seen
        })
        .collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ready_ms, resident) = starts[starts.len() / 2];
    table::figure("start to readyz with 1,000 partitions, clean", &format!("{ready_ms:.0} ms"), "under 150 ms");
    table::figure("idle with 1,000 partitions: resident memory", &format!("{resident:.1} MiB"), "under 30 MiB");
    for mebibytes in [64, 1024] {
        let dir = setting.fresh("recovery");
        let levada = Server::start("levada", &dir);
        create(&levada, "t", 1, "fsync");
        let body = batch(1000);
        let bytes = request("POST", "/v1/topics/t/records?partition=0", &[BATCH], &body);
        for _ in 0..(mebibytes << 20) / body.len() {
            once(&levada, &bytes);
        }
        levada.kill();
        let levada = Server::start("levada", &dir);
        let what = format!("start to readyz after kill -9 with {mebibytes} MiB in one partition");
        table::figure(&what, &format!("{:.0} ms", levada.ready_seconds * 1e3), "does not grow with the log");
        levada.stop();
    }
}

/// What readers cost that do not read, or have nothing to read.
pub(crate) fn readers(setting: &Setting<'_>) {
    let levada = Server::start("levada", &setting.fresh("levada"));
    create(&levada, "t", 4, "page-cache");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let accept = ("Accept", "text/event-stream");
    let follow = |from: &str| request("GET", &format!("/v1/topics/t/records?from={from}"), &[accept], b"");
    let open = |bytes: Vec<u8>, count: usize| {
        runtime.block_on(async {
            let mut streams = Vec::new();
            for _ in 0..count {
                let mut stream = TcpStream::connect(("127.0.0.1", levada.port)).await.expect("it listens");
                tokio::io::AsyncWriteExt::write_all(&mut stream, &bytes).await.expect("it reads");
                let mut head = [0; 64];
                tokio::io::AsyncReadExt::read(&mut stream, &mut head).await.expect("it answers");
                assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
                streams.push(stream);
            }
            streams
        })
    };
    let before = levada.resident_kib();
    let idle = open(follow("latest"), 1000);
    let grown = levada.resident_kib().saturating_sub(before);
    table::figure(
        "1,000 idle SSE readers: resident memory each",
        &format!("{:.1} KiB", grown as f64 / 1000.0),
        "bounded, said",
    );
    drop(idle);
    let body = records_json(100);
    for _ in 0..2000 {
        once(&levada, &request("POST", "/v1/topics/t/records", &[JSON], &body));
    }
    let before = levada.resident_kib();
    let stalled = open(follow("earliest"), 20);
    let until = Instant::now() + setting.duration;
    let mut most = 0;
    while Instant::now() < until {
        most = most.max(levada.resident_kib().saturating_sub(before));
        std::thread::yield_now();
    }
    table::figure(
        "20 SSE readers that stopped reading with 200 MB before them: resident memory each, at most",
        &format!("{:.0} KiB", most as f64 / 20.0),
        "bounded, said",
    );
    drop(stalled);
}

/// Records out through WebSockets, as fast as they are read, against a bare server that sends the same messages.
pub(crate) fn ws_push(setting: &Setting<'_>) {
    let (levada, bare) =
        (Server::start("levada", &setting.fresh("levada")), Server::start("bare", &setting.fresh("bare")));
    create(&levada, "t", 1, "page-cache");
    let body = records_json(100);
    for _ in 0..6_000 {
        once(&levada, &request("POST", "/v1/topics/t/records", &[JSON], &body));
    }
    let message = [sockets::one_message(&levada, "t")];
    let begin = sockets::begin("t", "earliest");
    for subscribers in [1, 10, 100] {
        let turns: Vec<_> = (0..setting.turns)
            .map(|_| {
                let ours = sockets::push(&levada, "/v1/ws", &begin, subscribers, setting.duration);
                (ours, sockets::push(&bare, "/ws", &message, subscribers, setting.duration))
            })
            .collect();
        let pick =
            |value: &dyn Fn(&(sockets::Pushed, sockets::Pushed)) -> f64| median(turns.iter().map(value).collect());
        table::row(
            &format!("WebSocket push of 1 KiB records, {subscribers} subscribers"),
            &format!("{:.0} MB/s, {:.0} µs CPU a MB", pick(&|t| t.0.megabytes_a_second), pick(&|t| t.0.server_cpu_us)),
            &format!(
                "bare axum WebSocket from memory {:.0} MB/s, {:.0} µs CPU a MB",
                pick(&|t| t.1.megabytes_a_second),
                pick(&|t| t.1.server_cpu_us)
            ),
            pick(&|t| t.0.megabytes_a_second / t.1.megabytes_a_second),
            "at least 0.60",
        );
    }
}

/// From a produce through one WebSocket to the push through others, at 1,000 records a second.
pub(crate) fn ws_latency(setting: &Setting<'_>) {
    let levada = Server::start("levada", &setting.fresh("levada"));
    for durability in ["page-cache", "fsync"] {
        create(&levada, durability, 1, durability);
        for subscribers in [1, 10] {
            let all = sockets::latencies_us(&levada, durability, subscribers, setting.duration);
            let at = |percent: usize| all[(all.len() - 1) * percent / 100];
            table::figure(
                &format!("produce to push at 1,000 records/s, {durability}, {subscribers} subscribers"),
                &format!("p50 {:.0} µs, p99 {:.0} µs ({} records)", at(50), at(99), all.len()),
                "reported",
            );
        }
    }
}

/// What WebSockets cost that nothing happens on: as many as the limit of open files allows, 10,000 at most.
pub(crate) fn ws_idle(setting: &Setting<'_>) {
    /// Files that either side needs besides.
    const SPARE: u64 = 100;
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // The server gives half of its files to connections.
    let count = usize::try_from((files / 2).min(10_000) - SPARE).expect("a small number");
    raise_file_limit();
    for (topic, what) in [(None, "idle WebSockets"), (Some("t"), "idle WebSockets with a subscription each")] {
        let levada = Server::start("levada", &setting.fresh("levada"));
        create(&levada, "t", 1, "page-cache");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let before = levada.resident_kib();
        let open = sockets::idle(&runtime, &levada, count, topic);
        let grown = levada.resident_kib().saturating_sub(before) as f64;
        table::figure(
            &format!("{count} {what}: resident memory each"),
            &format!(
                "{:.1} KiB; 10,000 would be {:.0} MiB",
                grown / count as f64,
                grown / count as f64 * 10_000.0 / 1024.0
            ),
            "10,000 under 400 MiB",
        );
        drop(open);
    }
}

fn raise_file_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("up to the maximum is allowed");
}
