//! Builds the example modules, and lists them for the crate.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

mod wasm;

/// The folders of `plugins/examples` with modules in Rust, by name.
const EXAMPLES: &[&str] = &[
    "flatten-array",
    "json-filter",
    "partition-by-field",
    "redact-fields",
    "schema-validator",
    "sticky-tenant",
    "strong-quakes",
    "strongest-quake",
    "weighted-assignor",
];

#[expect(clippy::disallowed_methods, reason = "not a file of the broker")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let built = if env::var_os("CARGO_FEATURE_MODULES").is_some() { build() } else { vec![] };
    let mut list = String::from("&[\n");
    for (name, wasm) in EXAMPLES.iter().zip(built) {
        writeln!(list, "    Example {{ name: {name:?}, wasm: include_bytes!({wasm:?}) }},").expect("a text takes all");
    }
    fs::write(wasm::out_dir().join("examples.rs"), list + "]\n").expect("the folder of the build takes files");
}

/// Builds all modules and says where they are.
fn build() -> Vec<PathBuf> {
    let words: Vec<_> = EXAMPLES.iter().flat_map(|name| ["--package".to_owned(), (*name).to_owned()]).collect();
    let folders: Vec<_> = EXAMPLES.iter().map(|name| format!("plugins/examples/{name}")).collect();
    let folder = wasm::build("the example modules", ", or build with --no-default-features", &words, &folders);
    let kept = |name: &&str| {
        let file = format!("{}.wasm", name.replace('-', "_"));
        let copy = wasm::out_dir().join(&file);
        fs::copy(folder.join(&file), &copy).expect("what was built can be copied");
        copy
    };
    EXAMPLES.iter().map(kept).collect()
}
