//! What modules cost in the whole program: `cargo bench -p levada-cli`.
//!
//! `cargo bench -p levada-cli -- NAME…` runs only the named ones of: partitioner, topic-to-topic, upload, start,
//! neighbours. `LEVADA_BENCH_SECONDS` (default 3) is the length of each load, `LEVADA_BENCH_TURNS` (default 3) how often the
//! two sides take turns, `LEVADA_BENCH_RECORDS` (default 1,000,000) how many records go from topic to topic,
//! `LEVADA_BENCH_IN` a folder on the disk under test (default: the target folder). What a call costs by itself is in the
//! bench of `levada-host`.

mod broker;
mod cases;
#[path = "../../../server/benches/ratios/load.rs"]
mod load;
#[path = "../../../server/benches/ratios/process.rs"]
#[expect(dead_code, reason = "the server's bench uses the rest")]
mod process;
mod records;
#[path = "../../../server/benches/ratios/table.rs"]
mod table;

use std::path::PathBuf;
use std::time::Duration;

type Case = fn(&cases::Setting<'_>);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} takes a number")))
}

fn main() {
    let parent =
        std::env::var_os("LEVADA_BENCH_IN").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = tempfile::tempdir_in(parent).expect("the disk takes it");
    let small = |number| usize::try_from(number).expect("a small number");
    let setting = cases::Setting {
        dir: dir.path(),
        duration: Duration::from_secs(number("LEVADA_BENCH_SECONDS", 3)),
        turns: small(number("LEVADA_BENCH_TURNS", 3)),
        records: small(number("LEVADA_BENCH_RECORDS", 1_000_000)),
    };
    let all: [(&str, Case); 5] = [
        ("partitioner", cases::partitioner),
        ("topic-to-topic", cases::topic_to_topic),
        ("upload", cases::upload),
        ("start", cases::start),
        ("neighbours", cases::neighbours),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    table::head();
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|wish| wish == name) {
            run(&setting);
        }
    }
}
