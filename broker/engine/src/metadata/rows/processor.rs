//! A processor: name → owner, version, whether it is paused, what it does.

use std::sync::Arc;

use levada_model::{Principal, ProcessorName};
use serde::{Deserialize, Serialize};

use crate::ProcessorSpec;
use crate::metadata::ProcessorImage;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessorRow {
    owner: String,
    version: u64,
    paused: bool,
    spec: ProcessorSpec,
}

/// The stored key and value.
pub(crate) fn encode(name: &ProcessorName, processor: &ProcessorImage) -> (Vec<u8>, Vec<u8>) {
    let ProcessorImage { owner, version, paused, spec } = processor;
    let spec = ProcessorSpec::clone(spec);
    let row = ProcessorRow { owner: owner.as_str().to_owned(), version: *version, paused: *paused, spec };
    (name.as_str().as_bytes().to_vec(), super::encode(row))
}

/// Reads the stored key and value.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(ProcessorName, ProcessorImage), String> {
    let name = std::str::from_utf8(key).map_err(|error| error.to_string())?;
    let name = ProcessorName::new(name).map_err(|error| error.to_string())?;
    let ProcessorRow { owner, version, paused, spec } = super::decode(value)?;
    Ok((name, ProcessorImage { owner: Principal::named(&owner), version, paused, spec: Arc::new(spec) }))
}

#[cfg(test)]
mod tests {
    use levada_extension::{JsonFilter, JsonTest};
    use levada_model::{ModuleRef, Offset, Timestamp, TopicName};
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use serde_json::json;

    use super::*;
    use crate::{From, Guarantee, OnError, ProcessorStep, SourceSpec, Then};

    fn start() -> impl Strategy<Value = From> {
        prop_oneof![
            Just(From::Earliest),
            Just(From::Latest),
            any::<u64>().prop_map(|offset| From::Offset(Offset(offset))),
            any::<i64>().prop_map(|time| From::Time(Timestamp(time))),
            any::<u64>().prop_map(From::Tail),
        ]
    }

    fn step() -> impl Strategy<Value = ProcessorStep> {
        let filter =
            ("(/[a~0/]{0,3}){0,2}", any::<i64>(), any::<bool>()).prop_filter_map("a pointer", |(at, n, there)| {
                let tests = vec![JsonTest::Less(json!(n)), JsonTest::Exists(there), JsonTest::Contains(json!("x"))];
                Some(ProcessorStep::Filter(JsonFilter::new(at.parse().ok()?, tests)))
            });
        let transform = ("[a-z]{1,9}", proptest::option::of(1..9_u32)).prop_map(|(name, version)| {
            let name = levada_model::ModuleName::new(&name).expect("within the rule");
            ProcessorStep::Transform { module: ModuleRef { name, version }, config: "{}".to_owned() }
        });
        prop_oneof![filter, transform]
    }

    fn then() -> impl Strategy<Value = Then> {
        let topic = TopicName::new("letters").expect("within the rule");
        prop_oneof![
            Just(Then::DeadLetter(None)),
            Just(Then::DeadLetter(Some(topic))),
            Just(Then::Skip),
            Just(Then::Pause)
        ]
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            name in "[a-zA-Z0-9_-]{1,200}",
            version: u64,
            paused: bool,
            once: bool,
            start in start(),
            steps in proptest::collection::vec(step(), 0..3),
            then in then(),
        ) {
            let name = ProcessorName::new(&name).expect("within the rule");
            let topic = TopicName::new("t").expect("within the rule");
            let spec = Arc::new(ProcessorSpec {
                sources: vec![SourceSpec { topic: topic.clone(), start }],
                timestamp: Some("/at".to_owned()),
                steps,
                sink: topic,
                on_error: OnError { attempts: 3, then },
                guarantee: if once { Guarantee::ExactlyOnce } else { Guarantee::AtLeastOnce },
                commit_interval_ms: version,
                document: r#"{"any": [1e2, "thing"]}"#.to_owned(),
            });
            let processor = ProcessorImage { owner: Principal::named("o"), version, paused, spec };
            let (key, value) = encode(&name, &processor);
            assert_eq!(decode(&key, &value), Ok((name, processor)));
        }
    }
}
