//! A repeat is known after its records are gone, and after the snapshots are.

use levada_log::derived_producer_id;
use levada_model::{ProducerEpoch, ProducerId, Sequence};

use super::*;

fn stage(log: &mut PartitionLog, id: ProducerId, sequence: i32, keys: &[&str]) -> Appended {
    let check = if levada_log::is_derived(id) { SequenceCheck::Key } else { SequenceCheck::Producer };
    let producer = Some((id, ProducerEpoch(2), Sequence(sequence)));
    let records: Vec<_> = keys.iter().map(|key| (*key, Some("value"))).collect();
    let batch = batch(NewBatch { producer, ..NewBatch::default() }, 50, &records);
    let append = Append { batch, check, expected_offset: None };
    log.stage(append, LeaderEpoch(0), Timestamp(70)).expect("accepted")
}

fn stored(appended: &Appended) -> Offset {
    let Appended::Stored(batch) = appended else { panic!("a repeat") };
    batch.header().base_offset
}

#[test]
fn repeats_of_emptied_batches_are_known_without_a_snapshot_and_their_epoch_goes_on() {
    let disk = disk();
    let mut log = open(&disk, options());
    let (producer, key) = (ProducerId(3), derived_producer_id(99));
    let mut first_offsets = Vec::new();
    for n in 0..7 {
        first_offsets.push(stored(&stage(&mut log, producer, 2 * n, &["a", "b"])));
    }
    let of_key = stored(&stage(&mut log, key, 1234, &["a"]));
    log.write(Timestamp(70)).expect("writes");
    log.sync().expect("syncs");
    for key in ["a", "b"] {
        put(&mut log, key, Some("newer"), 80);
    }
    compact(&mut log, 100);
    assert_eq!(offsets(&log, 0), [15, 16]);
    let disk = disk.restart();
    disk.paths().iter().filter(|path| path.ends_with(".snapshot")).for_each(|path| disk.remove(path));
    let mut log = open(&disk, options());
    assert_eq!(offsets(&log, 0), [15, 16]);
    for n in 2..7 {
        let at = first_offsets[usize::try_from(n).expect("small")];
        let appended = stage(&mut log, producer, 2 * n, &["a", "b"]);
        assert!(matches!(appended, Appended::Duplicate { base_offset, timestamp }
            if base_offset == at && timestamp == Timestamp(50)));
    }
    let appended = stage(&mut log, key, 1234, &["a"]);
    assert!(matches!(appended, Appended::Duplicate { base_offset, .. } if base_offset == of_key));
    assert_eq!(stored(&stage(&mut log, producer, 14, &["c"])), Offset(17));
}

#[test]
fn a_batch_that_nobody_remembers_any_more_leaves_nothing() {
    let disk = disk();
    let mut log = open(&disk, options());
    for n in 0..9 {
        stage(&mut log, ProducerId(3), n, &["a"]);
    }
    log.write(Timestamp(70)).expect("writes");
    log.sync().expect("syncs");
    compact(&mut log, 100);
    // Five of the producer, one of them with its record, and a cover over the others.
    assert_eq!(log.reader().size_bytes(), 61 * 6 + 13);
    log.set_options(LogOptions { producer_expiration_ms: 10, ..options() });
    log.maintain(Timestamp(100), Offset(0)).expect("keeps house");
    compact(&mut log, 100);
    assert_eq!(log.reader().size_bytes(), 61 * 2 + 13);
    assert_eq!(offsets(&log, 0), [8]);
}
