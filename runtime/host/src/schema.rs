//! The check of configs against a module's schema, which is as little to be trusted as the module.

use jsonschema::{PatternOptions, Validator};
use levada_model::limits::MODULE_CONFIG_BYTES_MAX;
use serde_json::Value;

/// A schema, if the module has one.
pub(crate) struct Schema {
    validator: Option<Validator>,
}

impl Schema {
    /// Compiles it. Nothing is fetched that it refers to, and its patterns take linear time.
    pub(crate) fn new(schema: Option<&str>) -> Result<Self, String> {
        let Some(text) = schema else { return Ok(Self { validator: None }) };
        let schema: Value =
            serde_json::from_str(text).map_err(|error| format!("the schema of its config is no JSON: {error}"))?;
        let validator = jsonschema::draft202012::options()
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
            .map_err(|error| format!("the schema of its config is no JSON Schema: {error}"))?;
        Ok(Self { validator: Some(validator) })
    }

    /// What is wrong with a config first.
    pub(crate) fn check(&self, config: &str) -> Result<(), String> {
        if config.len() > MODULE_CONFIG_BYTES_MAX {
            return Err(format!("it has {} bytes, and {MODULE_CONFIG_BYTES_MAX} are allowed", config.len()));
        }
        let value: Value = serde_json::from_str(config).map_err(|error| format!("it is no JSON: {error}"))?;
        let Some(validator) = &self.validator else { return Ok(()) };
        validator.validate(&value).map_err(|error| match error.instance_path().as_str() {
            "" => error.to_string(),
            path => format!("at {path}: {error}"),
        })
    }
}
