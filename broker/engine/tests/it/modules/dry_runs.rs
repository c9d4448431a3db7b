//! Trials: what a version would do, without any effect.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_engine::{DryRun, DryRunInput, DryRunMember, DryRunOutput, DryRunTopic, Engine, From, ModuleError};
use levada_extension::{ModuleFault, ModuleWorld, Verdict};
use levada_model::{InstanceId, MemberId, Offset, PartitionIndex, limits};
use serde_json::json;

use super::{HostHandle, engine, module, named, of, put};
use crate::support::{LONG, START, all, create, me, name, p, produce, record, to};

fn given(records: &[(&str, &str)]) -> DryRunInput {
    DryRunInput::Records(records.iter().map(|(key, value)| (START, record(key, value).record)).collect())
}

fn trial(world: ModuleWorld, input: DryRunInput) -> DryRun {
    let config = "{}".to_owned();
    DryRun { world, version: None, config, input, compare_with: None, partition_count: None }
}

/// An engine with two versions of a module that can be everything; the second shouts and is active.
async fn two_versions() -> (Engine, HostHandle) {
    let (engine, host) = engine();
    let worlds = ["transform", "partitioner", "aggregator", "assignor"];
    put(&engine, "m", module(&worlds, json!({}))).await;
    put(&engine, "m", module(&worlds, json!({"upper": true}))).await;
    (engine, host)
}

#[tokio::test]
async fn a_transform_is_tried_and_compared_on_given_records() {
    let (engine, _) = two_versions().await;
    let input = given(&[("k", "a"), ("k", "drop"), ("k", "reject"), ("k", "B")]);
    let asked = DryRun { version: Some(1), compare_with: Some(2), ..trial(ModuleWorld::Transform, input) };
    let report = engine.dry_run_module(&me(), &named("m"), asked.clone()).await.expect("tried");
    let Ok(DryRunOutput::Verdicts(verdicts)) = &report.tried.output else { panic!("{report:?}") };
    let rejected = Verdict::Reject("reject is not for us".to_owned());
    assert_eq!(verdicts[..], [Verdict::Pass, Verdict::Drop, rejected, Verdict::Pass]);
    assert_eq!((report.tried.version, report.compared.as_ref().map(|side| side.version)), (1, Some(2)));
    assert_eq!(report.differences, [0, 3], "for these the second emits another");
    assert_eq!((report.tried.instructions, report.tried.logs.len(), report.records.len()), (40, 1, 4));
    let again = engine.dry_run_module(&me(), &named("m"), asked).await.expect("tried");
    assert_eq!(format!("{:?}", again.tried.output), format!("{:?}", report.tried.output));
    assert_eq!((again.tried.instructions, &again.tried.logs), (report.tried.instructions, &report.tried.logs));
    let stats = engine.module_stats(&me(), &of("m@1")).await.expect("there");
    assert_eq!(stats.calls, 0, "the version itself has seen nothing of it");
}

#[tokio::test]
async fn a_module_is_tried_though_what_the_host_kept_of_it_is_lost() {
    let (engine, host) = two_versions().await;
    host.0.artifacts.lock().clear();
    let asked = trial(ModuleWorld::Transform, given(&[("k", "a")]));
    engine.dry_run_module(&me(), &named("m"), asked).await.expect("it is made anew of the bytes that were put");
    assert_eq!(host.0.artifacts.lock().len(), 1);
}

#[tokio::test]
async fn stored_records_are_tried_with_their_places_and_nothing_is_stored() {
    let (engine, _) = two_versions().await;
    create(&engine, "t", 2, &[]).await;
    for i in 0..10 {
        produce(&engine, "t", vec![to(i % 2, if i < 4 { "drop" } else { "a" })]).await;
    }
    let input = |from, max_records| DryRunInput::Topic { topic: name("t"), from, max_records };
    let tried = async |from, max_records| {
        let asked = DryRun { version: Some(1), ..trial(ModuleWorld::Transform, input(from, max_records)) };
        let report = engine.dry_run_module(&me(), &named("m"), asked).await.expect("tried");
        report.records.iter().map(|record| record.place.expect("it is stored")).collect::<Vec<_>>()
    };
    let places = |places: &[(u32, u64)]| places.iter().map(|(q, o)| (p(*q), Offset(*o))).collect::<Vec<_>>();
    assert_eq!(tried(From::Tail(2), 100).await, places(&[(0, 3), (0, 4), (1, 3), (1, 4)]));
    assert_eq!(tried(From::Earliest, 4).await, places(&[(0, 0), (0, 1), (1, 0), (1, 1)]), "the same of each");
    assert_eq!(tried(From::Latest, 4).await, []);
    assert_eq!((all(&engine, "t", 0, 0).await.len(), engine.stats().topics), (5, 1));
    let missing = DryRunInput::Topic { topic: name("none"), from: From::Earliest, max_records: 1 };
    let missing = engine.dry_run_module(&me(), &named("m"), trial(ModuleWorld::Transform, missing)).await;
    assert!(matches!(missing, Err(ModuleError::Fetch(_))), "{missing:?}");
}

#[tokio::test]
async fn a_module_is_told_the_places_of_stored_records() {
    let (engine, _) = two_versions().await;
    create(&engine, "t", 1, &[("cleanup.policy", json!("compact"))]).await;
    for key in ["a", "b", "a", "c"] {
        produce(&engine, "t", vec![record(key, "where")]).await;
    }
    engine.compact_topic(&me(), &name("t"), LONG).await.expect("compacted");
    let input = DryRunInput::Topic { topic: name("t"), from: From::Earliest, max_records: 10 };
    let report = engine.dry_run_module(&me(), &named("m"), trial(ModuleWorld::Transform, input)).await.expect("tried");
    let Ok(DryRunOutput::Verdicts(verdicts)) = &report.tried.output else { panic!("{report:?}") };
    let shown = format!("{verdicts:?}");
    let offsets: Vec<_> = report.records.iter().map(|record| record.place.expect("it is stored").1).collect();
    assert_eq!(offsets, [1, 2, 3].map(Offset));
    assert!(["t/0/1", "t/0/2", "t/0/3"].iter().all(|place| shown.contains(place)), "{shown}");
    assert!(!shown.contains("t/0/0"), "{shown}");
}

#[tokio::test]
async fn partitioners_and_aggregators_are_tried_too() {
    let (engine, _) = two_versions().await;
    let keys = [("a", "v"), ("bb", "v"), ("a", "v")];
    let asked = DryRun { partition_count: Some(2), ..trial(ModuleWorld::Partitioner, given(&keys)) };
    let report = engine.dry_run_module(&me(), &named("m"), asked).await.expect("tried");
    assert_eq!(report.tried.output, Ok(DryRunOutput::Partitions([1, 0, 1].map(PartitionIndex).into())));
    let asked = DryRun { compare_with: Some(1), ..trial(ModuleWorld::Aggregator, given(&keys)) };
    let report = engine.dry_run_module(&me(), &named("m"), asked).await.expect("tried");
    let Ok(DryRunOutput::Values(values)) = &report.tried.output else { panic!("{report:?}") };
    let wanted = [("a", "2"), ("bb", "1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!((by_key(values), report.differences), (wanted.into(), vec![]));
}

#[tokio::test]
async fn an_assignor_is_tried_on_members_and_topics() {
    let (engine, _) = two_versions().await;
    let member = |id: &str, instance: Option<&str>, topics: Option<&[&str]>| DryRunMember {
        member_id: MemberId::new(id).expect("an id"),
        instance_id: instance.map(|id| InstanceId::new(id).expect("an id")),
        topics: topics.map(|topics| topics.iter().copied().map(name).collect()),
        owned: Vec::new(),
    };
    let topic = |topic: &str, partitions| DryRunTopic { topic: name(topic), partitions, lags: vec![7] };
    let group = |members: Vec<DryRunMember>| DryRunInput::Group { members, topics: vec![topic("b", 1), topic("a", 2)] };
    // Static members come first in what an assignor is given, and the answer is in the order of the trial.
    let members = vec![member("m1", None, Some(&["a"])), member("m2", Some("i"), None)];
    let asked = DryRun { compare_with: Some(1), ..trial(ModuleWorld::Assignor, group(members)) };
    let report = engine.dry_run_module(&me(), &named("m"), asked).await.expect("tried");
    let shares = vec![vec![(name("a"), p(1))], vec![(name("a"), p(0)), (name("b"), p(0))]];
    assert_eq!(report.tried.output, Ok(DryRunOutput::Assignment(shares)));
    assert_eq!((report.inputs, report.differences.len(), report.records.len()), (2, 0, 0));
    let only = DryRun {
        config: r#"{"only":"i"}"#.to_owned(),
        ..trial(
            ModuleWorld::Assignor,
            group(vec![member("m1", None, Some(&["a"])), member("m2", Some("i"), Some(&["a"]))]),
        )
    };
    let report = engine.dry_run_module(&me(), &named("m"), only).await.expect("tried");
    let Err(ModuleFault::Failed { reason }) = &report.tried.output else { panic!("nobody reads b: {report:?}") };
    assert!(reason.contains("topic b"), "{reason}");
    for members in
        [vec![], vec![member("m1", None, None), member("m1", None, None)], vec![member("m1", None, Some(&["none"]))]]
    {
        let refused = engine.dry_run_module(&me(), &named("m"), trial(ModuleWorld::Assignor, group(members))).await;
        assert!(matches!(refused, Err(ModuleError::DryRun(_))), "{refused:?}");
    }
    let other = trial(ModuleWorld::Transform, group(vec![member("m1", None, None)]));
    assert!(matches!(engine.dry_run_module(&me(), &named("m"), other).await, Err(ModuleError::DryRun(_))));
}

#[tokio::test]
async fn a_fault_is_an_outcome_and_what_cannot_be_tried_is_refused() {
    let (engine, _) = two_versions().await;
    let fault = trial(ModuleWorld::Transform, given(&[("k", "a"), ("k", "trap")]));
    let report = engine.dry_run_module(&me(), &named("m"), DryRun { compare_with: Some(1), ..fault }).await;
    let report = report.expect("tried");
    assert!(matches!(report.tried.output, Err(ModuleFault::Stopped { .. })), "{report:?}");
    assert_eq!(report.differences, [] as [usize; 0], "both trap");
    let refused = async |trial: DryRun| engine.dry_run_module(&me(), &named("m"), trial).await.expect_err("refused");
    let one = || given(&[("k", "v")]);
    assert!(matches!(refused(trial(ModuleWorld::Assignor, one())).await, ModuleError::DryRun(_)));
    let none = DryRun { partition_count: Some(0), ..trial(ModuleWorld::Partitioner, one()) };
    assert!(matches!(refused(none).await, ModuleError::DryRun(_)));
    let config = DryRun { config: "[".to_owned(), ..trial(ModuleWorld::Transform, one()) };
    assert!(matches!(refused(config).await, ModuleError::Config { .. }));
    let version = DryRun { compare_with: Some(3), ..trial(ModuleWorld::Transform, one()) };
    assert!(matches!(refused(version).await, ModuleError::NoVersion { version: 3, .. }));
    let many = given(&vec![("k", "v"); limits::DRY_RUN_RECORDS_MAX + 1]);
    assert!(matches!(refused(trial(ModuleWorld::Transform, many)).await, ModuleError::DryRun(_)));
}

/// Values by key; what the counting of records by key gives, for instance.
fn by_key(values: &[(Option<Bytes>, Option<Bytes>)]) -> BTreeMap<String, String> {
    let text = |bytes: &Option<Bytes>| String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    values.iter().map(|(key, value)| (text(key), text(value))).collect()
}
