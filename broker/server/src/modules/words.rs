//! The engine's words about modules in those of the interface.

use levada_api::{Module, ModuleLogLevel, ModuleLogLine, ModuleUse, ModuleUseKind, ModuleVersion, WorldWord};
use levada_engine::{ModuleInfo, ModuleVersionInfo};
use levada_extension::{LogLevel, LogLine, ModuleWorld};
use serde_json::Value;

pub(super) fn module(info: ModuleInfo) -> Module {
    Module {
        name: info.name.into(),
        owner: info.owner.as_str().to_owned(),
        active_version: info.active_version,
        versions: info.versions.into_iter().map(version).collect(),
        used_by: info.used_by.into_iter().map(used).collect(),
    }
}

fn version(info: ModuleVersionInfo) -> ModuleVersion {
    ModuleVersion {
        version: info.version,
        digest: info.digest.to_string(),
        worlds: worlds(&info.worlds),
        config_schema: config_schema(info.config_schema),
        size_bytes: info.size_bytes,
        created_at: info.created_at.0,
    }
}

pub(super) fn used(used: levada_engine::ModuleUse) -> ModuleUse {
    match used {
        levada_engine::ModuleUse::Partitioner(topic) => {
            ModuleUse { kind: ModuleUseKind::Partitioner, name: topic.into() }
        }
        levada_engine::ModuleUse::Validator(topic) => ModuleUse { kind: ModuleUseKind::Validator, name: topic.into() },
        levada_engine::ModuleUse::Assignor(name) => ModuleUse { kind: ModuleUseKind::Assignor, name: name.into() },
        levada_engine::ModuleUse::Processor(name) => ModuleUse { kind: ModuleUseKind::Processor, name: name.into() },
    }
}

pub(super) fn worlds(worlds: &[ModuleWorld]) -> Vec<WorldWord> {
    let word = |world: &ModuleWorld| match world {
        ModuleWorld::Partitioner => WorldWord::Partitioner,
        ModuleWorld::Assignor => WorldWord::Assignor,
        ModuleWorld::Transform => WorldWord::Transform,
        ModuleWorld::Aggregator => WorldWord::Aggregator,
    };
    worlds.iter().map(word).collect()
}

pub(super) fn world(word: WorldWord) -> ModuleWorld {
    match word {
        WorldWord::Partitioner => ModuleWorld::Partitioner,
        WorldWord::Assignor => ModuleWorld::Assignor,
        WorldWord::Transform => ModuleWorld::Transform,
        WorldWord::Aggregator => ModuleWorld::Aggregator,
    }
}

/// A schema as an object: `true` accepts everything, and so does none.
pub(super) fn config_schema(schema: Option<Value>) -> Option<Value> {
    schema.filter(|schema| *schema != Value::Bool(true))
}

pub(super) fn line(version: u32, line: LogLine) -> ModuleLogLine {
    ModuleLogLine {
        version,
        number: line.number,
        timestamp: line.time.0,
        level: match line.level {
            LogLevel::Debug => ModuleLogLevel::Debug,
            LogLevel::Info => ModuleLogLevel::Info,
            LogLevel::Warn => ModuleLogLevel::Warn,
            LogLevel::Error => ModuleLogLevel::Error,
        },
        message: line.message,
    }
}
