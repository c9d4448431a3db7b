//! What is in a project.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use levada_templates::{Language, World, WriteProjectError, write_project};

fn plugins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files_below(dir: &Path, base: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, base, found);
        } else {
            found.insert(path.strip_prefix(base).expect("below it").to_owned());
        }
    }
}

fn all() -> impl Iterator<Item = (World, Language)> {
    Language::ALL.into_iter().flat_map(|language| World::ALL.map(|world| (world, language)))
}

#[test]
fn every_project_is_whole_and_has_no_open_places() {
    for (world, language) in all() {
        let dir = tempfile::tempdir().expect("a folder");
        let project = dir.path().join("deep/my-module");
        let written = write_project(&project, "my-module", world, language).expect("written");
        let mut found = BTreeSet::new();
        files_below(&project, &project, &mut found);
        assert_eq!(written.iter().cloned().collect::<BTreeSet<_>>(), found);
        for file in &written {
            let text = fs::read_to_string(project.join(file)).expect("readable");
            assert!(!text.contains("{{"), "{file:?} of {world} in {language}");
        }
        let readme = fs::read_to_string(project.join("README.md")).expect("a README");
        for said in ["my-module", world.name(), language.wasm(), &language.build_command(world)] {
            assert!(readme.contains(said), "the README of {world} in {language} says {said}");
        }
    }
}

#[test]
fn a_project_has_the_whole_sdk_and_the_whole_contract() {
    let dir = tempfile::tempdir().expect("a folder");
    write_project(dir.path(), "m", World::Transform, Language::Rust).expect("written");
    let (mut source, mut copy) = (BTreeSet::new(), BTreeSet::new());
    for folder in ["sdk/src", "wit/0.1.0"] {
        files_below(&plugins().join(folder), &plugins(), &mut source);
        files_below(&dir.path().join("levada").join(folder), &dir.path().join("levada"), &mut copy);
    }
    // Vectors and layouts are for those who write SDKs.
    source.retain(|file| {
        file.extension().is_some_and(|kind| kind == "rs" || kind == "wit") && !file.ends_with("vectors.rs")
    });
    assert_eq!(source, copy);
    for file in source {
        let text = |base: &Path| fs::read_to_string(base.join(&file)).expect("readable");
        assert_eq!(text(&plugins()), text(&dir.path().join("levada")), "{file:?}");
    }
}

#[test]
fn the_sdk_depends_on_what_the_workspaces_sdk_depends_on() {
    let read = |path: &str| -> toml::Table {
        fs::read_to_string(plugins().join(path)).expect("readable").parse().expect("TOML")
    };
    let (root, own, copied) = (read("../Cargo.toml"), read("sdk/Cargo.toml"), read("templates/rust/sdk-Cargo.toml.in"));
    let shared = root["workspace"]["dependencies"].as_table().expect("a table");
    let copied = copied["dependencies"].as_table().expect("a table");
    let own = own["dependencies"].as_table().expect("a table");
    assert_eq!(own.keys().collect::<Vec<_>>(), copied.keys().collect::<Vec<_>>());
    let version = |of: &toml::Value| of.get("version").unwrap_or(of).clone();
    for (name, dependency) in copied {
        assert_eq!(version(dependency), version(&shared[name]), "{name}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "not a file of the broker")]
fn nothing_is_written_over() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("own.txt"), "mine").expect("written");
    let write = |path: &Path| write_project(path, "m", World::Transform, Language::Rust);
    assert!(matches!(write(dir.path()), Err(WriteProjectError::Occupied(_))));
    assert!(matches!(write(&dir.path().join("own.txt")), Err(WriteProjectError::Occupied(_))));
    assert!(matches!(write(&dir.path().join("own.txt/below")), Err(WriteProjectError::Io { .. })));
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
}

#[test]
fn names_are_those_that_a_module_may_have() {
    let dir = tempfile::tempdir().expect("a folder");
    let long = "a".repeat(65);
    for name in ["", "A", "1a", "-a", "a_b", "a b", "ä", "../a", "a\"", &long] {
        let refused = write_project(&dir.path().join("new"), name, World::Transform, Language::Python);
        assert!(matches!(refused, Err(WriteProjectError::Name(_))), "{name:?}");
    }
    assert!(!dir.path().join("new").exists(), "nothing is written");
    write_project(&dir.path().join("new"), &"a".repeat(64), World::Transform, Language::Python).expect("written");
}

#[test]
fn worlds_and_languages_are_read_as_they_are_written() {
    for (world, language) in all() {
        assert_eq!(world.to_string().parse(), Ok(world));
        assert_eq!(language.to_string().parse(), Ok(language));
    }
    let error = "go".parse::<Language>().expect_err("refused");
    assert_eq!(error, "no projects are written in \"go\": say one of rust, js, python");
    assert!("filter".parse::<World>().expect_err("refused").contains("transform, partitioner"));
}
