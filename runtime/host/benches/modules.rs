//! What a module costs beside its native twin, in the same run: calls of 128 records with values of 100 bytes, in place on
//! a thread of the host; what the way to that thread costs; what an endless module costs its neighbour; and how long
//! modules take to be there.
//!
//! `cargo bench -p levada-host`. Times of the first table are CPU time of the thread; each figure is the median of several
//! runs, in which twin and module take turns.
#![expect(clippy::print_stdout, reason = "a bench reports on its standard output")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use levada_extension::{
    CallBatch, CallSection, KeyRecord, Keys, ModuleHost, ModuleVersion, Moment, Murmur2, Partitioner, Verdicts,
};
use levada_fixtures::{BYTE_FILTER, ENDLESS, EVERYTHING, JSON_FILTER, KEYS};
use levada_host::{Compiler, Host, HostOptions};
use levada_model::{PartitionIndex, Record, SystemClock, Timestamp, TopicName};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use tempfile::TempDir;

const RECORDS: usize = 128;
const RUNS: usize = 15;
const CALLS_A_RUN: usize = 200;
const MOMENT: Moment = Moment { time: Timestamp(1_700_000_000_000), seed: 1 };

#[derive(Deserialize)]
struct Body {
    amt: i64,
}

fn main() {
    let directory = TempDir::new().expect("a directory");
    let host = open(&directory);
    throughput(&host);
    ways(&host);
    neighbours(&host);
    beginnings(&host, &directory);
}

fn open(directory: &TempDir) -> Host {
    let program = env!("CARGO_BIN_EXE_levada-compiler").into();
    let compiler = Compiler::Process { program, arguments: Vec::new() };
    let options = HostOptions::new(directory.path().join("compiled"), compiler, Arc::new(SystemClock));
    Host::open(options).expect("a host")
}

fn compile(host: &Host, wasm: &'static [u8]) -> Arc<dyn ModuleVersion> {
    host.compile(&Bytes::from_static(wasm)).expect("a module")
}

/// Values of exactly 100 bytes, of which about half pass the filters.
fn batch(records: usize) -> CallBatch {
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let record = |_| {
        let head = format!("{{\"id\":{},\"type\":\"click\",\"amt\":{}", next() % 90_000_000, next() % 900 + 100);
        let value = format!("{head},\"z\":\"{}\"}}", "x".repeat(100 - head.len() - 8));
        assert_eq!(value.len(), 100);
        let key = Some(Bytes::from(format!("key-{:012}", next() % 100)));
        (MOMENT.time, Record { key, value: Some(value.into()), headers: vec![] })
    };
    let records: Vec<_> = (0..records).map(record).collect();
    let topic = TopicName::new("bench").expect("a name");
    CallBatch { moment: MOMENT, sections: vec![CallSection::unstored(topic, PartitionIndex(0), &records)] }
}

fn native_filter(batch: &CallBatch, keeps: impl Fn(&[u8]) -> bool) -> Vec<u32> {
    let records = (0..).zip(batch.records());
    let kept = records.filter(|(_, record)| record.as_ref().is_ok_and(|record| record.value.is_some_and(&keeps)));
    kept.map(|(place, _)| place).collect()
}

fn keeps_json(value: &[u8]) -> bool {
    serde_json::from_slice::<Body>(value).is_ok_and(|body| body.amt >= 500)
}

fn keeps_byte(value: &[u8]) -> bool {
    value.get(10).is_some_and(|byte| byte % 2 == 0)
}

/// Runs on one of the host's threads, and waits.
fn on_the_hosts_thread(module: &Arc<dyn ModuleVersion>, job: impl FnOnce() + Send + 'static) {
    let (sender, done) = channel();
    let whole = move || {
        job();
        sender.send(()).expect("the bench waits");
    };
    module.run(Box::new(whole)).expect("there is room");
    done.recv().expect("the job runs");
}

fn throughput(host: &Host) {
    println!("{RECORDS} records of 100 bytes a call         native    module    ratio   module, records/s");
    for (what, wasm, keeps) in
        [("JSON filter", JSON_FILTER, keeps_json as fn(&[u8]) -> bool), ("byte filter", BYTE_FILTER, keeps_byte)]
    {
        let module = compile(host, wasm);
        let transform = module.transform("{}").expect("a transform");
        let job = move || {
            let batch = batch(RECORDS);
            let expected = Verdicts::Keep(native_filter(&batch, keeps));
            assert_eq!(transform.transform(&batch), Ok(expected), "module and twin agree");
            let native = || drop(black_box(native_filter(black_box(&batch), keeps)));
            let wasm = || drop(black_box(transform.transform(black_box(&batch))));
            compare(what, native, wasm);
        };
        on_the_hosts_thread(&module, job);
    }
    let module = compile(host, KEYS);
    let partitioner = module.partitioner("{}").expect("a partitioner");
    on_the_hosts_thread(&module, move || {
        let batch = batch(RECORDS);
        let keys: Vec<_> = batch.records().map(|record| record.expect("well-formed").key).collect();
        let topic = TopicName::new("bench").expect("a name");
        let record = |key: &Option<_>| KeyRecord { timestamp: MOMENT.time, key: *key, value: None, headers: &[] };
        let records: Vec<_> = keys.iter().map(record).collect();
        let call = Keys { topic: &topic, moment: MOMENT, records: &records };
        let murmur2 = Murmur2::default();
        assert_eq!(partitioner.place(&call, 12), Ok(murmur2.partition(&keys, 12)), "module and twin agree");
        let native = || drop(black_box(murmur2.partition(black_box(&keys), 12)));
        let wasm = || drop(black_box(partitioner.place(black_box(&call), 12)));
        compare("partitioner of keys", native, wasm);
    });
}

fn compare(what: &str, mut native: impl FnMut(), mut module: impl FnMut()) {
    let (mut natives, mut modules, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (one, other) = (cpu_of(&mut native), cpu_of(&mut module));
        natives.push(one);
        modules.push(other);
        ratios.push(other / one);
    }
    let (native, module, ratio) = (median(natives), median(modules), median(ratios));
    println!("  {what:<32} {native:>8.1} ns {module:>6.1} ns {ratio:>7.2} {:>12.1} M", 1e3 / module);
}

/// Nanoseconds of CPU time a record.
fn cpu_of(call: &mut impl FnMut()) -> f64 {
    let began = thread_cpu();
    (0..CALLS_A_RUN).for_each(|_| call());
    let records = u32::try_from(CALLS_A_RUN * RECORDS).expect("a small number");
    (thread_cpu() - began).as_secs_f64() * 1e9 / f64::from(records)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().expect("positive"), time.tv_nsec.try_into().expect("below a second"))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// One call of one record, in place and from another thread.
fn ways(host: &Host) {
    let module = compile(host, BYTE_FILTER);
    let transform = module.transform("{}").expect("a transform");
    let one = batch(1);
    println!("\none call of one record                    p50       p99");
    show("handed to the host's thread", latencies(5_000, || drop(transform.transform(&one))));
    on_the_hosts_thread(&module, move || {
        show("in place", latencies(5_000, || drop(transform.transform(&one))));
    });
}

/// What an endless module costs another.
fn neighbours(host: &Host) {
    let module = compile(host, BYTE_FILTER);
    let transform = module.transform("{}").expect("a transform");
    let batch = batch(RECORDS);
    println!("\none call of {RECORDS} records                  p50       p99");
    show("alone", latencies(5_000, || drop(transform.transform(&batch))));
    let endless = compile(host, ENDLESS);
    let looping = endless.transform("{}").expect("a transform");
    let again = |count: usize| {
        for _ in 0..count {
            let (looping, batch) = (Arc::clone(&looping), self::batch(1));
            // A full queue is what is wanted.
            let _ = endless.run(Box::new(move || drop(looping.transform(&batch))));
        }
    };
    again(64);
    show("beside an endless module", latencies(5_000, || drop(transform.transform(&batch))));
}

fn latencies(calls: usize, mut call: impl FnMut()) -> Vec<Duration> {
    let time = |_| {
        let began = Instant::now();
        call();
        began.elapsed()
    };
    let mut times: Vec<_> = (0..calls).map(time).collect();
    times.sort();
    times
}

fn show(what: &str, times: Vec<Duration>) {
    let micros = |quantile: usize| times[(times.len() - 1) * quantile / 100].as_secs_f64() * 1e6;
    println!("  {what:<32} {:>7.1} us {:>7.1} us", micros(50), micros(99));
}

/// From an upload to its first record, and from a start to a hundred modules.
fn beginnings(host: &Host, directory: &TempDir) {
    let began = Instant::now();
    let module = compile(host, EVERYTHING);
    let transform = module.transform(r#"{"at_least":1}"#).expect("a transform");
    transform.transform(&batch(1)).expect("an answer");
    let kib = EVERYTHING.len() / 1024;
    println!("\nupload of {kib} KiB to its first record: {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    let wasms: Vec<Bytes> = (0..100_u32).map(|i| marked(EVERYTHING, i)).collect();
    let digests: Vec<_> = wasms.iter().map(|wasm| host.compile(wasm).expect("a module").describe().digest).collect();
    let other = open(directory);
    let began = Instant::now();
    let loaded: Vec<_> = digests
        .iter()
        .map(|digest| other.load(*digest, &|| Err(std::io::ErrorKind::NotFound.into())).expect("it is kept"))
        .collect();
    println!("{} known modules of {kib} KiB loaded: {:.1} ms", loaded.len(), began.elapsed().as_secs_f64() * 1e3);
}

/// The same module with a custom section of its own, so that it is another.
fn marked(wasm: &[u8], mark: u32) -> Bytes {
    let mut wasm = wasm.to_vec();
    wasm.extend([0, 5, 0]);
    wasm.extend(mark.to_le_bytes());
    wasm.into()
}
