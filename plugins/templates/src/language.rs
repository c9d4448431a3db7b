//! The languages that projects are written in, and the worlds that they are of.

use std::fmt;
use std::str::FromStr;

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Judges records.
    Transform,
    /// Places records that name no partition.
    Partitioner,
    /// Shares partitions out to the members of a group.
    Assignor,
    /// Folds records of groups and windows.
    Aggregator,
}

/// What a module is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust, with the crate `levada-plugin`.
    Rust,
    /// JavaScript, with `levada.js` and componentize-qjs.
    JavaScript,
    /// Python, with `levada.py` and componentize-py.
    Python,
}

impl World {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Transform, Self::Partitioner, Self::Assignor, Self::Aggregator];

    /// As commands and the broker call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transform => "transform",
            Self::Partitioner => "partitioner",
            Self::Assignor => "assignor",
            Self::Aggregator => "aggregator",
        }
    }
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rust, Self::JavaScript, Self::Python];

    /// As commands call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::JavaScript => "js",
            Self::Python => "python",
        }
    }

    /// What builds the module, in one line, in the project's folder.
    #[must_use]
    pub fn build_command(self, world: World) -> String {
        match self {
            Self::Rust => "cargo build --release --target wasm32-unknown-unknown".to_owned(),
            Self::JavaScript => "npm run build".to_owned(),
            Self::Python => format!(
                "componentize-py -d levada/wit -w {} componentize --stub-wasi -p . -p levada app -o module.wasm",
                self.wit_world(world)
            ),
        }
    }

    /// Where the built module is, in the project's folder.
    #[must_use]
    pub const fn wasm(self) -> &'static str {
        match self {
            Self::Rust => "target/wasm32-unknown-unknown/release/module.wasm",
            Self::JavaScript | Self::Python => "module.wasm",
        }
    }

    /// The world of the contract; script languages judge records in their JSON form.
    pub(crate) const fn wit_world(self, world: World) -> &'static str {
        match (world, self) {
            (World::Transform, Self::Rust) => "transform-module",
            (World::Transform, _) => "transform-json-module",
            (World::Partitioner, _) => "partitioner-module",
            (World::Assignor, _) => "assignor-module",
            (World::Aggregator, _) => "aggregator-module",
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for World {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|world| world.name() == text);
        found.ok_or_else(|| format!("there is no world {text:?}: {}", listed(Self::ALL.map(Self::name))))
    }
}

impl FromStr for Language {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|language| language.name() == text);
        found.ok_or_else(|| format!("no projects are written in {text:?}: {}", listed(Self::ALL.map(Self::name))))
    }
}

fn listed<const N: usize>(names: [&str; N]) -> String {
    format!("say one of {}", names.join(", "))
}
