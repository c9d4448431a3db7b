//! Dependency arrows, module docs and the README's map of the code, held against the repository as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on within the workspace (DESIGN §1: dependencies point one way).
const ARROWS: &[(&str, &[&str])] = &[
    ("levada-model", &[]),
    ("levada-log", &["levada-model"]),
    ("levada-extension", &["levada-model"]),
    ("levada-coordinator", &["levada-extension", "levada-model"]),
    ("levada-history", &["levada-coordinator", "levada-model"]),
    ("levada-doubles", &["levada-extension", "levada-model"]),
    ("levada-api", &["levada-model"]),
    ("levada-engine", &["levada-coordinator", "levada-extension", "levada-log", "levada-model"]),
    ("levada-client", &["levada-api", "levada-model"]),
    ("levada-server", &["levada-api", "levada-engine", "levada-extension", "levada-log", "levada-model"]),
    (
        "levada-cli",
        &[
            "levada-api",
            "levada-client",
            "levada-examples",
            "levada-host",
            "levada-log",
            "levada-model",
            "levada-server",
            "levada-templates",
        ],
    ),
    ("levada-fixtures", &[]),
    ("guests", &["levada-plugin"]),
    ("levada-host", &["levada-extension", "levada-model"]),
    // What plug-in authors use knows the contract and nothing of the broker.
    ("levada-plugin", &[]),
    ("flatten-array", &["levada-plugin"]),
    ("json-filter", &["levada-plugin"]),
    ("partition-by-field", &["levada-plugin"]),
    ("redact-fields", &["levada-plugin"]),
    ("schema-validator", &["levada-plugin"]),
    ("sticky-tenant", &["levada-plugin"]),
    ("strong-quakes", &["levada-plugin"]),
    ("strongest-quake", &["levada-plugin"]),
    ("weighted-assignor", &["levada-plugin"]),
    // They carry modules and projects as bytes, and link none of them.
    ("levada-examples", &[]),
    ("levada-templates", &[]),
];

/// Libraries that only some crates may name.
const RESERVED: &[(&str, &[&str])] = &[
    ("axum", &["levada-server"]),
    ("tokio", &["levada-engine", "levada-server", "levada-client", "levada-cli"]),
    ("wasmtime", &["levada-host"]),
    ("anyhow", &["levada-cli"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the crate lies in the workspace")
}

/// The names that each crate depends on outside of its tests.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let normal = |dependency: &Value| dependency["kind"].is_null().then(|| text(&dependency["name"]));
    let of = |package: &Value| list(&package["dependencies"]).iter().filter_map(normal).collect();
    list(&metadata["packages"]).iter().map(|package| (text(&package["name"]), of(package))).collect()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn dependencies_point_one_way() {
    let found = dependencies();
    let known: BTreeSet<_> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), known, "every crate has its row in ARROWS");
    for (name, allowed) in ARROWS {
        let ours = found[*name].iter().filter(|dependency| dependency.starts_with("levada-"));
        let wrong: Vec<_> = ours.filter(|dependency| !allowed.contains(&dependency.as_str())).collect();
        assert!(wrong.is_empty(), "{name} must not depend on {wrong:?}");
    }
}

#[test]
fn reserved_libraries_stay_where_they_belong() {
    let found = dependencies();
    for (library, allowed) in RESERVED {
        let wrong: Vec<_> = found.iter().filter(|(_, all)| all.contains(*library)).map(|(name, _)| name).collect();
        assert!(wrong.iter().all(|name| allowed.contains(&name.as_str())), "{wrong:?} must not name {library}");
    }
}

/// The crates that the program is built from, each with the features that it is built with.
fn released() -> Vec<(String, Vec<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "levada-cli", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}|{f}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("cargo writes text");
    let of = |line: &str| {
        let (package, features) = line.split_once('|').expect("as it was asked for");
        let name = package.split(' ').next().unwrap_or_default().to_owned();
        (name, features.trim_end_matches(" (*)").split(',').map(str::to_owned).collect())
    };
    lines.lines().map(of).collect()
}

#[test]
fn nothing_that_is_only_for_tests_is_released() {
    let released = released();
    for name in ["levada-log", "levada-engine", "levada-server"] {
        let crates: Vec<_> = released.iter().filter(|(found, _)| found == name).collect();
        assert!(!crates.is_empty(), "the program is built from {name}");
        let planted = crates.iter().any(|(_, features)| features.iter().any(|feature| feature == "sim"));
        assert!(!planted, "a release has the simulated disk and the planted faults of {name}");
    }
    for name in ["levada-history", "levada-doubles"] {
        assert!(!released.iter().any(|(found, _)| found == name), "a release has what is for tests: {name}");
    }
}

#[test]
fn every_file_opens_with_its_duty() {
    let mut files = Vec::new();
    rust_files(&root().join("broker"), &mut files);
    rust_files(&root().join("plugins"), &mut files);
    rust_files(&root().join("runtime"), &mut files);
    assert!(files.len() > 50, "the search looks in the right place");
    let silent: Vec<_> = files
        .iter()
        .filter(|file| {
            !fs::read_to_string(file).expect("readable").trim_start_matches("#![no_main]\n").starts_with("//!")
        })
        .collect();
    assert!(silent.is_empty(), "without a first line that says what they are for: {silent:?}");
}

#[test]
fn the_readmes_map_of_the_code_is_true() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let map =
        readme.split("## The code").nth(1).expect("a section \"The code\"").split("\n## ").next().expect("its text");
    let named: BTreeSet<&str> = map
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(|path| path.trim_end_matches('/'))
        .collect();
    for path in &named {
        assert!(root().join(path).exists(), "the README names {path}, which is not there");
    }
    let mut crates: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(root().join("broker")).expect("the broker") {
        crates.push(entry.expect("an entry").path());
    }
    for folder in crates.iter().filter(|folder| folder.is_dir()) {
        let path = folder.strip_prefix(root()).expect("below the root").to_str().expect("plain text");
        assert!(named.contains(path), "the README's map lacks {path}");
    }
}

#[test]
fn no_test_is_switched_off() {
    let mut files = Vec::new();
    rust_files(&root().join("broker"), &mut files);
    rust_files(&root().join("plugins"), &mut files);
    rust_files(&root().join("runtime"), &mut files);
    let switched_off = concat!("#[", "ignore");
    let found: Vec<_> =
        files.iter().filter(|file| fs::read_to_string(file).expect("readable").contains(switched_off)).collect();
    assert!(found.is_empty(), "tests are switched off in {found:?}");
}
