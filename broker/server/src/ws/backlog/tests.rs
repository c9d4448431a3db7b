//! Reads in, frames out: nothing is lost on the way, whatever the credit.

use levada_api::Credit;
use levada_log::{BatchBuilder, Damage, NewBatch};
use levada_model::{LeaderEpoch, Record, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// What a client sees of one partition: its position, and nothing else.
struct Place(u64);

impl Places for Place {
    fn moved(&mut self, topic: usize, partition: PartitionIndex, next: Offset) {
        assert_eq!((topic, partition), (0, PartitionIndex(0)));
        assert!(next.0 >= self.0, "positions only go on");
        self.0 = next.0;
    }

    fn cursor(&self) -> String {
        self.0.to_string()
    }
}

/// A stretch of a log: lost offsets, then records of these sizes in one batch.
#[derive(Clone, Debug)]
struct Stretch {
    lost: u64,
    sizes: Vec<usize>,
}

fn any_log() -> impl Strategy<Value = Vec<Stretch>> {
    let sizes = prop::collection::vec(prop_oneof![9 => 0..200_usize, 1 => 30_000..50_000_usize], 1..8);
    let lost = prop_oneof![4 => Just(0_u64), 1 => 1..5_u64];
    prop::collection::vec((lost, sizes).prop_map(|(lost, sizes)| Stretch { lost, sizes }), 0..6)
}

fn any_credits() -> impl Strategy<Value = Vec<Credit>> {
    let grant = prop_oneof![
        (0..6_u64).prop_map(|n| Credit { records: Some(n), bytes: None }),
        (0..60_000_u64).prop_map(|n| Credit { records: None, bytes: Some(n) }),
        ((0..6_u64), (0..60_000_u64)).prop_map(|(n, b)| Credit { records: Some(n), bytes: Some(b) }),
    ];
    prop::collection::vec(grant, 0..12)
}

fn fetched(log: &[Stretch]) -> Fetched {
    let (mut at, mut batches, mut gaps) = (0, Vec::new(), Vec::new());
    for Stretch { lost, sizes } in log {
        if *lost > 0 {
            gaps.push(Damage { from: Offset(at), to: Offset(at + lost) });
            at += lost;
        }
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        for size in sizes {
            let value = Some(Bytes::from(format!("\"{}\"", "x".repeat(*size))));
            builder.push(Timestamp(1), &Record { key: None, value, headers: Vec::new() });
        }
        let built = builder.finish().expect("nothing is compressed");
        batches.push(built.stamp(Offset(at), LeaderEpoch(0)));
        at += sizes.len() as u64;
    }
    Fetched {
        partition: PartitionIndex(0),
        batches,
        filtered: None,
        aborted: Vec::new(),
        from: Offset(0),
        max_records: usize::MAX,
        gaps,
        next_offset: Offset(at),
        high_watermark: Offset(at),
        last_stable_offset: Offset(at),
        log_start_offset: Offset(0),
        leader_epoch: LeaderEpoch(0),
    }
}

/// Offsets that a frame tells, each with whether it is there.
fn told_by(frame: &Outgoing) -> (Vec<(u64, bool)>, usize) {
    let number = |value: &Value| value.as_u64().expect("a number");
    match frame {
        Outgoing::Text(text) => {
            let frame: Value = serde_json::from_slice(text).expect("JSON");
            match frame["records"].as_array() {
                Some(records) => (records.iter().map(|it| (number(&it["offset"]), true)).collect(), text.len()),
                None => ((number(&frame["from"])..number(&frame["to"])).map(|it| (it, false)).collect(), 0),
            }
        }
        Outgoing::Binary(bytes) => {
            let mut rest = bytes.clone();
            let header = rest.split_to(4);
            let header = u32::from_be_bytes(header[..].try_into().expect("four bytes"));
            let _: Value = serde_json::from_slice(&rest.split_to(header as usize)).expect("JSON");
            let mut offsets = Vec::new();
            while !rest.is_empty() {
                let head = *Batch::parse(&mut rest).expect("a batch").header();
                offsets.extend((head.base_offset.0..head.next_offset().0).map(|it| (it, true)));
            }
            (offsets, bytes.len())
        }
    }
}

#[test]
fn a_batch_that_cannot_be_taken_apart_is_told_without_credit_and_never_passed() {
    let mut fetched = fetched(&[Stretch { lost: 0, sizes: vec![1] }, Stretch { lost: 0, sizes: vec![1] }]);
    let mut broken = fetched.batches[1].bytes().to_vec();
    // Its records are said to be gzip's, and the sum is right: what a bad producer's library may store.
    broken[22] |= 1;
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &broken[21..]);
    broken[17..21].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
    fetched.batches[1] = Batch::parse(&mut Bytes::from(broken)).expect("its sum is right");
    let mut backlog = Backlog::new(FrameId::Number(1), StreamForm::Json);
    backlog.add_topic(TopicName::new("t").expect("a name"));
    backlog.push(vec![Read { topic: 0, fetched }]);
    let (mut allowance, mut place) = (Allowance::default(), Place(0));
    allowance.add(Credit { records: Some(1), bytes: None });
    let frame = backlog.next(&mut allowance, &mut place, 0).expect("sound").expect("a frame");
    assert_eq!((told_by(&frame).0, place.0), (vec![(0, true)], 1));
    assert!(!allowance.is_open() && backlog.begins_with_fault() && backlog.begins_with_fault());
    assert!(backlog.next(&mut allowance, &mut place, 0).is_err());
    assert_eq!(place.0, 1);
}

proptest! {
    #[test]
    fn whatever_is_granted_every_offset_is_told_once_and_in_order(
        log in any_log(),
        credits in any_credits(),
        form in prop_oneof![Just(StreamForm::Json), Just(StreamForm::Batches)],
    ) {
        let fetched = fetched(&log);
        let end = fetched.next_offset.0;
        let largest = log.iter().flat_map(|it| &it.sizes).max().map_or(0, |size| size + 1_000);
        let whole_batch = log.iter().map(|it| it.sizes.iter().sum::<usize>() + 1_000).max().unwrap_or(0);
        let mut backlog = Backlog::new(FrameId::Number(1), form);
        backlog.add_topic(TopicName::new("t").expect("a name"));
        if end > 0 {
            backlog.push(vec![Read { topic: 0, fetched }]);
        }
        let (mut allowance, mut place, mut told, mut granted) = (Allowance::default(), Place(0), Vec::new(), 0_u64);
        let all = Credit { records: Some(u64::MAX / 2), bytes: Some(u64::MAX / 2) };
        for (step, credit) in credits.iter().chain([&all]).enumerate() {
            allowance.add(*credit);
            granted += credit.records.unwrap_or(0);
            let named = credits[..credits.len().min(step + 1)].iter().all(|it| it.records.is_some());
            while let Some(frame) = backlog.next(&mut allowance, &mut place, 0).expect("sound") {
                let (offsets, bytes) = told_by(&frame);
                prop_assert!(bytes <= PIECE_BYTES + largest.max(whole_batch), "{bytes}");
                prop_assert_eq!(backlog.left(), end - place.0);
                told.extend(offsets);
            }
            let sent = told.iter().filter(|(_, is_there)| *is_there).count() as u64;
            // A batch comes whole.
            let slack = if form == StreamForm::Batches { 7 } else { 0 };
            prop_assert!(!named || credits.is_empty() || sent <= granted.saturating_add(slack * granted.min(20)));
        }
        prop_assert!(backlog.is_empty() && place.0 == end);
        let offsets: Vec<u64> = told.iter().map(|(offset, _)| *offset).collect();
        prop_assert_eq!(offsets, (0..end).collect::<Vec<_>>());
        let mut expected = Vec::new();
        for Stretch { lost, sizes } in &log {
            expected.extend((0..*lost).map(|_| false));
            expected.extend(sizes.iter().map(|_| true));
        }
        prop_assert_eq!(told.into_iter().map(|(_, is_there)| is_there).collect::<Vec<_>>(), expected);
    }
}
