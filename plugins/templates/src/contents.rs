//! The files of projects: what is made for a world and a language, and what every project of the language has with it.

use crate::{Language, World};

/// Path in the project, and text with its places open.
pub(crate) type File = (String, &'static str);

/// Files of `plugins`, each with its path there.
macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../", $path)))),+]
    };
}

/// The SDK of Rust without its tests.
pub(crate) const RUST_SDK: &[(&str, &str)] = files![
    "sdk/src/aggregator.rs",
    "sdk/src/assignor.rs",
    "sdk/src/bindings.rs",
    "sdk/src/export.rs",
    "sdk/src/host.rs",
    "sdk/src/layout.rs",
    "sdk/src/layout/answers.rs",
    "sdk/src/layout/batch.rs",
    "sdk/src/layout/groups.rs",
    "sdk/src/layout/keys.rs",
    "sdk/src/layout/reader.rs",
    "sdk/src/layout/varint.rs",
    "sdk/src/layout/verdicts.rs",
    "sdk/src/lib.rs",
    "sdk/src/module.rs",
    "sdk/src/partitioner.rs",
    "sdk/src/pointer.rs",
    "sdk/src/testing.rs",
    "sdk/src/transform.rs",
];

/// The contract.
pub(crate) const WIT: &[(&str, &str)] = files![
    "wit/0.1.0/aggregator.wit",
    "wit/0.1.0/assignor.wit",
    "wit/0.1.0/module.wit",
    "wit/0.1.0/partitioner.wit",
    "wit/0.1.0/transform.wit",
    "wit/0.1.0/types.wit",
    "wit/0.1.0/worlds.wit",
];

const JS_SDK: &[(&str, &str)] = files!["sdk-js/levada.js", "sdk-js/testing.js"];

const PYTHON_SDK: &[(&str, &str)] = files!["sdk-python/levada.py", "sdk-python/levada_testing.py"];

/// The files of a project.
pub(crate) fn files(world: World, language: Language) -> Vec<File> {
    let made: &[(&str, &'static str)] = match language {
        Language::Rust => &[
            ("Cargo.toml", include_str!("../rust/Cargo.toml.in")),
            ("README.md", include_str!("../rust/README.md")),
            (".gitignore", "/target\n"),
            ("levada/sdk/Cargo.toml", include_str!("../rust/sdk-Cargo.toml.in")),
            ("src/lib.rs", rust(world)),
        ],
        Language::JavaScript => &[
            ("package.json", include_str!("../js/package.json.in")),
            ("README.md", include_str!("../js/README.md")),
            (".gitignore", "/node_modules\n/module.wasm\n"),
            ("module.js", js(world)),
            ("module.test.js", js_test(world)),
        ],
        Language::Python => &[
            ("requirements.txt", include_str!("../python/requirements.txt")),
            ("README.md", include_str!("../python/README.md")),
            (".gitignore", "__pycache__\n/module.wasm\n"),
            ("app.py", python(world)),
            ("test_app.py", python_test(world)),
        ],
    };
    // The bindings of Rust look for the contract where the repository has it, beside the SDK.
    let (sdk, from, to) = match language {
        Language::Rust => (RUST_SDK, "sdk/", "levada/sdk/"),
        Language::JavaScript => (JS_SDK, "sdk-js/", "levada/"),
        Language::Python => (PYTHON_SDK, "sdk-python/", "levada/"),
    };
    let wit = if language == Language::Rust { "levada/wit/0.1.0/" } else { "levada/wit/" };
    let moved = |from: &'static str, to: &'static str| {
        move |(path, text): &(&str, &'static str)| (path.replacen(from, to, 1), *text)
    };
    let made = made.iter().map(|(path, text)| ((*path).to_owned(), *text));
    made.chain(sdk.iter().map(moved(from, to))).chain(WIT.iter().map(moved("wit/0.1.0/", wit))).collect()
}

const fn rust(world: World) -> &'static str {
    match world {
        World::Transform => include_str!("../rust/transform.rs"),
        World::Partitioner => include_str!("../rust/partitioner.rs"),
        World::Assignor => include_str!("../rust/assignor.rs"),
        World::Aggregator => include_str!("../rust/aggregator.rs"),
    }
}

const fn js(world: World) -> &'static str {
    match world {
        World::Transform => include_str!("../js/transform.js"),
        World::Partitioner => include_str!("../js/partitioner.js"),
        World::Assignor => include_str!("../js/assignor.js"),
        World::Aggregator => include_str!("../js/aggregator.js"),
    }
}

const fn js_test(world: World) -> &'static str {
    match world {
        World::Transform => include_str!("../js/transform.test.js"),
        World::Partitioner => include_str!("../js/partitioner.test.js"),
        World::Assignor => include_str!("../js/assignor.test.js"),
        World::Aggregator => include_str!("../js/aggregator.test.js"),
    }
}

const fn python(world: World) -> &'static str {
    match world {
        World::Transform => include_str!("../python/transform.py"),
        World::Partitioner => include_str!("../python/partitioner.py"),
        World::Assignor => include_str!("../python/assignor.py"),
        World::Aggregator => include_str!("../python/aggregator.py"),
    }
}

const fn python_test(world: World) -> &'static str {
    match world {
        World::Transform => include_str!("../python/test_transform.py"),
        World::Partitioner => include_str!("../python/test_partitioner.py"),
        World::Assignor => include_str!("../python/test_assignor.py"),
        World::Aggregator => include_str!("../python/test_aggregator.py"),
    }
}
