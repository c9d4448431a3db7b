//! Builds the example modules for WebAssembly with a cargo of its own: its own target folder, its own profile, and nothing of
//! the settings of the build that it is part of. All profiles of that build, and clippy, share the folder. Where Rust's target is missing, it has rustup add it.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// Name, world and what it does.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("flatten-array", "transform", "Makes a record of each item of an array"),
    ("json-filter", "transform", "Keeps records by one field of their JSON value"),
    ("partition-by-field", "partitioner", "Places records by a field of their JSON value"),
    ("redact-fields", "transform", "Blots out fields of JSON values"),
    ("schema-validator", "transform", "Refuses records whose JSON value is not of a schema"),
    ("sticky-tenant", "partitioner", "Keeps each tenant on a few partitions"),
    ("strong-quakes", "transform", "Keeps the earthquakes that are strong enough"),
    ("strongest-quake", "aggregator", "The strongest earthquake of each group and window"),
    ("weighted-assignor", "assignor", "Gives members shares of the partitions by weight"),
];

const TARGET: &str = "wasm32-unknown-unknown";

/// The profile of that name in the workspace's manifest.
const PROFILE: &str = "module";

/// What else the modules are made of, from the workspace's root.
const SOURCES: &[&str] = &["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "plugins/sdk", "plugins/wit"];

#[expect(clippy::disallowed_methods, reason = "not a file of the broker")]
fn main() {
    // Asked when it runs: a script that was built before the folder moved still finds it.
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where"));
    let root = manifest.join("../..").canonicalize().expect("the workspace is there");
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    println!("cargo::rerun-if-changed=build.rs");
    let built = if env::var_os("CARGO_FEATURE_MODULES").is_some() { build(&root, &out_dir) } else { vec![] };
    let mut list = String::from("&[\n");
    for ((name, world, about), wasm) in EXAMPLES.iter().zip(built) {
        let wasm = format!("include_bytes!({wasm:?})");
        writeln!(list, "    Example {{ name: {name:?}, world: {world:?}, about: {about:?}, wasm: {wasm} }},")
            .expect("a text takes all");
    }
    fs::write(out_dir.join("examples.rs"), list + "]\n").expect("the folder of the build takes files");
}

/// Builds all modules and says where they are.
fn build(root: &Path, out_dir: &Path) -> Vec<PathBuf> {
    let folders = EXAMPLES.iter().map(|(name, ..)| format!("plugins/examples/{name}"));
    for source in SOURCES.iter().map(|source| (*source).to_owned()).chain(folders) {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    have_target();
    // The folder of all profiles is four above: PROFILE/build/PACKAGE/out.
    let target_dir = out_dir.ancestors().nth(4).unwrap_or(out_dir).join("example-modules");
    let mut command = scrubbed(cargo_variable("CARGO"));
    command.current_dir(root).args(["build", "--locked", "--quiet", "--profile", PROFILE, "--target", TARGET]);
    command.arg("--target-dir").arg(&target_dir).env("CARGO_ENCODED_RUSTFLAGS", flags(root));
    command.args(EXAMPLES.iter().flat_map(|(name, ..)| ["--package", name]));
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(_) => refuse("the example modules do not build; the compiler said why"),
        Err(error) => refuse(&format!("cargo cannot be run for the example modules: {error}")),
    }
    let folder = target_dir.join(TARGET).join(PROFILE);
    let kept = |(name, ..): &(&str, &str, &str)| {
        let file = format!("{}.wasm", name.replace('-', "_"));
        let copy = out_dir.join(&file);
        fs::copy(folder.join(&file), &copy).expect("what was built can be copied");
        copy
    };
    EXAMPLES.iter().map(kept).collect()
}

/// The flags of the compiler: the same module on every machine, whatever its folders are called.
fn flags(root: &Path) -> OsString {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default();
    let mut flags = OsString::from("--remap-path-prefix=");
    flags.push(root);
    flags.push("=levada\u{1f}--remap-path-prefix=");
    flags.push(home);
    flags.push("=cargo");
    flags
}

/// Makes sure that the compiler has the target.
fn have_target() {
    if has_target() {
        return;
    }
    let mut rustup = scrubbed("rustup".into());
    let added = rustup.args(["target", "add", TARGET]).status().is_ok_and(|status| status.success());
    if !(added && has_target()) {
        refuse(&format!(
            "the example modules need Rust's {TARGET} target, which could not be added here: run \
             `rustup target add {TARGET}`, or build with --no-default-features"
        ));
    }
}

fn has_target() -> bool {
    let mut rustc = scrubbed(cargo_variable("RUSTC"));
    let output = rustc.args(["--print", "target-libdir", "--target", TARGET]).output();
    let folder = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    fs::read_dir(folder.trim()).is_ok_and(|mut entries| entries.next().is_some())
}

/// A command without what the cargo around this build, a user's shell or a CI told theirs: flags, profiles, wrappers (clippy
/// is one), targets. What says where cargo and rustup keep their things, and how they reach their registries, stays.
fn scrubbed(program: OsString) -> Command {
    const KEPT: &[&str] =
        &["CARGO_HOME", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    const DROPPED: &[&str] = &["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "DEP_"];
    const OURS: &[&str] =
        &["OUT_DIR", "TARGET", "HOST", "NUM_JOBS", "OPT_LEVEL", "PROFILE", "DEBUG", "LD_LIBRARY_PATH"];
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if OURS.contains(&text) || (begins(DROPPED) && !begins(KEPT)) {
            command.env_remove(&name);
        }
    }
    command
}

fn cargo_variable(name: &str) -> OsString {
    env::var_os(name).expect("cargo tells build scripts")
}

/// Ends the build with one line. The line alone fails it; after another exit status than 0 cargo would show all lines.
fn refuse(reason: &str) -> ! {
    println!("cargo::error={reason}");
    process::exit(0);
}
