//! What uses modules, as the metadata say.

use std::collections::{BTreeMap, BTreeSet};

use levada_model::ModuleRef;
use serde_json::Value;

use super::ModuleUse;
use crate::metadata::Image;

/// The setting that names a topic's partitioner.
pub(crate) const PARTITIONER: &str = "partitioner";
/// The setting that names a topic's validator.
pub(crate) const VALIDATOR: &str = "validator";

/// The modules that a topic's settings name, with the names of the settings.
pub(crate) fn topic_modules(config: &BTreeMap<String, Value>) -> impl Iterator<Item = (&'static str, ModuleRef)> {
    [PARTITIONER, VALIDATOR].into_iter().filter_map(|setting| {
        let text = config.get(setting)?.as_str()?;
        Some((setting, ModuleRef::in_setting(text)?))
    })
}

/// All uses of all modules.
pub(crate) fn module_uses(image: &Image) -> impl Iterator<Item = (ModuleRef, ModuleUse)> {
    let of_topics = image.topics.iter().flat_map(|(topic, image)| {
        topic_modules(&image.config).map(|(setting, module)| {
            let used = if setting == PARTITIONER { ModuleUse::Partitioner } else { ModuleUse::Validator };
            (module, used(topic.clone()))
        })
    });
    let of_processors = image.processors.iter().flat_map(|(processor, image)| {
        // Once, however many steps it has of the module.
        let modules: BTreeSet<_> = image.spec.modules().cloned().collect();
        modules.into_iter().map(|module| (module, ModuleUse::Processor(processor.clone())))
    });
    of_topics.chain(of_processors)
}
