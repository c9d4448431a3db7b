//! What a module is: its digest, and what it says of itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::Fields;

/// The SHA-256 of a module's bytes as they were given, `sha256:` and 64 hex digits in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModuleDigest(pub [u8; 32]);

/// A text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a digest is \"sha256:\" and 64 hex digits")]
pub struct ModuleDigestError;

/// What a module says of itself, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleDescription {
    /// Of its bytes.
    pub digest: ModuleDigest,
    /// Of its bytes.
    pub size_bytes: u64,
    /// What it can be, at least one, in the order of [`ModuleWorld`].
    pub worlds: Vec<ModuleWorld>,
    /// The parts of a record that it reads.
    pub fields: Fields,
    /// A JSON Schema (2020-12) of its config, as JSON text; none accepts every config.
    pub config_schema: Option<String>,
    /// The version of its accumulators, if it is an aggregator.
    pub state_version: u32,
}

/// What a module can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleWorld {
    /// It places records.
    Partitioner,
    /// It shares partitions out.
    Assignor,
    /// It judges records (by `transform`, `transform-json` or both).
    Transform,
    /// It folds records.
    Aggregator,
}

impl ModuleDigest {
    /// The digest of a module's bytes.
    #[must_use]
    pub fn of(wasm: &[u8]) -> Self {
        Self(Sha256::digest(wasm).into())
    }

    /// The 64 hex digits alone.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl FromStr for ModuleDigest {
    type Err = ModuleDigestError;

    fn from_str(text: &str) -> Result<Self, ModuleDigestError> {
        let hex = text.strip_prefix("sha256:").ok_or(ModuleDigestError)?.as_bytes();
        let (pairs, rest) = hex.as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(ModuleDigestError);
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high).ok_or(ModuleDigestError)? << 4 | digit(*low).ok_or(ModuleDigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for ModuleDigest {
    type Error = ModuleDigestError;

    fn try_from(text: String) -> Result<Self, ModuleDigestError> {
        text.parse()
    }
}

impl From<ModuleDigest> for String {
    fn from(digest: ModuleDigest) -> Self {
        digest.to_string()
    }
}

impl ModuleWorld {
    /// Its name in the API and of the contract's interface.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Partitioner => "partitioner",
            Self::Assignor => "assignor",
            Self::Transform => "transform",
            Self::Aggregator => "aggregator",
        }
    }
}

impl fmt::Display for ModuleWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
