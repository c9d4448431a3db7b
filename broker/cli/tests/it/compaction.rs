//! Compaction by the command line; and kill -9 while the cleaner is at work, again and again: each key's newest record is
//! there, for readers on the way as well, and no offset ever holds something else than what was acknowledged there.
//!
//! `LEVADA_SOAK=N` makes the kill loop N times as long.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use levada_api::Placement;
use levada_client::{AcksWord, Client, ClientError, FetchQuery, NewRecord, NewValue};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::group_support::describe;
use crate::program::{Server, levada};

const KILLS: u64 = 15;
const WRITERS: u64 = 4;
const KEYS: u64 = 8;
const PARTITIONS: u32 = 2;
/// The cleaner hardly rests.
const FLAGS: &[&str] = &["--maintenance-interval-ms", "2"];
/// In the first tombstones stay, so that a reader on its way is owed every one of them; in the second they go at once.
const TOPICS: [(&str, &str); 2] = [("lasting", "delete.retention.ms=86400000"), ("brief", "delete.retention.ms=0")];

#[test]
fn a_topic_is_compacted_and_tells_how_far_it_is() {
    let server = Server::new(&[]);
    let config = ["--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.9"];
    server.levada(&[&["topic", "create", "t"][..], &config].concat()).ok();
    let described = server.levada(&["topic", "describe", "t", "--output", "json"]).json();
    assert_eq!(described["config"]["min.cleanable.dirty.ratio"], 0.9);
    let produce = ["produce", "t", "--key-separator", ":"];
    server.pipe(&produce, "a:1\nb:1\na:2\nb:2\na:3\n").ok();
    let text = server.levada(&["topic", "describe", "t"]).ok();
    assert!(text.contains("0..5 (active segment)"), "{text}");
    let said = server.levada(&["topic", "compact", "t"]).ok();
    assert!(said.starts_with("partition 0: 2 of 5 records stay, "), "{said}");
    assert_eq!(server.levada(&["consume", "t", "--key-separator", ":"]).ok(), "b:2\na:3\n");
    assert_eq!(server.levada(&["consume", "t", "--partition", "0", "--from", "1", "--max", "1"]).ok(), "2\n");
    let text = server.levada(&["topic", "describe", "t"]).ok();
    let row: Vec<_> =
        text.lines().skip_while(|line| !line.contains("CLEAN TO")).nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row, ["0", "5", "0", "0.00"], "{text}");
    let bench = server.levada(&["bench", "consume", "--topic", "t", "--output", "json"]).json();
    assert_eq!(bench["records"], 2, "{bench}");

    let error = server.pipe(&["produce", "t"], "1\n").failed(1);
    assert!(error.starts_with("line 1: ") && error.contains("every record needs one"), "{error}");
    server.pipe(&["produce", "u"], "1\n").ok();
    let error = server.levada(&["topic", "compact", "u"]).failed(1);
    assert!(error.contains("not-compacted"), "{error}");
    let error = server.levada(&["topic", "alter", "u", "--config", "cleanup.policy=compact"]).failed(1);
    assert!(error.contains("keyless-records") && error.contains("offset 0"), "{error}");

    let (status, dir) = server.terminate();
    assert!(status.success());
    let dir = dir.expect("it is its own");
    levada(&["log", "verify", dir.path().to_str().expect("text")]).ok();
}

/// PC-34, for positions that a group has committed.
#[test]
fn a_group_goes_on_behind_a_hole_in_which_its_committed_position_lies() {
    let server = Server::new(&["--group-initial-rebalance-delay-ms", "1"]);
    server.levada(&["topic", "create", "t", "--config", "cleanup.policy=compact"]).ok();
    server.pipe(&["produce", "t", "--key-separator", ":"], "a:0\nb:1\nc:2\nd:3\na:4\nb:5\nc:6\na:7\nb:8\nc:9\n").ok();
    let read = |more: &[&str]| server.levada(&[&["consume", "t", "--group", "g"], more].concat());
    assert_eq!(read(&["--max", "5"]).ok(), "0\n1\n2\n3\n4\n");
    server.levada(&["topic", "compact", "t"]).ok();
    assert_eq!(read(&["--max", "1"]).ok(), "7\n", "offsets 5 and 6 are gone");
    for from in [0, 2, 3, 4, 6, 7, 9, 10] {
        server.levada(&["group", "reset", "g", "--topic", "t", "--to", &from.to_string()]).ok();
        let rest: String = [3, 7, 8, 9].iter().filter(|at| **at >= from).map(|at| format!("{at}\n")).collect();
        let printed = read(&[]);
        assert!(!printed.err.contains("reset") && !printed.err.contains("gap"), "from {from}: {printed:?}");
        assert_eq!(printed.ok(), rest, "from {from}");
        let offset = &describe(&server, "g").offsets[0];
        assert_eq!((offset.committed, offset.lag), (10, 0), "from {from}");
    }
}

/// What is known of a key: the last record that was acknowledged, by its number.
type Acked = HashMap<String, u64>;

/// One writer's records; each is tried until it is answered, over any number of kills.
struct Writer {
    number: u64,
    topic: &'static str,
    /// The number of the record that is being written.
    next: Arc<AtomicU64>,
    acked: Arc<Mutex<Acked>>,
    places: HashMap<(u32, u64), (String, u64)>,
}

fn is_tombstone(number: u64) -> bool {
    number % 5 == 4
}

impl Writer {
    fn new(number: u64) -> Self {
        let topic = TOPICS[usize::from(number % 2 == 1)].0;
        Self { number, topic, next: Arc::default(), acked: Arc::default(), places: HashMap::new() }
    }

    fn key(&self, number: u64) -> String {
        format!("{}-{}", self.number, number % KEYS)
    }

    /// Writes until the server is gone.
    async fn write(mut self, client: Client, answers: Arc<Semaphore>) -> Self {
        loop {
            let next = self.next.load(Ordering::SeqCst);
            let key = self.key(next);
            let pad = "x".repeat((next % 7 * 60).try_into().expect("small"));
            let value = if is_tombstone(next) { NewValue::Tombstone } else { NewValue::Text(pad) };
            let headers = vec![("number".to_owned(), Some(next.to_string().into()))];
            let record = NewRecord { value, headers, ..NewRecord::default() }.with_key(key.clone());
            let once = format!("{}-{next}", self.number);
            let answer = match client.produce_with_key(self.topic, &[record], AcksWord::All, Some(&once)).await {
                Ok(answer) => answer,
                Err(error) if error.problem().is_none() => return self,
                Err(refused) => panic!("nothing is wrong with it: {refused}"),
            };
            let Placement::Placed(placed) = &answer.records[0] else { panic!("{answer:?}") };
            self.places.insert((placed.partition, placed.offset.expect("acks=all tells it")), (key.clone(), next));
            self.acked.lock().expect("no panic").insert(key, next);
            self.next.store(next + 1, Ordering::SeqCst);
            answers.add_permits(1);
        }
    }

    fn watch(&self) -> Watch {
        Watch { topic: self.topic, next: self.next.clone(), acked: self.acked.clone() }
    }
}

/// What a reader knows of a writer.
struct Watch {
    topic: &'static str,
    next: Arc<AtomicU64>,
    acked: Arc<Mutex<Acked>>,
}

impl Watch {
    /// What is owed to a reader that begins now.
    fn owed(&self) -> Acked {
        self.acked.lock().expect("no panic").clone()
    }

    /// Holds what a reader found against what it was owed when it began.
    fn check(&self, owed: Acked, found: &Found) {
        let tried = self.next.load(Ordering::SeqCst);
        for (key, acked) in owed {
            match found.newest.get(&key) {
                Some(newest) => assert!(*newest >= acked, "{}: {key} is at {newest} again, after {acked}", self.topic),
                // It is gone, if it was deleted then or later.
                None => assert!(
                    (acked..=tried).step_by(KEYS.try_into().expect("few")).any(is_tombstone),
                    "{}: {key} is lost, {acked} was acknowledged",
                    self.topic
                ),
            }
        }
    }
}

/// What a reader found in a topic.
#[derive(Default)]
struct Found {
    newest: HashMap<String, u64>,
    places: BTreeMap<(u32, u64), (String, u64)>,
}

/// Reads a topic from its beginning to where its end was at the last answer.
async fn read(client: &Client, topic: &str) -> Result<Found, ClientError> {
    let mut found = Found::default();
    for partition in 0..PARTITIONS {
        let mut next = 0;
        loop {
            let query = FetchQuery { max_records: Some(50), ..FetchQuery::from(next) };
            let fetched = client.fetch(topic, partition, &query).await?;
            assert!(fetched.gaps.is_empty(), "a hole is no gap: {:?}", fetched.gaps);
            for record in fetched.records {
                assert!((next..fetched.next_offset).contains(&record.offset), "offsets rise");
                next = record.offset + 1;
                let key = String::from_utf8(record.key.expect("a key").to_vec()).expect("text");
                let number = record.headers[0].1.as_ref().expect("a number");
                let number: u64 = std::str::from_utf8(number).expect("text").parse().expect("a number");
                assert_eq!(record.value.is_none(), is_tombstone(number), "{key}");
                found.places.insert((partition, record.offset), (key.clone(), number));
                found.newest.insert(key, number);
            }
            next = fetched.next_offset;
            if next >= fetched.high_watermark {
                break;
            }
        }
    }
    Ok(found)
}

/// Reads while the cleaner is at work, until the server is gone.
async fn read_on(client: Client, watches: Vec<Watch>) -> u64 {
    for rounds in 0.. {
        let owed: Vec<_> = watches.iter().map(Watch::owed).collect();
        match read(&client, TOPICS[0].0).await {
            Ok(found) => watches.iter().zip(owed).for_each(|(watch, owed)| watch.check(owed, &found)),
            Err(error) if error.problem().is_none() => return rounds,
            Err(refused) => panic!("nothing is wrong with it: {refused}"),
        }
    }
    unreachable!("it reads until the server is gone")
}

async fn check_all(client: &Client, writers: &[Writer]) {
    for (topic, _) in TOPICS {
        // Once all has been compacted, and tombstones that may go are gone, nothing changes under the reader.
        for _ in 0..3 {
            client.compact_topic(topic).await.expect("it is compacted");
        }
        let found = read(client, topic).await.expect("it is readable");
        for writer in writers.iter().filter(|writer| writer.topic == topic) {
            let watch = writer.watch();
            watch.check(watch.owed(), &found);
            for (place, what) in found.places.iter().filter(|(place, _)| writer.places.contains_key(place)) {
                assert_eq!(&writer.places[place], what, "what was acknowledged at {place:?}");
            }
        }
    }
}

#[test]
fn each_keys_newest_record_survives_kill_9_in_the_middle_of_compaction() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let dir = TempDir::new().expect("a temporary directory");
    let mut server = Server::on(dir.path(), FLAGS);
    for (topic, retention) in TOPICS {
        let policy = ["--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0"];
        let create = ["topic", "create", topic, "--partitions", "2", "--config", "segment.bytes=2048"];
        server.levada(&[&create[..], &policy, &["--config", retention]].concat()).ok();
    }
    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    let (mut rounds, mut passes) = (0, 0);
    let soak = std::env::var("LEVADA_SOAK").map_or(1, |times| times.parse().expect("LEVADA_SOAK is a number"));
    for kill in 1..=KILLS * soak {
        let enough = u32::try_from(20 + kill * 13 % 90).expect("small");
        writers = runtime.block_on(async {
            let answers = Arc::new(Semaphore::new(0));
            let watches = writers.iter().filter(|writer| writer.topic == TOPICS[0].0).map(Writer::watch).collect();
            let client = || Client::new(&server.url).expect("a good address");
            let reader = tokio::spawn(read_on(client(), watches));
            let mut running = JoinSet::new();
            for writer in writers {
                running.spawn(writer.write(client(), Arc::clone(&answers)));
            }
            answers.acquire_many(enough).await.expect("it is never closed").forget();
            passes += count_passes(server.port());
            server.running.signal(rustix::process::Signal::KILL);
            rounds += reader.await.expect("no panic");
            running.join_all().await
        });
        drop(server);
        server = Server::on(dir.path(), FLAGS);
        let client = Client::new(&server.url).expect("a good address");
        runtime.block_on(check_all(&client, &writers));
    }
    assert!(passes > KILLS && rounds > 0, "the loop was about something: {passes} passes, {rounds} reads");
    let (status, _) = server.terminate();
    assert!(status.success());
    levada(&["log", "verify", dir.path().to_str().expect("text")]).ok();
}

/// Passes of compaction since the server's start.
fn count_passes(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    let count = page.lines().find_map(|line| line.strip_prefix("levada_compaction_passes_total "));
    count.expect("it is counted").trim().parse().expect("a number")
}
