//! What transactions cost: against the same records without one, and against the disk's own sync.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::cases::{JSON, Setting, ask, by_turns, create, median};
use crate::load::{self, Measured, Script, request};
use crate::process::Server;
use crate::{disk, table};

/// Bytes of a record's value, about.
const VALUE_BYTES: usize = 1024;
const PARTITIONS: u32 = 4;
/// Longer than any load.
const TIMEOUT_MS: u64 = 600_000;

/// One record of a request, with its partition and whatever else it has.
fn record(more: &str, partition: u32) -> String {
    let filler = "x".repeat(VALUE_BYTES - 40);
    format!(r#"{{{more}"value":{{"n":10000000,"text":"{filler}"}},"partition":{partition}}}"#)
}

fn records(count: usize, partition: u32) -> Vec<u8> {
    format!(r#"{{"records":[{}]}}"#, vec![record("", partition); count].join(",")).into_bytes()
}

fn partition_of(connection: usize) -> u32 {
    u32::try_from(connection).expect("few") % PARTITIONS
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let body = serde_json::to_vec(body).expect("it is JSON");
    serde_json::from_slice(&ask(server, &request("POST", path, &[JSON], &body))).expect("it answers with JSON")
}

/// Where a transaction is.
enum Step {
    Begin,
    Produce,
    Commit,
}

/// A producer that begins, sends one request of records and commits, over and over. What is measured is the commit.
struct Transactional {
    body: Vec<u8>,
    /// As the last answer told it.
    producer: Vec<u8>,
    transaction: String,
    step: Step,
}

impl Transactional {
    fn script(server: &Server, number: usize, records_count: usize) -> Box<dyn Script> {
        let wanted = json!({ "transactional_id": format!("bench-{number}"), "timeout_ms": TIMEOUT_MS });
        let started = post(server, "/v1/producers", &wanted);
        let producer = json!({ "producer_id": started["producer_id"], "producer_epoch": started["producer_epoch"] });
        Box::new(Self {
            body: records(records_count, partition_of(number)),
            producer: serde_json::to_vec(&producer).expect("it is JSON"),
            transaction: String::new(),
            step: Step::Begin,
        })
    }
}

impl Script for Transactional {
    fn next(&mut self) -> Cow<'_, [u8]> {
        let transaction = &self.transaction;
        Cow::Owned(match self.step {
            Step::Begin => request("POST", "/v1/transactions", &[JSON], &self.producer),
            Step::Produce => request("POST", "/v1/topics/t/records", &[JSON, ("Transaction", transaction)], &self.body),
            Step::Commit => request("POST", &format!("/v1/transactions/{transaction}/commit"), &[JSON], b"{}"),
        })
    }

    fn answered(&mut self, body: &[u8]) -> bool {
        match self.step {
            Step::Begin => {
                let begun: Value = serde_json::from_slice(body).expect("it answers with JSON");
                self.transaction = begun["transaction"].as_str().expect("its id").to_owned();
                self.step = Step::Produce;
                false
            }
            Step::Produce => {
                self.step = Step::Commit;
                false
            }
            Step::Commit => {
                self.producer = body.to_vec();
                self.step = Step::Begin;
                true
            }
        }
    }
}

/// A producer whose retries are recognised, without transactions.
struct Idempotent {
    body: Vec<u8>,
    id: String,
    records_count: usize,
    sequence: usize,
}

impl Idempotent {
    fn script(server: &Server, number: usize, records_count: usize) -> Box<dyn Script> {
        let started = post(server, "/v1/producers", &json!({ "transactional_id": null }));
        let id = started["producer_id"].to_string();
        Box::new(Self { body: records(records_count, partition_of(number)), id, records_count, sequence: 0 })
    }
}

impl Script for Idempotent {
    fn next(&mut self) -> Cow<'_, [u8]> {
        let sequence = self.sequence.to_string();
        let headers = [JSON, ("Producer-Id", &*self.id), ("Producer-Epoch", "0"), ("Producer-Sequence", &*sequence)];
        Cow::Owned(request("POST", "/v1/topics/t/records", &headers, &self.body))
    }

    fn answered(&mut self, _: &[u8]) -> bool {
        self.sequence += self.records_count;
        true
    }
}

/// Transactions of a hundred records against the same records of idempotent producers.
pub(crate) fn produce(setting: &Setting<'_>) {
    const PRODUCERS: usize = 16;
    const RECORDS: usize = 100;
    for durability in ["fsync", "page-cache"] {
        let levada = Server::start("levada", &setting.fresh("levada"));
        create(&levada, "t", PARTITIONS, durability);
        let each = |new: fn(&Server, usize, usize) -> Box<dyn Script>| {
            let scripts = (0..PRODUCERS).map(|number| new(&levada, number, RECORDS)).collect();
            load::run_scripts(&levada, scripts, setting.duration)
        };
        let (a, b, ratio, cpu) = by_turns(
            setting,
            || each(Transactional::script),
            || each(Idempotent::script),
            |measured| measured.rate() * RECORDS as f64,
        );
        table::row(
            &format!("transactions of {RECORDS} JSON records of 1 KiB, {durability}, {PRODUCERS} producers"),
            &format!("{a:.0} records/s, {:.0} µs CPU a transaction", cpu[0]),
            &format!("idempotent producers, the same requests {b:.0} records/s, {:.0} µs CPU a request", cpu[1]),
            ratio,
            if durability == "fsync" { "at least 0.60" } else { "reported" },
        );
    }
}

/// The commit of one producer against the disk's own fdatasync.
pub(crate) fn commit(setting: &Setting<'_>) {
    let levada = Server::start("levada", &setting.fresh("levada"));
    create(&levada, "t", PARTITIONS, "fsync");
    let turns: Vec<_> = (0..setting.turns)
        .map(|_| {
            let one = vec![Transactional::script(&levada, 0, 1)];
            let measured = load::run_scripts(&levada, one, setting.duration);
            (measured, disk::syncs_of_zeros_us(setting.dir, 1100, 2000))
        })
        .collect();
    for (percent, target) in [(50_u32, "reported"), (99, "under 5")] {
        let commits = turns.iter().map(|(measured, _)| measured.percentile_us(f64::from(percent)));
        let syncs = turns.iter().map(|(_, all)| all[(all.len() - 1) * percent as usize / 100]);
        let ratios = commits.clone().zip(syncs.clone()).map(|(commit, sync)| commit / sync);
        table::row(
            &format!("commit of a transaction with one record, fsync, one producer: p{percent}"),
            &format!("{:.0} µs", median(commits.collect())),
            &format!("fdatasync of zero-filled bytes {:.0} µs", median(syncs.collect())),
            median(ratios.collect()),
            target,
        );
    }
}

/// Whole transactions in one request against plain produces of the same records.
pub(crate) fn execute(setting: &Setting<'_>) {
    const CONNECTIONS: usize = 64;
    let levada = Server::start("levada", &setting.fresh("levada"));
    create(&levada, "t", PARTITIONS, "fsync");
    for count in [1, 100] {
        let whole = |partition| {
            let records = vec![record(r#""topic":"t","#, partition); count].join(",");
            let body = format!(r#"{{"records":[{records}]}}"#);
            request("POST", "/v1/transactions/execute", &[JSON], body.as_bytes())
        };
        let plain = |partition| request("POST", "/v1/topics/t/records", &[JSON], &records(count, partition));
        let ours: Vec<_> = (0..PARTITIONS).map(whole).collect();
        let theirs: Vec<_> = (0..PARTITIONS).map(plain).collect();
        let (a, b, ratio, cpu) = by_turns(
            setting,
            || load::run(&levada, &ours, CONNECTIONS, setting.duration),
            || load::run(&levada, &theirs, CONNECTIONS, setting.duration),
            Measured::rate,
        );
        table::row(
            &format!("execute with {count} JSON records of 1 KiB, fsync, {CONNECTIONS} connections"),
            &format!("{a:.0} requests/s, {:.0} µs CPU", cpu[0]),
            &format!("plain produce {b:.0} requests/s, {:.0} µs CPU", cpu[1]),
            ratio,
            "reported",
        );
    }
}
