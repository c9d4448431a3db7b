//! Builds modules for WebAssembly with a cargo of its own: its own target folder, its own profile, and nothing of the settings
//! of the build that it is part of. All profiles of that build, and clippy, share the folder. Where Rust's target is missing,
//! it has rustup add it. For the build scripts of this crate and of `runtime/fixtures`. Not here: which modules.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

const TARGET: &str = "wasm32-unknown-unknown";

/// The profile of that name in the workspace's manifest.
const PROFILE: &str = "module";

/// What all modules are made of, from the workspace's root.
const SOURCES: &[&str] = &["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "plugins/sdk", "plugins/wit"];

/// Builds the modules that these words of a `cargo build` name, from these folders, and answers where they are. `called` is
/// what they are called in what it says when it fails, `otherwise` what one can do but add the target.
pub(crate) fn build(called: &str, otherwise: &str, words: &[String], folders: &[String]) -> PathBuf {
    let root = manifest().join("../..").canonicalize().expect("the workspace is there");
    for source in SOURCES.iter().copied().chain(folders.iter().map(String::as_str)) {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-changed={}", root.join("plugins/bundle/wasm.rs").display());
    if !(has_target() || (add_target() && has_target())) {
        refuse(&format!(
            "{called} need Rust's {TARGET} target, which could not be added here: run \
             `rustup target add {TARGET}`{otherwise}"
        ));
    }
    // The folder of all profiles is four above: PROFILE/build/PACKAGE/out.
    let out_dir = out_dir();
    let target_dir = out_dir.ancestors().nth(4).unwrap_or(&out_dir).join("modules");
    let mut command = scrubbed(cargo_variable("CARGO"));
    command.current_dir(&root).args(["build", "--locked", "--quiet", "--profile", PROFILE, "--target", TARGET]);
    command.arg("--target-dir").arg(&target_dir).env("CARGO_ENCODED_RUSTFLAGS", flags(&root)).args(words);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(_) => refuse(&format!("{called} do not build; the compiler said why")),
        Err(error) => refuse(&format!("cargo cannot be run for {called}: {error}")),
    }
    target_dir.join(TARGET).join(PROFILE)
}

/// Where this build wants what it made. Asked when it runs: a script that was built before the folder moved still finds it.
pub(crate) fn out_dir() -> PathBuf {
    PathBuf::from(cargo_variable("OUT_DIR"))
}

fn manifest() -> PathBuf {
    PathBuf::from(cargo_variable("CARGO_MANIFEST_DIR"))
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

fn add_target() -> bool {
    scrubbed("rustup".into()).args(["target", "add", TARGET]).status().is_ok_and(|status| status.success())
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
