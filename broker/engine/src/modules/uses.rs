//! What uses modules, as the metadata and the groups say.

use std::collections::{BTreeMap, BTreeSet};

use levada_model::{ModuleName, ModuleRef, TopicConfig};
use serde_json::Value;

use super::ModuleUse;
use crate::groups::AssignorVote;
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

/// A use that means whichever version is active, and the config that it has for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Follower {
    pub(super) by: ModuleUse,
    pub(super) config: String,
}

/// All uses that follow a module's active version.
pub(super) fn followers(image: &Image, votes: &[AssignorVote], name: &ModuleName) -> BTreeSet<Follower> {
    let follows = |module: &ModuleRef| module.name == *name && module.version.is_none();
    let mut followers = BTreeSet::new();
    for (topic, image) in &image.topics {
        if !topic_modules(&image.config).any(|(_, module)| follows(&module)) {
            continue;
        }
        // What was set was checked.
        let Ok(config) = TopicConfig::new(&image.config) else { continue };
        let partitioner = config.partitioner.map(|named| (ModuleUse::Partitioner(topic.clone()), named));
        let validator = config.validator.map(|named| (ModuleUse::Validator(topic.clone()), named));
        let named = partitioner.into_iter().chain(validator).filter(|(_, named)| follows(&named.module));
        followers.extend(named.map(|(by, named)| Follower { by, config: named.config }));
    }
    for (processor, image) in &image.processors {
        let by = || ModuleUse::Processor(processor.clone());
        followers.extend(image.spec.configs_of(name).map(|config| Follower { by: by(), config: config.to_owned() }));
    }
    let votes = votes.iter().filter(|vote| follows(&vote.module));
    followers.extend(votes.map(|AssignorVote { group, config, .. }| Follower {
        by: ModuleUse::Assignor(group.clone()),
        config: config.clone(),
    }));
    followers
}

/// All who use a module, whichever version.
pub(super) fn used_by(image: &Image, votes: &[AssignorVote], name: &ModuleName) -> Vec<ModuleUse> {
    let metadata = module_uses(image).filter(|(module, _)| module.name == *name).map(|(_, by)| by);
    let votes = votes.iter().filter(|vote| vote.module.name == *name);
    let groups = votes.map(|vote| ModuleUse::Assignor(vote.group.clone()));
    metadata.chain(groups).collect::<BTreeSet<_>>().into_iter().collect()
}

/// All uses of all modules in the metadata.
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
