//! Lookups by time and by offset, against a walk over everything.

use std::path::Path;
use std::sync::Arc;

use levada_log::{LogOptions, PartitionLog, SimStorage};
use levada_model::{LeaderEpoch, ManualClock, Offset, Timestamp};
use proptest::prelude::{ProptestConfig, prop, proptest};
use proptest::prop_assert_eq;

use super::{append, batch_of_times, options};

fn settings() -> LogOptions {
    LogOptions { segment_bytes: 1024, ..options() }
}

fn reopen(disk: &SimStorage) -> PartitionLog {
    PartitionLog::open(Arc::new(disk.clone()), Path::new("/p"), settings(), Timestamp(0), false).expect("opens").0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_first_record_of_a_time_is_the_one_that_a_walk_finds(
        batches in prop::collection::vec(prop::collection::vec(0..200_i64, 1..5), 1..60),
        start in 0..20_u64,
    ) {
        let disk = SimStorage::new(Arc::new(ManualClock::at(Timestamp(0))));
        let mut log = reopen(&disk);
        let mut records: Vec<(Offset, Timestamp)> = Vec::new();
        for times in &batches {
            append(&mut log, batch_of_times(times), 0);
            for time in times {
                records.push((Offset(records.len() as u64), Timestamp(*time)));
            }
        }
        let end = Offset(records.len() as u64);
        let start = log.truncate_front(Offset(start.min(end.0.saturating_sub(1)))).expect("truncates");
        for log in [log, reopen(&disk.restart())] {
            for bound in [end, Offset(u64::MAX), Offset(end.0 / 2)] {
                for time in (0..210).step_by(7).map(Timestamp) {
                    let naive = records
                        .iter()
                        .find(|(offset, of_record)| *of_record >= time && *offset >= start && *offset < bound);
                    let found = log.reader().offset_for_time(time, bound).expect("reads");
                    prop_assert_eq!(found, naive.copied(), "{} below {}", time, bound);
                }
            }
            for offset in (start.0..end.0).map(Offset) {
                let chunk = log.reader().read(offset, 1, end).expect("reads");
                let header = chunk.batches[0].header();
                prop_assert_eq!(chunk.batches.len(), 1);
                prop_assert_eq!(header.base_offset <= offset && offset < header.next_offset(), true);
                prop_assert_eq!(log.reader().epoch_at(offset), Some(LeaderEpoch(0)));
            }
        }
    }
}
