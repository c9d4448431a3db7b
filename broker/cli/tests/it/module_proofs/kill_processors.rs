//! kill -9 while processors work: under exactly-once the sink has what each input makes, once and in order, and each record
//! that fails is set aside once; under at-least-once nothing is missing.
//!
//! `LEVADA_SOAK=N` makes it N times as long.

use std::collections::{BTreeMap, HashMap};

use levada_client::{AcksWord, Client, NewRecord, Record};
use levada_fixtures::CASES;
use levada_history::Dice;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::broker::{Broker, counted, document};
use super::{report, soak};
use crate::program::Server;

const KILLS: u64 = 8;
const PARTITIONS: u32 = 2;
/// Records of one request.
const REQUEST_RECORDS: u64 = 20;
/// Small, so that rolls and checkpoints fall into every cycle.
const FLAGS: &[&str] = &["--maintenance-interval-ms", "20"];
/// Values, each with what the module makes of it; most pass.
const KINDS: [(&str, u64); 5] = [("fine", 1), ("none", 0), ("three", 3), ("bad", 0), ("null", 1)];

/// Where a record comes from: its partition and offset.
type Place = (u32, u64);

/// What is to become of the inputs: for each key where it comes from, how many outputs, and how many dead letters.
type Expected = HashMap<String, (Place, u64, u64)>;

/// Produces until the server is gone. Every record has a key of its own, which what becomes of it keeps.
async fn produce(client: Client, partition: u32, round: u64, requests: u64) {
    for request in 0.. {
        let record = |number: u64| {
            let kind = match (number * 7 + request) % 100 {
                0 => "bad",
                1..10 => "three",
                10..20 => "none",
                20..25 => "null",
                _ => "fine",
            };
            let key = format!("{partition}-{round}-{request}-{number}");
            NewRecord { partition: Some(partition), ..NewRecord::text(kind).with_key(key) }
        };
        let records: Vec<_> = (0..REQUEST_RECORDS).map(record).collect();
        match client.produce("in", &records, AcksWord::All).await {
            Ok(_) if request + 1 == requests => return,
            Ok(_) => {}
            Err(error) if error.problem().is_none() => return,
            Err(refused) => panic!("nothing is wrong with it: {refused}"),
        }
    }
}

fn key(record: &Record) -> String {
    String::from_utf8(record.key.as_ref().expect("it has one").to_vec()).expect("text")
}

fn expected(inputs: &[Record]) -> Expected {
    let one = |record: &Record| {
        let value = String::from_utf8_lossy(record.value.as_deref().expect("a value")).into_owned();
        let (_, outputs) = KINDS.iter().find(|(kind, _)| *kind == value).expect("a kind");
        (key(record), ((record.partition, record.offset), *outputs, u64::from(value == "bad")))
    };
    inputs.iter().map(one).collect()
}

/// That each input is there as often as it is to be, and in order.
fn once(expected: &Expected, sink: &[Record], aside: &[Record], told: &str) {
    at_most_once(expected, sink, aside, told);
    let (outputs, letters) = (counted(sink.iter().map(key)), counted(aside.iter().map(key)));
    for (key, (place, wanted, wanted_letters)) in expected {
        let count = |of: &BTreeMap<String, u64>| of.get(key).copied().unwrap_or_default();
        assert_eq!((count(&outputs), count(&letters)), (*wanted, *wanted_letters), "{told}: {place:?} is missing");
    }
    // What comes from one partition to one partition keeps its order.
    let mut last = HashMap::new();
    for record in sink {
        let ((from, offset), ..) = expected[&key(record)];
        let before = last.insert((from, record.partition), offset).unwrap_or_default();
        assert!(before <= offset, "{told}: {offset} of partition {from} comes after {before}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_in_processors_neither_loses_nor_under_exactly_once_doubles_anything() {
    let seed = u64::from(std::process::id());
    let mut dice = Dice::new(seed);
    let dir = TempDir::new().expect("a temporary directory");
    let mut broker = Broker::of(Server::on(dir.path(), FLAGS));
    broker.put("cases", CASES).await;
    for topic in ["in", "exactly", "least"] {
        broker.topic(topic, PARTITIONS, json!({ "segment.bytes": 65_536, "durability": "page-cache" })).await;
    }
    for (name, guarantee) in [("exactly", "exactly-once"), ("least", "at-least-once")] {
        let on_error = json!({ "attempts": 2, "topic": format!("{name}.aside") });
        let more = json!({ "on_error": on_error, "guarantee": guarantee, "commit_interval_ms": 20 });
        broker.processor(name, &document("in", "cases", name, more)).await;
    }
    for kill in 1..=KILLS * soak() {
        // Over when so much of it is in the sinks: from the first batch to many.
        let enough = broker.sunk("exactly").await + 1 + dice.below(300) as u64;
        let mut producers = JoinSet::new();
        for partition in 0..PARTITIONS {
            let client = Client::new(&broker.server.url).expect("a good address");
            producers.spawn(produce(client, partition, kill, 100));
        }
        while broker.sunk("exactly").await < enough {
            tokio::task::yield_now().await;
        }
        broker.server.running.signal(Signal::KILL);
        producers.join_all().await;
        drop(broker);
        broker = Broker::of(Server::on(dir.path(), FLAGS));
        // The sink first: what is in it came from what is there then.
        let (sink, aside) = (broker.all("exactly").await, broker.letters("exactly").await);
        let inputs = expected(&broker.all("in").await);
        at_most_once(&inputs, &sink, &aside, &format!("seed {seed}, kill {kill}"));
    }
    for name in ["exactly", "least"] {
        broker.worked_off(name).await;
    }
    let inputs = expected(&broker.all("in").await);
    let told = format!("seed {seed}, at the end");
    once(&inputs, &broker.all("exactly").await, &broker.letters("exactly").await, &told);
    let least = counted(broker.all("least").await.iter().map(key));
    let letters = counted(broker.letters("least").await.iter().map(key));
    let mut again = 0;
    for (key, (place, outputs, wanted_letters)) in &inputs {
        let found = (least.get(key).copied().unwrap_or_default(), letters.get(key).copied().unwrap_or_default());
        assert!(found.0 >= *outputs && found.1 >= *wanted_letters, "{told}: {place:?} has {found:?}");
        again += found.0 - outputs + found.1 - wanted_letters;
    }
    assert!(least.keys().chain(letters.keys()).all(|key| inputs.contains_key(key)), "{told}: from nothing");
    report(&format!("{} inputs over {} kills; {again} came again under at-least-once", inputs.len(), KILLS * soak()));
    assert!(inputs.len() > 500, "it was about something: {}", inputs.len());
}

/// Of two reads one after the other, letters and outputs of one input may be seen apart; none is there too often.
fn at_most_once(inputs: &Expected, sink: &[Record], aside: &[Record], told: &str) {
    for (records, is_aside) in [(sink, false), (aside, true)] {
        for (key, found) in counted(records.iter().map(key)) {
            let (place, outputs, letters) = inputs.get(&key).unwrap_or_else(|| panic!("{told}: {key} from nothing"));
            let wanted = if is_aside { letters } else { outputs };
            assert_eq!(found, *wanted, "{told}: {place:?}");
        }
    }
}
