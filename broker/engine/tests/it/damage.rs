//! Case PC-32: an engine over a directory that was damaged while it was down starts by itself, keeps its next offset, and
//! gives up what was hit and nothing else.

use levada_engine::{Engine, From};
use levada_log::SimStorage;
use levada_model::Offset;
use serde_json::json;

use crate::support::{Bench, create, fetch, offsets, produce, record};

const BATCHES: u64 = 110;
const BATCH_RECORDS: u64 = 10;
const RECORDS: u64 = BATCHES * BATCH_RECORDS;

/// A topic of 1,100 acknowledged records in batches of ten, of which a closed segment holds the most, after a kill.
async fn killed() -> (Bench, SimStorage) {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("segment.bytes", json!(80_000))]).await;
    for batch in 0..BATCHES {
        let value = |i: u64| format!("{:0>60}", batch * BATCH_RECORDS + i);
        produce(&engine, "t", (0..BATCH_RECORDS).map(|i| record("", &value(i))).collect()).await;
    }
    drop(engine);
    (bench, disk.restart())
}

fn files(disk: &SimStorage, ending: &str) -> Vec<String> {
    let mut paths: Vec<_> = disk.paths().into_iter().filter(|path| path.ends_with(ending)).collect();
    paths.sort();
    paths
}

/// All offsets that are read from the start on, with the gaps on the way.
async fn read(engine: &Engine) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut next, mut seen, mut gaps) = (Offset(0), Vec::new(), Vec::new());
    loop {
        let fetched = fetch(engine, "t", 0, From::Offset(next)).await.expect("a read");
        gaps.extend(fetched.gaps.iter().map(|gap| (gap.from.0, gap.to.0)));
        seen.extend(fetched.records().map(|record| record.expect("readable").offset.0));
        if fetched.next_offset == next {
            return (seen, gaps);
        }
        next = fetched.next_offset;
    }
}

#[tokio::test]
async fn a_lost_tail_or_index_leaves_the_rest_readable_and_the_next_offset_where_it_was() {
    type Damage = fn(&SimStorage);
    let damages: [(&str, Damage); 4] = [
        ("7 bytes cut off the newest segment", |disk| {
            let newest = files(disk, ".log").pop().expect("segments");
            let bytes = disk.contents(&newest);
            let end = bytes.iter().rposition(|byte| *byte != 0).expect("records") + 1;
            disk.overwrite(&newest, &bytes[..end - 7]);
        }),
        ("the newest segment emptied", |disk| disk.overwrite(files(disk, ".log").pop().expect("segments"), b"")),
        ("the indexes deleted", |disk| files(disk, ".index").iter().for_each(|path| disk.remove(path))),
        ("the indexes zeroed", |disk| {
            files(disk, ".index").iter().for_each(|path| disk.overwrite(path, &vec![0; disk.contents(path).len()]));
        }),
    ];
    let (bench, whole) = killed().await;
    assert!(files(&whole, ".log").len() == 2 && !files(&whole, ".index").is_empty(), "{:?}", whole.paths());
    for (what, damage) in damages {
        let disk = whole.restart();
        damage(&disk);
        let engine = bench.with(disk).open();
        let next = offsets(&produce(&engine, "t", vec![record("", "next")]).await);
        assert_eq!(next, [RECORDS], "{what}: never lower than what was acknowledged");
        let (seen, gaps) = read(&engine).await;
        let lost: u64 = gaps.iter().map(|(from, to)| to - from).sum();
        assert_eq!(seen.len() as u64 + lost, RECORDS + 1, "{what}: {gaps:?}");
        assert_eq!(lost > 0, what.contains("newest"), "{what}: {gaps:?}");
        assert!(gaps.iter().all(|gap| seen.iter().all(|offset| !(gap.0..gap.1).contains(offset))), "{what}");
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_closed_segment_costs_one_batch_and_is_told() {
    let (bench, disk) = killed().await;
    let closed = files(&disk, ".log").remove(0);
    disk.corrupt(&closed, disk.contents(&closed).len() as u64 / 2, 0x10);
    let engine = bench.with(disk).open();
    let (seen, gaps) = read(&engine).await;
    let [(from, to)] = gaps[..] else { panic!("one gap, not {gaps:?}") };
    assert_eq!((to - from, from % BATCH_RECORDS), (BATCH_RECORDS, 0), "one batch");
    let rest: Vec<_> = (0..RECORDS).filter(|offset| !(from..to).contains(offset)).collect();
    assert_eq!(seen, rest, "later records are readable");
    assert_eq!(engine.stats().damaged_ranges, 1);
}
