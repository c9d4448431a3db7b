//! The check of configs against a module's schema. The schema is as little to be trusted as the module, and a few kilobytes
//! of it can ask for a check that never ends: so it is the compiler's process that reads it, under its limits.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use levada_extension::{ModuleBusy, ModuleConfigError, ModuleDigest, ModuleRefusal};
use levada_model::limits::{MODULE_CONFIG_BYTES_MAX, MODULE_REASON_BYTES_MAX};
use parking_lot::Mutex;
use serde_json::Value;

use crate::compiler::{NotDone, Task};
use crate::contract::cut;
use crate::host::Inner;

/// Most configs whose outcomes are remembered; then all are forgotten.
const REMEMBERED_MAX: usize = 256;

/// A schema, if the module has one, and what it said of the configs that were checked.
pub(crate) struct Schema {
    text: Option<String>,
    checked: Mutex<HashMap<ModuleDigest, Result<(), ModuleConfigError>>>,
}

impl Schema {
    /// A schema that was checked before.
    pub(crate) fn new(text: Option<String>) -> Self {
        Self { text, checked: Mutex::default() }
    }

    /// Checks a config. A schema that has no end is the module's fault, as an `init` that has none.
    pub(crate) fn check(&self, host: &Inner, config: &str) -> Result<(), ModuleConfigError> {
        if config.len() > MODULE_CONFIG_BYTES_MAX {
            let detail = format!("it has {} bytes, and {MODULE_CONFIG_BYTES_MAX} are allowed", config.len());
            return Err(ModuleConfigError::Schema { detail });
        }
        let Some(schema) = &self.text else { return parsed(config).map(drop).map_err(not_so) };
        let digest = ModuleDigest::of(config.as_bytes());
        if let Some(known) = self.checked.lock().get(&digest) {
            return known.clone();
        }
        let length = (schema.len() as u64).to_be_bytes();
        let outcome = match host.ask_compiler(Task::Config, &[&length, schema.as_bytes(), config.as_bytes()]) {
            Ok(_) => Ok(()),
            Err(NotDone::Refused(detail)) => Err(not_so(detail)),
            Err(NotDone::TooLarge { what, max }) => Err(not_so(format!("more than {max} {what}"))),
            Err(NotDone::Ended { cause, reason }) => Err(ModuleConfigError::Stopped { cause, reason }),
            Err(NotDone::Host(reason)) => return Err(ModuleConfigError::Busy(ModuleBusy { reason })),
        };
        let mut checked = self.checked.lock();
        if checked.len() >= REMEMBERED_MAX {
            checked.clear();
        }
        checked.insert(digest, outcome.clone());
        outcome
    }
}

/// That an uploaded module's schema is one, by the compiler's process.
pub(crate) fn check_uploaded(host: &Inner, schema: &str) -> Result<(), ModuleRefusal> {
    match host.ask_compiler(Task::Schema, &[schema.as_bytes()]) {
        Ok(_) => Ok(()),
        Err(NotDone::Refused(detail) | NotDone::Ended { reason: detail, .. }) => {
            let detail = format!("the schema of its config: {}", cut(detail, MODULE_REASON_BYTES_MAX));
            Err(ModuleRefusal::Description { detail })
        }
        Err(not) => Err(not.into()),
    }
}

/// What is wrong with a schema. For the compiler's process.
pub(crate) fn check_schema(text: &str) -> Result<(), String> {
    compile(text).map(drop)
}

/// What is wrong with a config first. For the compiler's process.
pub(crate) fn check_config(schema: &str, config: &str) -> Result<(), String> {
    let value = parsed(config)?;
    compile(schema)?.validate(&value).map_err(|error| match error.instance_path().as_str() {
        "" => error.to_string(),
        path => format!("at {path}: {error}"),
    })
}

fn parsed(config: &str) -> Result<Value, String> {
    serde_json::from_str(config).map_err(|error| format!("it is no JSON: {error}"))
}

/// Compiles a schema. Nothing is fetched that it refers to, and its patterns take linear time.
fn compile(text: &str) -> Result<Validator, String> {
    let schema: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    jsonschema::draft202012::options()
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .map_err(|error| format!("it is no JSON Schema: {error}"))
}

fn not_so(detail: String) -> ModuleConfigError {
    ModuleConfigError::Schema { detail: cut(detail, MODULE_REASON_BYTES_MAX) }
}
