//! Indexes that lie: each entry changed behind a CRC that matches. What is read stays right, for the log is asked.

use levada_log::{PlantedFaults, SimStorage};

use super::damage::{Left, files, left};
use super::trace::Model;
use super::verdict::{Loss, after_damage};

/// See `broker/docs/formats/log-directory.md`.
const CHUNK_HEAD_BYTES: usize = 36;
const COUNT_AT: usize = 32;
const ENTRY_BYTES: usize = 16;

/// All ways in which a file of index chunks is made to lie.
fn lies(honest: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut lies = Vec::new();
    let mut start = 0;
    while start < honest.len() {
        let count = u32::from_be_bytes(honest[start + COUNT_AT..start + CHUNK_HEAD_BYTES].try_into().expect("four"));
        let body = start..start + CHUNK_HEAD_BYTES + count as usize * ENTRY_BYTES;
        for entry in 0..count as usize {
            let at = body.start + CHUNK_HEAD_BYTES + entry * ENTRY_BYTES;
            for change in [1, 2, 61, 150, -1, -2, -61] {
                for (field, name) in [(at, "offset"), (at + 4, "position")] {
                    let mut lie = honest.to_vec();
                    let old = i32::from_be_bytes(lie[field..field + 4].try_into().expect("four"));
                    lie[field..field + 4].copy_from_slice(&old.wrapping_add(change).to_be_bytes());
                    lies.push((format!("entry {entry} of the chunk at {start}: {name} by {change}"), lie));
                }
            }
            for time in [i64::MAX, 1_000_000] {
                let mut lie = honest.to_vec();
                lie[at + 8..at + 16].copy_from_slice(&time.to_be_bytes());
                lies.push((format!("entry {entry} of the chunk at {start}: timestamp {time}"), lie));
            }
        }
        for (_, lie) in &mut lies {
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &lie[body.clone()]);
            lie[body.end..body.end + 4].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
        }
        start = body.end + 4;
    }
    lies
}

/// Tries all lies; says what the first one broke.
fn every_lie(faults: PlantedFaults) -> Result<(), String> {
    for way in [Left::Killed, Left::Closed] {
        let (disk, model) = left(way);
        let indexes = files(&disk, ".index");
        assert!(indexes.len() >= 3, "indexes");
        for path in &indexes {
            let honest = disk.contents(path);
            let lies = lies(&honest);
            assert!(lies.len() >= 16, "a vacuous proof");
            for (name, lie) in lies {
                check(&disk, &model, way, path, &lie, faults)
                    .map_err(|error| format!("{way:?}, {path}, {name}: {error}"))?;
            }
            for other in &indexes {
                check(&disk, &model, way, path, &disk.contents(other), faults)
                    .map_err(|error| format!("{path} is {other}: {error}"))?;
            }
            for len in 0..honest.len() {
                check(&disk, &model, way, path, &honest[..len], faults)
                    .map_err(|error| format!("{path} cut to {len}: {error}"))?;
            }
        }
    }
    Ok(())
}

fn check(
    disk: &SimStorage,
    model: &Model,
    way: Left,
    path: &str,
    index: &[u8],
    faults: PlantedFaults,
) -> Result<(), String> {
    let lying = disk.crash(&levada_log::CrashPlan::all_kept());
    lying.overwrite(path, index);
    after_damage(&lying, model, way == Left::Closed, &Loss::Nothing, faults)
}

#[test]
fn a_lying_index_changes_nothing_that_is_read() {
    every_lie(PlantedFaults::default()).expect("holds");
}

#[test]
fn an_index_that_is_trusted_is_found() {
    every_lie(PlantedFaults { trust_index: true, ..PlantedFaults::default() }).expect_err("the fault goes unnoticed");
}
