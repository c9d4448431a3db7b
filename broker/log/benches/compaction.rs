//! Compaction against a plain copy of the same bytes, and the memory that it takes.
//!
//! `cargo bench -p levada-log`. `LEVADA_BENCH_MIB` (1024) is the log's size, `LEVADA_BENCH_KEYS` (1,000,000) how many keys
//! it has, `LEVADA_BENCH_TURNS` (3) how often all is done, `LEVADA_BENCH_IN` the folder for it (the system's for temporary
//! files). Each turn writes the log anew, copies its segments file by file with a sync each, and compacts it.
#![expect(clippy::print_stdout, reason = "a bench reports on its standard output")]
#![expect(clippy::disallowed_methods, reason = "the copy is what a plain program would do")]

use std::env;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use levada_log::{
    Append, BatchBuf, BatchBuilder, CompactionOptions, DiskStorage, LogOptions, NewBatch, PartitionLog, SequenceCheck,
};
use levada_model::{LeaderEpoch, Record, Timestamp};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const VALUE_BYTES: usize = 200;
const BATCH_RECORDS: u64 = 100;
const MIB: u64 = 1 << 20;

/// What one way took.
struct Run {
    took: Duration,
    peak_bytes: u64,
    passes: u32,
    after_bytes: u64,
}

fn main() {
    let number = |name: &str, default: u64| env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (bytes, keys) = (number("LEVADA_BENCH_MIB", 1024) * MIB, number("LEVADA_BENCH_KEYS", 1_000_000));
    let turns = number("LEVADA_BENCH_TURNS", 3);
    println!("{} MiB, {keys} keys, values of {VALUE_BYTES} bytes, {BATCH_RECORDS} records a batch", bytes / MIB);
    println!("| turn | way | MB/s | of copy | passes | MiB after | peak of allocations, MiB |");
    println!("|---|---|---|---|---|---|---|");
    for turn in 1..=turns {
        let dir = match env::var_os("LEVADA_BENCH_IN") {
            Some(place) => tempfile::tempdir_in(place),
            None => tempfile::tempdir(),
        };
        let dir = dir.expect("a folder for the bench");
        let mut copied = None;
        for memory_bytes in [64 << 20, 8 << 20] {
            let path = dir.path().join(format!("log-{memory_bytes}"));
            let mut log = written(&path, bytes, keys, memory_bytes);
            let size = log.reader().size_bytes();
            let copy = *copied.get_or_insert_with(|| {
                let took = copy(&path, &dir.path().join("copy"));
                let rate = rate(size, took);
                println!("| {turn} | copy with syncs | {rate:.0} | 1.00 | | {} | |", size / MIB);
                rate
            });
            let run = compact(&mut log);
            let rate = rate(size, run.took);
            println!(
                "| {turn} | compaction, {} MiB for keys | {rate:.0} | {:.2} | {} | {} | {:.1} |",
                memory_bytes / (1 << 20),
                rate / copy,
                run.passes,
                run.after_bytes / MIB,
                run.peak_bytes as f64 / MIB as f64,
            );
            drop(log);
            std::fs::remove_dir_all(&path).expect("the log goes");
        }
    }
}

/// Megabytes (10^6) a second.
fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

fn written(path: &Path, bytes: u64, keys: u64, memory_bytes: usize) -> PartitionLog {
    let options = LogOptions {
        segment_bytes: 64 * MIB,
        segment_ms: i64::MAX,
        retention_bytes: None,
        retention_ms: None,
        producer_expiration_ms: i64::MAX,
        write_ahead_zeros: false,
        compaction: Some(CompactionOptions {
            memory_bytes,
            min_cleanable_dirty_ratio: 0.0,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 0,
        }),
        retains: false,
    };
    let opened = PartitionLog::open(Arc::new(DiskStorage), path, options, NOW, false);
    let (mut log, _) = opened.expect("a new log");
    // A walk over all keys in an order of its own (a full-period generator), so that neighbours are no neighbours.
    let mut state = 1_u64;
    let mut value = vec![0_u8; VALUE_BYTES];
    let mut stored = 0;
    while stored < bytes {
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        for _ in 0..BATCH_RECORDS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value[..8].copy_from_slice(&state.to_be_bytes());
            let key = format!("key-{:08}", (state >> 33) % keys);
            builder
                .push(NOW, &Record { key: Some(key.into()), value: Some(value.clone().into()), headers: Vec::new() });
        }
        let batch: BatchBuf = builder.finish().expect("compressing nothing does not fail");
        let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
        stored += match log.stage(append, LeaderEpoch(0), NOW).expect("the log takes it") {
            levada_log::Appended::Stored(batch) => batch.bytes().len() as u64,
            levada_log::Appended::Duplicate { .. } => unreachable!("it has no producer"),
        };
        log.write(NOW).expect("the disk has room");
    }
    log.sync().expect("the disk works");
    log
}

fn copy(from: &Path, to: &Path) -> Duration {
    std::fs::create_dir(to).expect("a new folder");
    let begun = Instant::now();
    for entry in std::fs::read_dir(from).expect("the log's folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let target = to.join(path.file_name().expect("it has a name"));
            let mut target = File::create(target).expect("a new file");
            io::copy(&mut File::open(&path).expect("a segment"), &mut target).expect("the disk has room");
            target.sync_all().expect("the disk works");
        }
    }
    let took = begun.elapsed();
    std::fs::remove_dir_all(to).expect("the copy goes");
    took
}

/// A forced pass, and as many more as the memory makes necessary.
fn compact(log: &mut PartitionLog) -> Run {
    let mut run = Run { took: Duration::ZERO, peak_bytes: 0, passes: 0, after_bytes: 0 };
    let begun = Instant::now();
    loop {
        let bound = log.marks().log_end;
        let mut pass = None;
        let counted = allocation_counter::measure(|| {
            let plan = log.plan_compaction(NOW, bound, run.passes == 0).expect("the disk works");
            let Some(plan) = plan else { return };
            let mut compacted = plan.run(&AtomicBool::new(false)).expect("the disk works");
            while log.install_next(&mut compacted).expect("the disk works") {}
            pass = log.install_compacted(compacted).expect("the disk works");
        });
        let Some(pass) = pass else { break };
        run.passes += 1;
        run.peak_bytes = run.peak_bytes.max(counted.bytes_max);
        if pass.is_done {
            break;
        }
    }
    run.took = begun.elapsed();
    run.after_bytes = log.reader().size_bytes();
    run
}
