//! The check of configs against a module's schema, which is as little to be trusted as the module.

use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use levada_model::limits::MODULE_CONFIG_BYTES_MAX;
use serde_json::Value;

/// A schema, if the module has one.
pub(crate) struct Schema {
    text: Option<String>,
    /// Compiled when it is first needed: a start loads many modules. It was checked before, so none stands for no schema.
    validator: OnceLock<Option<Validator>>,
}

impl Schema {
    /// A schema that was checked before.
    pub(crate) fn new(text: Option<String>) -> Self {
        Self { text, validator: OnceLock::new() }
    }

    /// What is wrong with a schema.
    pub(crate) fn check_schema(text: &str) -> Result<(), String> {
        compile(text).map(drop)
    }

    /// What is wrong with a config first.
    pub(crate) fn check(&self, config: &str) -> Result<(), String> {
        if config.len() > MODULE_CONFIG_BYTES_MAX {
            return Err(format!("it has {} bytes, and {MODULE_CONFIG_BYTES_MAX} are allowed", config.len()));
        }
        let value: Value = serde_json::from_str(config).map_err(|error| format!("it is no JSON: {error}"))?;
        let compiled = || self.text.as_deref().and_then(|text| compile(text).ok());
        let Some(validator) = self.validator.get_or_init(compiled) else { return Ok(()) };
        validator.validate(&value).map_err(|error| match error.instance_path().as_str() {
            "" => error.to_string(),
            path => format!("at {path}: {error}"),
        })
    }
}

/// Compiles a schema. Nothing is fetched that it refers to, and its patterns take linear time.
fn compile(text: &str) -> Result<Validator, String> {
    let schema: Value =
        serde_json::from_str(text).map_err(|error| format!("the schema of its config is no JSON: {error}"))?;
    jsonschema::draft202012::options()
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .map_err(|error| format!("the schema of its config is no JSON Schema: {error}"))
}
