//! Levada against bare servers and the bare disk, in one run, as ratios: `cargo bench -p levada-server`.
//!
//! `cargo bench -p levada-server -- NAME…` runs only the named ones of: json-one, json-hundred, batches, fsync-one,
//! footprint, readers, ws-push, ws-latency, ws-idle, txn-produce, txn-commit, txn-execute. `LEVADA_BENCH_SECONDS` (default
//! 3) is the length of each load, `LEVADA_BENCH_TURNS` (default 3) how often the two sides take turns, `LEVADA_BENCH_IN` a
//! folder on the disk under test (default: the target folder).

mod bare;
mod cases;
mod disk;
mod load;
mod process;
mod serve;
mod sockets;
mod table;
mod transactions;

use std::path::PathBuf;
use std::time::Duration;

type Case = fn(&cases::Setting<'_>);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
}

fn main() {
    if let Ok(role) = std::env::var("LEVADA_BENCH_ROLE") {
        return serve::run(
            &role,
            PathBuf::from(std::env::var_os("LEVADA_BENCH_DIR").expect("a server has a directory")),
        );
    }
    let parent =
        std::env::var_os("LEVADA_BENCH_IN").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = tempfile::tempdir_in(parent).expect("the disk takes it");
    let setting = cases::Setting {
        dir: dir.path(),
        duration: Duration::from_secs(number("LEVADA_BENCH_SECONDS", 3)),
        turns: usize::try_from(number("LEVADA_BENCH_TURNS", 3)).expect("a small number"),
    };
    let all: [(&str, Case); 12] = [
        ("json-one", cases::json_one),
        ("json-hundred", cases::json_hundred),
        ("batches", cases::batches),
        ("fsync-one", cases::fsync_one),
        ("footprint", cases::footprint),
        ("readers", cases::readers),
        ("ws-push", cases::ws_push),
        ("ws-latency", cases::ws_latency),
        ("ws-idle", cases::ws_idle),
        ("txn-produce", transactions::produce),
        ("txn-commit", transactions::commit),
        ("txn-execute", transactions::execute),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    table::head();
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|wish| wish == name) {
            run(&setting);
        }
    }
}
