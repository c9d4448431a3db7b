//! Whether what a processor's document names is there, and can be.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_extension::{ModuleDigest, Transform};
use levada_model::{ModuleRef, Operation, Principal, Resource, TopicName, limits};

use super::letters;
use super::pipeline::Pipeline;
use super::terms::{ProcessorError, ProcessorSpec, ProcessorStep, Then};
use crate::ModuleError;
use crate::engine::Core;
use crate::modules::Extension;

/// JSON pointers into the document, each with what is wrong there.
type Faults = Vec<(String, String)>;

impl Core {
    /// That a document can be followed by `who`. Answers which versions of its modules were asked.
    pub(super) async fn check_processor(
        &self,
        who: &Principal,
        spec: &ProcessorSpec,
    ) -> Result<Vec<(ModuleRef, ModuleDigest)>, ProcessorError> {
        for source in &spec.sources {
            self.authorize(who, Operation::Read, Resource::Topic(&source.topic))?;
        }
        self.authorize(who, Operation::Write, Resource::Topic(&spec.sink))?;
        if let Then::DeadLetter(Some(topic)) = &spec.on_error.then {
            self.authorize(who, Operation::Write, Resource::Topic(topic))?;
        }
        let mut faults = shape(spec);
        self.check_topics(spec, &mut faults);
        let asked = self.check_steps(who, spec, &mut faults).await?;
        if faults.is_empty() { Ok(asked) } else { Err(ProcessorError::Document(faults)) }
    }

    fn check_topics(&self, spec: &ProcessorSpec, faults: &mut Faults) {
        let missing = |name: &TopicName| format!("there is no topic {name}");
        let mut named = BTreeSet::new();
        for (place, source) in spec.sources.iter().enumerate() {
            let at = format!("/sources/{place}/topic");
            if source.topic.is_internal() {
                faults.push((at, "it is the broker's own topic".to_owned()));
            } else if self.catalog.get(&source.topic).is_none() {
                faults.push((at, missing(&source.topic)));
            } else if !named.insert(&source.topic) {
                faults.push((at, "the topic is named twice".to_owned()));
            }
        }
        let sink = "/sink/topic".to_owned();
        if spec.sink.is_internal() {
            faults.push((sink, "it is the broker's own topic".to_owned()));
        } else if self.catalog.get(&spec.sink).is_none() {
            faults.push((sink, missing(&spec.sink)));
        } else if named.contains(&spec.sink) {
            faults.push((sink, "it is a source too, so that records would go round for ever".to_owned()));
        }
        match &spec.on_error.then {
            Then::DeadLetter(Some(topic)) if named.contains(topic) => {
                let detail = "it is a source too, so that records would go round for ever";
                faults.push(("/on_error/topic".to_owned(), detail.to_owned()));
            }
            Then::DeadLetter(Some(topic)) if topic.is_internal() => {
                faults.push(("/on_error/topic".to_owned(), "it is the broker's own topic".to_owned()));
            }
            Then::DeadLetter(None) => {
                let refused = spec.sources.iter().find_map(|source| letters::topic_of(&source.topic).err());
                faults.extend(refused.map(|error| ("/on_error/topic".to_owned(), error.to_string())));
            }
            Then::DeadLetter(Some(_)) | Then::Skip | Then::Pause => {}
        }
    }

    async fn check_steps(
        &self,
        who: &Principal,
        spec: &ProcessorSpec,
        faults: &mut Faults,
    ) -> Result<Vec<(ModuleRef, ModuleDigest)>, ProcessorError> {
        let mut asked = Vec::new();
        for (place, step) in spec.steps.iter().enumerate() {
            let ProcessorStep::Transform { module, config } = step else { continue };
            self.authorize(who, Operation::Read, Resource::Module(&module.name))?;
            let at = |what: &str| format!("/steps/{place}/transform/{what}");
            if config.len() > limits::MODULE_CONFIG_BYTES_MAX {
                let detail = format!("a config has at most {} bytes", limits::MODULE_CONFIG_BYTES_MAX);
                faults.push((at("config"), detail));
                continue;
            }
            let extension = Arc::new(Extension::<dyn Transform>::new(module.clone(), config));
            match extension.check(&self.modules).await {
                Ok(digest) => asked.push((module.clone(), digest)),
                Err(ModuleError::Closing) => return Err(ProcessorError::Closing),
                Err(ModuleError::Storage(error)) => return Err(ProcessorError::Storage(error)),
                Err(ModuleError::NoHost) => return Err(ProcessorError::NoHost),
                Err(ModuleError::Busy(reason)) => return Err(ProcessorError::busy(reason)),
                Err(ModuleError::Config { error, .. }) => {
                    let is_world = matches!(error, levada_extension::ModuleConfigError::World { .. });
                    faults.push((at(if is_world { "module" } else { "config" }), error.to_string()));
                }
                Err(error) => faults.push((at("module"), error.to_string())),
            }
        }
        Ok(asked)
    }
}

/// What can be told from the document alone.
fn shape(spec: &ProcessorSpec) -> Faults {
    let mut faults = Vec::new();
    let mut expect = |holds: bool, at: &str, detail: String| {
        if !holds {
            faults.push((at.to_owned(), detail));
        }
    };
    let (sources_max, steps_max) = (limits::PROCESSOR_SOURCES_MAX, limits::PROCESSOR_STEPS_MAX);
    let sources = (1..=sources_max).contains(&spec.sources.len());
    expect(sources, "/sources", format!("a processor has 1 to {sources_max} sources"));
    expect(spec.steps.len() <= steps_max, "/steps", format!("a processor has at most {steps_max} steps"));
    let attempts = limits::PROCESSOR_ATTEMPTS;
    let detail = format!("{} to {}", attempts.start(), attempts.end());
    expect(attempts.contains(&spec.on_error.attempts), "/on_error/attempts", detail);
    let interval_max = limits::PROCESSOR_COMMIT_INTERVAL_MS_MAX;
    let interval = (1..=interval_max).contains(&spec.commit_interval_ms);
    expect(interval, "/commit_interval_ms", format!("1 to {interval_max} ms"));
    let bytes_max = limits::PROCESSOR_DOCUMENT_BYTES_MAX;
    expect(spec.document.len() <= bytes_max, "", format!("a document has at most {bytes_max} bytes"));
    if let Err(error) = Pipeline::new(spec) {
        faults.push(("/timestamp/json".to_owned(), error.to_string()));
    }
    faults
}
