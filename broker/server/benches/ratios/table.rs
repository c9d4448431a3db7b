//! The rows that a run prints, as a Markdown table for `broker/docs/performance.md`.

use std::io::Write;

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").expect("standard output takes it");
}

/// Prints the head of the table.
pub(crate) fn head() {
    line("| what | Levada | against | ratio | target |");
    line("|---|---|---|---|---|");
}

/// Prints a comparison.
pub(crate) fn row(what: &str, ours: &str, theirs: &str, ratio: f64, target: &str) {
    line(&format!("| {what} | {ours} | {theirs} | {ratio:.2} | {target} |"));
}

/// Prints a figure that stands for itself.
pub(crate) fn figure(what: &str, ours: &str, target: &str) {
    line(&format!("| {what} | {ours} | | | {target} |"));
}
