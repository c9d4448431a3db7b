//! A stop at any write of an upload, by kill or by power cut, leaves the version in force, or the new one whole.

use levada_engine::{Engine, ModuleInfo};
use levada_log::{CrashPlan, SimStorage};
use serde_json::json;

use super::{HostHandle, module, named, of, open};
use crate::support::{Bench, me};

const TRANSFORM: [&str; 1] = ["transform"];

/// What a disk looks like after a stop.
type Stop = fn(&SimStorage, u64) -> SimStorage;

/// Does `change` with a disk that fails at the `n`th change of it, for every `n` until it succeeds, and shows each disk that
/// a stop then leaves to `judge`, with whether the change was answered.
async fn at_every_write(
    change: impl AsyncFn(&Engine) -> bool,
    stop: Stop,
    judge: impl AsyncFn(&Bench, SimStorage, bool),
) {
    for n in 0.. {
        let (bench, disk) = Bench::sim();
        let engine = open(&bench, &HostHandle::default());
        engine.put_module(&me(), &named("m"), first(), true).await.expect("taken");
        disk.fail_after(n);
        let answered = change(&engine).await;
        for seed in 0..4 {
            let left = stop(&disk, seed);
            judge(&bench, left, answered).await;
        }
        drop(engine);
        assert!(n < 200, "it never succeeds");
        if answered {
            assert!(n > 5, "a change writes several times");
            return;
        }
    }
}

fn first() -> bytes::Bytes {
    module(&TRANSFORM, json!({"rev": 1}))
}

/// Longer than a block of the disk, so that it may be torn.
fn second() -> bytes::Bytes {
    module(&TRANSFORM, json!({"rev": 2, "ballast": "x".repeat(20_000)}))
}

/// What the next start finds: every version that is known can be loaded, and nothing else lies there.
async fn found(bench: &Bench, disk: SimStorage) -> ModuleInfo {
    let engine = open(&bench.with(disk.clone()), &HostHandle::default());
    let modules = engine.modules(&me()).expect("listed");
    let mut blobs = Vec::new();
    for info in &modules {
        for version in &info.versions {
            let module = of(&format!("{}@{}", info.name, version.version));
            engine.module_stats(&me(), &module).await.expect("it can be loaded");
            engine.module_wasm(&me(), &info.name, version.version).await.expect("it is there");
            blobs.push(format!("{}.wasm", version.digest.hex()));
        }
    }
    blobs.sort();
    let paths = disk.paths();
    let lying: Vec<_> = paths.iter().filter_map(|path| Some(path.split_once("data/modules/")?.1)).collect();
    assert_eq!(lying, blobs, "and nothing else");
    engine.put_module(&me(), &named("more"), first(), true).await.expect("it goes on");
    modules.into_iter().find(|info| info.name == named("m")).expect("it was there before")
}

const STOPS: [(&str, Stop); 2] = [
    ("kill -9", |disk, _| disk.restart()),
    ("a power cut", |disk, seed| match seed {
        0 => disk.crash(&CrashPlan::all_lost()),
        seed => disk.crash(&CrashPlan::seeded(seed, 512)),
    }),
];

#[tokio::test]
async fn an_upload_is_there_whole_or_not_at_all() {
    for (what, stop) in STOPS {
        let change = async |engine: &Engine| engine.put_module(&me(), &named("m"), second(), true).await.is_ok();
        at_every_write(change, stop, async |bench, disk, answered| {
            let info = found(bench, disk).await;
            let now = (info.versions.len(), info.active_version);
            assert!(now == (2, 2) || (now == (1, 1) && !answered), "{what}: {now:?}, answered: {answered}");
        })
        .await;
    }
}

#[tokio::test]
async fn an_activation_holds_or_does_not() {
    for (what, stop) in STOPS {
        let change = async |engine: &Engine| {
            engine.activate_module(&me(), &named("m"), 1).await.expect("that changes nothing");
            engine.put_module(&me(), &named("m"), second(), false).await.is_ok()
                && engine.activate_module(&me(), &named("m"), 2).await.is_ok()
        };
        at_every_write(change, stop, async |bench, disk, answered| {
            let info = found(bench, disk).await;
            let now = (info.versions.len(), info.active_version);
            assert!(now == (2, 2) || !answered, "{what}: {now:?}");
            assert!(matches!(now, (1, 1) | (2, 1) | (2, 2)), "{what}: {now:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_disk_that_does_not_sync_names_is_found_out() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench, &HostHandle::default());
    engine.put_module(&me(), &named("m"), first(), true).await.expect("taken");
    disk.ignore_sync_dir(true);
    engine.put_module(&me(), &named("m"), second(), true).await.expect("taken");
    let disk = disk.crash(&CrashPlan::all_lost());
    let engine = open(&bench.with(disk), &HostHandle::default());
    assert!(engine.module_wasm(&me(), &named("m"), 2).await.is_err(), "or the test above shows nothing");
}
