//! kill -9 in uploads, at random moments and with half a module sent: what was acknowledged is there, what was not is there
//! whole or not at all, the version in force answers, and no compiler outlives its server.
//!
//! `LEVADA_SOAK=N` makes it N times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use levada_client::Client;
use levada_fixtures::stamp;
use levada_history::Dice;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::broker::{Broker, PATIENCE};
use super::{report, soak};
use crate::program::Server;

const KILLS: u64 = 12;

/// An upload that may or may not have been taken.
#[derive(Clone, Debug)]
struct Upload {
    name: String,
    stamp: u32,
    activate: bool,
}

/// What is known of a module: its versions with the stamps of their bytes, and which is in force.
#[derive(Clone, Debug, Default)]
struct Known {
    stamps: BTreeMap<u32, u32>,
    active: u32,
}

/// Where in an upload it is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After so long, unless it is answered before.
    After(Duration),
    /// When this part of the body, in hundredths, has been sent.
    Sent(usize),
    /// So long after all was sent, without looking for an answer.
    Unread(Duration),
    /// When there is something new in this folder of the data directory, unless it is answered before.
    New(&'static str),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_is_killed_is_there_whole_or_not_at_all_and_the_version_in_force_answers() {
    let seed = u64::from(std::process::id());
    let mut dice = Dice::new(seed);
    let dir = TempDir::new().expect("a temporary directory");
    let mut broker = Broker::of(Server::on(dir.path(), &[]));
    broker.topic("stored", 1, json!({})).await;
    broker.produce("stored", "1").await.expect("it is stored");
    let mut modules = BTreeMap::new();
    let begun = Instant::now();
    broker.put("m", stamp(0)).await;
    let mut longest = begun.elapsed();
    modules.insert("m".to_owned(), Known { stamps: BTreeMap::from([(1, 0)]), active: 1 });
    let (mut answered, mut in_doubt, mut registered) = (0, 0, 0);
    for kill in 1..=KILLS * soak() {
        let number = u32::try_from(kill).expect("small");
        let name = if dice.falls(30) { format!("new-{kill}") } else { "m".to_owned() };
        let upload = Upload { name, stamp: number, activate: dice.falls(50) };
        let moment = match kill % 6 {
            0 => Moment::Sent(dice.below(100)),
            1 => Moment::New("compiled-modules"),
            2 => Moment::New("modules"),
            3 | 4 => Moment::Unread(longest * u32::try_from(60 + dice.below(100)).expect("small") / 100),
            _ => Moment::After(longest * u32::try_from(dice.below(100)).expect("small") / 100),
        };
        let begun = Instant::now();
        let is_answered = killed(&broker.server, &upload, moment).await;
        if is_answered {
            longest = longest.max(begun.elapsed());
        }
        drop(broker);
        broker = Broker::of(Server::on(dir.path(), &[]));
        let told = format!("seed {seed}, kill {kill}, {moment:?}, {upload:?}");
        let is_there = check(&broker, &modules, &upload, is_answered, &told).await;
        kept(
            dir.path(),
            modules.values().map(|known| known.stamps.len()).sum::<usize>() + usize::from(is_there),
            &told,
        );
        in_doubt += u32::from(!is_answered);
        answered += u32::from(is_answered);
        registered += u32::from(!is_answered && is_there);
        // The same again; it is the same version if it was there.
        let again = broker.client.put_module(&upload.name, stamp(upload.stamp).into(), upload.activate).await;
        let (put, is_new) = again.unwrap_or_else(|error| panic!("{told}: {error}"));
        assert_eq!(is_new, !is_there, "{told}");
        let known = modules.entry(upload.name.clone()).or_default();
        known.stamps.insert(put.version, upload.stamp);
        known.active = put.active_version;
    }
    report(&format!("{answered} answered before the kill; of {in_doubt} that were not, {registered} are there"));
    assert!(in_doubt > 2, "it was about something: {answered} answered, {in_doubt} in doubt");
}

/// Uploads, and kills the server in the middle; answers whether the upload was acknowledged.
async fn killed(server: &Server, upload: &Upload, moment: Moment) -> bool {
    let wasm = stamp(upload.stamp);
    match moment {
        Moment::After(time) => {
            let client = Client::new(&server.url).expect("a good address");
            let put = client.put_module(&upload.name, wasm.into(), upload.activate);
            let answer = tokio::time::timeout(time, put).await;
            server.running.signal(Signal::KILL);
            answer.is_ok_and(|answer| answer.expect("nothing is wrong with it").1)
        }
        Moment::New(folder) => {
            let client = Client::new(&server.url).expect("a good address");
            let (name, activate) = (upload.name.clone(), upload.activate);
            let before = names(&server.dir.join(folder));
            let put = tokio::spawn(async move { client.put_module(&name, wasm.into(), activate).await });
            while !put.is_finished() && names(&server.dir.join(folder)) == before {
                tokio::task::yield_now().await;
            }
            server.running.signal(Signal::KILL);
            // An answer may have come all the same.
            put.await.expect("no panic").is_ok()
        }
        Moment::Sent(hundredths) => {
            let _connection = send(server, upload, wasm.len() * hundredths / 100).await;
            server.running.signal(Signal::KILL);
            false
        }
        Moment::Unread(time) => {
            let mut connection = send(server, upload, wasm.len()).await;
            // Nobody looks at what comes; it only ends the wait.
            let answer = tokio::time::timeout(time, connection.read_u8()).await;
            drop(answer);
            server.running.signal(Signal::KILL);
            false
        }
    }
}

/// Sends the head of an upload and so many bytes of its body.
async fn send(server: &Server, upload: &Upload, bytes: usize) -> TcpStream {
    let Upload { name, activate, stamp: number } = upload;
    let wasm = stamp(*number);
    let head = format!(
        "PUT /v1/modules/{name}?activate={activate} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: \
         application/wasm\r\nContent-Length: {}\r\n\r\n",
        wasm.len()
    );
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).await.expect("it listens");
    connection.write_all(&[head.as_bytes(), &wasm[..bytes]].concat()).await.expect("it is sent");
    connection
}

/// What is registered is what was acknowledged and perhaps the upload, whole; answers whether that is there.
async fn check(
    broker: &Broker,
    modules: &BTreeMap<String, Known>,
    upload: &Upload,
    answered: bool,
    told: &str,
) -> bool {
    let mut is_there = false;
    let listed = broker.client.modules().await.expect("a list");
    let names: BTreeSet<_> = listed.iter().map(|module| module.name.clone()).collect();
    assert!(modules.keys().all(|name| names.contains(name)), "{told}: {names:?}");
    for module in listed {
        let known = modules.get(&module.name).cloned().unwrap_or_default();
        let mut stamps = known.stamps;
        let mut active = known.active;
        if module.name == upload.name && module.versions.len() > stamps.len() {
            is_there = true;
            let version = stamps.keys().max().map_or(1, |last| last + 1);
            stamps.insert(version, upload.stamp);
            if upload.activate || version == 1 {
                active = version;
            }
        }
        assert_eq!(module.active_version, active, "{told}");
        let versions: Vec<_> = module.versions.iter().map(|version| version.version).collect();
        assert_eq!(versions, stamps.keys().copied().collect::<Vec<_>>(), "{told}");
        for (version, number) in &stamps {
            let wasm = broker.client.module_wasm(&module.name, *version).await.expect("its bytes are there");
            assert!(wasm == stamp(*number), "{told}: the bytes of version {version} of {}", module.name);
        }
        // The version in force answers, and so does the newest.
        let newest = stamps.keys().max().expect("it has versions");
        for (filter, version) in
            [(format!("module:{}", module.name), &active), (format!("module:{}@{newest}", module.name), newest)]
        {
            let values =
                broker.filtered("stored", &filter).await.unwrap_or_else(|problem| panic!("{told}: {problem:?}"));
            assert_eq!(values, [format!("{{\"version\":{},\"value\":1}}", stamps[version])], "{told}");
        }
    }
    assert!(!answered || is_there, "{told}: it was acknowledged");
    is_there
}

/// So many files are kept of modules, and as many folders of what was made of them, and nothing unfinished.
fn kept(data_dir: &Path, count: usize, told: &str) {
    let blobs = names(&data_dir.join("modules"));
    assert_eq!(blobs.len(), count, "{told}: {blobs:?}");
    assert!(blobs.iter().all(|name| name.ends_with(".wasm")), "{told}: {blobs:?}");
    let made = names(&data_dir.join("compiled-modules"));
    let blobs: BTreeSet<_> = blobs.iter().map(|name| name.trim_end_matches(".wasm").to_owned()).collect();
    assert_eq!(made, blobs, "{told}: what was made of modules");
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry"));
    entries.map(|entry| entry.file_name().into_string().expect("text")).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_compiler_outlives_a_server_that_is_killed() {
    use rustix::process::{Pid, kill_process};

    let dir = TempDir::new().expect("a temporary directory");
    let server = Server::on(dir.path(), &[]);
    let pid = server.running.pid();
    let client = Client::new(&server.url).expect("a good address");
    let upload = tokio::spawn(async move {
        for number in 0.. {
            if client.put_module("m", stamp(number).into(), true).await.is_err() {
                return;
            }
        }
    });
    let begun = Instant::now();
    // Held, it has no end of its own.
    let compiler = loop {
        let mut found = children(pid).into_iter().filter_map(Pid::from_raw);
        let held = found.find(|child| {
            is_limited(*child) && kill_process(*child, Signal::STOP).is_ok() && state(*child) == Some('T')
        });
        if let Some(held) = held {
            break held;
        }
        assert!(begun.elapsed() < PATIENCE && !upload.is_finished(), "a compiler comes");
    };
    server.running.signal(Signal::KILL);
    let begun = Instant::now();
    while state(compiler).is_some_and(|state| state != 'Z') {
        if begun.elapsed() > PATIENCE {
            kill_process(compiler, Signal::KILL).expect("it is there");
            panic!("the compiler outlives its server");
        }
        tokio::task::yield_now().await;
    }
    upload.await.expect("no panic");
}

/// The processes that this one has started.
#[cfg(target_os = "linux")]
fn children(pid: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let children = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let texts = tasks.filter_map(Result::ok).map(children).collect::<Vec<_>>().join(" ");
    texts.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

/// Whether a compiler has set its limits, which it does when it is bound to its server's end.
#[cfg(target_os = "linux")]
fn is_limited(pid: rustix::process::Pid) -> bool {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap_or_default();
    limits.lines().any(|line| line.starts_with("Max cpu time") && !line.contains("unlimited"))
}

/// How a process stands, in a letter; none if it is gone.
#[cfg(target_os = "linux")]
fn state(pid: rustix::process::Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}
