//! That a written project in Rust builds, outside of the repository, as the author's cargo would build it.

use std::fs;
use std::path::Path;
use std::process::Command;

use levada_templates::{Language, World, write_project};

/// All four projects would build the SDK four times; their modules are tests of this crate by themselves, and `.ci/modules`
/// builds them all. The versions of the libraries are those of the repository, so that nothing is looked for in a registry.
#[test]
fn a_written_project_in_rust_builds_to_webassembly() {
    let dir = tempfile::tempdir().expect("a folder");
    write_project(dir.path(), "my-module", World::Transform, Language::Rust).expect("written");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    fs::copy(lock, dir.path().join("Cargo.lock")).expect("copied");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("project");
    let mut words = Language::Rust.build_command(World::Transform);
    words.push_str(" --offline --quiet");
    let mut words = words.split(' ').skip(1);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(dir.path()).args(words.by_ref()).env("CARGO_TARGET_DIR", &target);
    for scrubbed in
        ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "RUSTC_WRAPPER", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(scrubbed);
    }
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let module = fs::read(target.join("wasm32-unknown-unknown/release/module.wasm")).expect("a module");
    assert!(module.starts_with(b"\0asm\x01\0\0\0"));
    assert!(module.windows(25).any(|part| part == b"component-type:wit-bindge".as_slice()));
}
