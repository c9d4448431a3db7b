//! Real WebAssembly in the real program, end to end: hostile modules, the cases that others got wrong, kill -9 in uploads
//! and in processors, many records against a native computation, and new versions under load.
//!
//! `LEVADA_SOAK=N` makes the loops N times as long.

mod broker;
mod cases;
mod hostile;
mod kill_processors;
mod kill_uploads;
mod versions;
mod volume;

/// How many times as long the loops are.
fn soak() -> u64 {
    std::env::var("LEVADA_SOAK").ok().map_or(1, |times| times.parse().expect("LEVADA_SOAK is a number"))
}

/// Writes a figure that is for people, where the tests are run with `--nocapture`.
#[expect(clippy::print_stderr, reason = "it is the report of a test")]
fn report(figure: &str) {
    eprintln!("{figure}");
}
