//! The broker's suites over modules, and the modules against their native twins.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{
    EmittedRecord, Fields, KeyRecord, Keys, ModuleConfigError, ModuleFault, ModuleVersion, ModuleWorld, Moment,
    Murmur2, Part, Partitioner, Verdict, Verdicts, conformance,
};
use levada_fixtures::{BARE, EVERYTHING, KEYS, REWRITE};
use levada_model::{Timestamp, TopicName};

use crate::support::{Bench, batch};

const CONFIG: &str = r#"{"at_least":2}"#;

#[test]
fn modules_keep_the_duties_of_the_brokers_traits() {
    let bench = Bench::new();
    let everything = bench.module(EVERYTHING);
    keeps_all_duties(&everything, CONFIG);
    conformance::partitioner(&*everything.partitioner(CONFIG).expect("a partitioner"));
    let assignor = everything.assignor("module:everything", CONFIG).expect("an assignor");
    assert_eq!(assignor.name(), "module:everything");
    conformance::assignor(&*assignor);
    conformance::aggregator(&*everything.aggregator(CONFIG).expect("an aggregator"));
    keeps_all_duties(&bench.module(REWRITE), "{}");
    let bare = bench.module(BARE);
    keeps_all_duties(&bare, "{}");
    conformance::aggregator(&*bare.aggregator("{}").expect("an aggregator"));
}

#[test]
fn in_a_dry_run_they_keep_them_too_and_are_counted_alike_each_time() {
    let bench = Bench::new();
    let everything = bench.module(EVERYTHING);
    let count = || {
        let twin = everything.dry_run().expect("a twin");
        keeps_all_duties(&twin, CONFIG);
        conformance::aggregator(&*twin.aggregator(CONFIG).expect("an aggregator"));
        twin.stats()
    };
    let (first, second) = (count(), count());
    assert!(first.instructions.is_some_and(|count| count > 100_000), "{first:?}");
    assert_eq!(first.instructions, second.instructions);
    assert_eq!(first.memory_peak_bytes, second.memory_peak_bytes);
    assert_eq!(everything.stats().calls, 0, "a twin's calls are its own");
    assert_eq!(everything.stats().instructions, None);
}

fn keeps_all_duties(module: &Arc<dyn ModuleVersion>, config: &str) {
    conformance::transform(&*module.transform(config).expect("a transform"));
}

#[test]
fn a_module_says_what_it_is() {
    let bench = Bench::new();
    let everything = bench.module(EVERYTHING);
    let description = everything.describe();
    let worlds = [ModuleWorld::Partitioner, ModuleWorld::Assignor, ModuleWorld::Transform, ModuleWorld::Aggregator];
    assert_eq!(description.worlds, worlds);
    assert_eq!(description.fields, Fields::KEY | Fields::VALUE | Fields::HEADERS);
    assert_eq!(description.state_version, 3);
    assert_eq!(description.size_bytes, EVERYTHING.len() as u64);
    assert!(description.config_schema.as_deref().is_some_and(|schema| schema.contains("at_least")));
    assert_eq!(bench.module(KEYS).describe().worlds, [ModuleWorld::Partitioner]);
}

#[test]
fn verdicts_are_those_that_the_module_gave() {
    let bench = Bench::new();
    let rewrite = bench.module(REWRITE).transform("{}").expect("a transform");
    let answer = rewrite.transform(&batch(&[r#"{"n":1}"#, r#"{"n":-1}"#, r#"{"n":5,"s":"x"}"#, "words"]));
    let Ok(Verdicts::Each(each)) = answer else { panic!("{answer:?}") };
    let given = |bytes: &'static [u8]| Part::Given(Some(Bytes::from_static(bytes)));
    let changed =
        EmittedRecord { key: given(b"k"), value: given(b"1.0"), headers: Part::Input, timestamp: Part::Input };
    assert_eq!(each[0], Verdict::Emit(vec![changed]));
    assert_eq!(each[1], Verdict::Drop);
    assert!(matches!(&each[2], Verdict::Emit(records) if records.len() == 2), "{:?}", each[2]);
    assert!(matches!(&each[3], Verdict::Reject(reason) if reason.starts_with("not what was agreed")));
}

#[test]
fn keys_go_where_the_native_twin_sends_them() {
    let bench = Bench::new();
    let keys = bench.module(KEYS).partitioner("{}").expect("a partitioner");
    let texts: Vec<String> = (0..1_000).map(|i| format!("ключ-{i}")).collect();
    let given: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_bytes())).collect();
    assert_eq!(keys.partition(&given, 37), Murmur2::default().partition(&given, 37));
    let topic = TopicName::new("t").expect("a name");
    let record = |key: &Option<_>| KeyRecord { timestamp: Timestamp(1), key: *key, value: Some(b"v"), headers: &[] };
    let records: Vec<_> = given.iter().map(record).collect();
    let call = Keys { topic: &topic, moment: Moment { time: Timestamp(2), seed: 3 }, records: &records };
    assert_eq!(keys.place(&call, 37), Ok(Murmur2::default().partition(&given, 37)));
    // Whoever asks with too many asks again with fewer; nobody falls back.
    let module = bench.module(KEYS);
    let long = vec![b'k'; 1 << 20];
    let many = vec![KeyRecord { timestamp: Timestamp(1), key: Some(&long), value: None, headers: &[] }; 17];
    let answer = keys.place(&Keys { records: &many, ..call }, 37);
    assert!(matches!(answer, Err(ModuleFault::TooLarge { .. })), "{answer:?}");
    assert_eq!(module.stats().fallbacks, 0);
}

#[test]
fn a_config_is_checked_before_the_module_sees_it_and_then_by_the_module() {
    let bench = Bench::new();
    let module = bench.module(EVERYTHING);
    let error = |config: &str| module.transform(config).err().expect("refused");
    assert!(matches!(error("words"), ModuleConfigError::Schema { detail } if detail.contains("no JSON")));
    let by_schema = error(r#"{"at_least":"five"}"#);
    assert!(matches!(&by_schema, ModuleConfigError::Schema { detail } if detail.contains("/at_least")), "{by_schema}");
    assert!(matches!(error("{}"), ModuleConfigError::Refused { reason } if reason.contains("at_least")));
    let world = bench.module(KEYS).transform("{}").err();
    assert_eq!(world, Some(ModuleConfigError::World { world: ModuleWorld::Transform }));
}
