//! What the fuzz target does with its bytes, and an ordinary test with every file of the corpus: all that a module can
//! answer, and what must hold of what was taken.

use bytes::Bytes;
use levada_extension::{
    AnswerLimits, AssignorInput, AssignorMember, AssignorPartition, AssignorTopic, CallBatch, CallSection, Fields,
    Moment, Verdict, Verdicts, check_assignment, check_partitions, check_verdicts, decode_accumulators,
    decode_json_verdicts, decode_values, decode_verdicts, read_assignment,
};
use levada_model::{MemberId, Offset, PartitionIndex, Record, Timestamp, TimestampType, TopicId, TopicName};
use uuid::Uuid;

/// Small caps, so that many inputs come near them.
const LIMITS: AnswerLimits = AnswerLimits {
    answer_bytes_max: 4096,
    emitted_records_max: 4,
    emitted_in_all_max: 6,
    record_bytes_max: 64,
    reason_bytes_max: 32,
    accumulator_bytes_max: 64,
};

/// Reads the bytes as each answer that there is; the first says how many items were asked for. Gives whether they were
/// taken as verdicts, as JSON verdicts, as kept places, as accumulators and as values.
pub(super) fn answer(bytes: &[u8]) -> [bool; 5] {
    let Some((expected, rest)) = bytes.split_first() else { return [false; 5] };
    let expected = usize::from(*expected);
    let shared = Bytes::copy_from_slice(rest);
    let verdicts = decode_verdicts(shared.clone(), expected, &LIMITS);
    if let Ok(verdicts) = &verdicts {
        judged(verdicts, expected);
    }
    let json = std::str::from_utf8(rest).ok().and_then(|text| decode_json_verdicts(text, expected, &LIMITS).ok());
    if let Some(verdicts) = &json {
        judged(verdicts, expected);
    }
    let places: Vec<u32> =
        rest.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().expect("four"))).collect();
    let kept = check_verdicts(&Verdicts::Keep(places.clone()), expected, &LIMITS).is_ok();
    assert_eq!(kept, places.is_sorted_by(|a, b| a < b) && places.iter().all(|place| (*place as usize) < expected));
    let partitions: Vec<_> = places.iter().copied().map(PartitionIndex).collect();
    let placed = check_partitions(&partitions, expected, 7).is_ok();
    assert_eq!(placed, places.len() == expected && places.iter().all(|partition| *partition < 7));
    let accumulators = decode_accumulators(shared.clone(), expected, &LIMITS);
    if let Ok(accumulators) = &accumulators {
        assert_eq!(accumulators.len(), expected);
        assert!(accumulators.iter().all(|bytes| bytes.len() <= LIMITS.accumulator_bytes_max));
    }
    let values = decode_values(shared, expected, &LIMITS);
    if let Ok(values) = &values {
        assert_eq!(values.len(), expected);
    }
    assignment(&places);
    section(rest, *bytes.first().expect("there is one"));
    [verdicts.is_ok(), json.is_some(), kept, accumulators.is_ok(), values.is_ok()]
}

fn judged(verdicts: &[Verdict], expected: usize) {
    assert_eq!(check_verdicts(&Verdicts::Each(verdicts.to_vec()), expected, &LIMITS), Ok(()));
    let emitted = |verdict: &Verdict| if let Verdict::Emit(records) = verdict { records.len() } else { 0 };
    assert!(verdicts.iter().map(emitted).sum::<usize>() <= LIMITS.emitted_in_all_max);
    for verdict in verdicts {
        if let Verdict::Emit(records) = verdict {
            assert!(records.len() <= LIMITS.emitted_records_max);
            for record in records {
                assert!(record.given_bytes() <= LIMITS.record_bytes_max);
                let (_, whole) = record.clone().in_place_of(Timestamp(0), &Record::default());
                assert_eq!(whole.size_bytes(), record.given_bytes());
            }
        }
    }
}

/// Numbers as an assignor's answer: so many partitions for each member of a small group, and which.
fn assignment(numbers: &[u32]) {
    let member = |name: &str, subscribed: &[TopicId]| AssignorMember {
        member_id: MemberId::new(name).expect("a name"),
        instance_id: None,
        subscribed: subscribed.to_vec(),
        owned: Vec::new(),
    };
    let (a, b) = (TopicId(Uuid::from_u128(1)), TopicId(Uuid::from_u128(2)));
    let topic = |topic, name| AssignorTopic {
        topic,
        name: TopicName::new(name).expect("a name"),
        partitions: (0..2).map(|number| AssignorPartition { partition: PartitionIndex(number), lag: None }).collect(),
    };
    let input = AssignorInput::new(vec![member("m", &[a, b]), member("n", &[b])], vec![topic(a, "a"), topic(b, "b")]);
    let lists = numbers.split(|number| *number == u32::MAX);
    let lists: Vec<Vec<_>> =
        lists.map(|list| list.iter().map(|number| (number >> 8, number & 0xff)).collect()).collect();
    if let Ok(assignment) = read_assignment(&input, lists.into_iter().map(Vec::into_iter)) {
        assert_eq!(check_assignment(&input, &assignment), Ok(()));
        assert_eq!(assignment.iter().map(Vec::len).sum::<usize>(), 4);
    }
}

/// The same bytes as a record section, which natives walk: whatever lies there, the walk ends.
fn section(bytes: &[u8], record_count: u8) {
    let section = CallSection {
        topic: TopicName::new("fuzz").expect("a name"),
        partition: PartitionIndex(0),
        base_offset: Offset(0),
        base_timestamp: Timestamp(0),
        timestamp_type: TimestampType::CreateTime,
        record_count: record_count.into(),
        records: Bytes::copy_from_slice(bytes),
    };
    let batch = CallBatch { moment: Moment { time: Timestamp(0), seed: 0 }, sections: vec![section] };
    let records: Result<Vec<_>, _> = batch.records().collect();
    let keys = batch.encode(Fields::KEY);
    assert_eq!(records.is_ok(), keys.is_ok());
    if let Ok(records) = records {
        assert_eq!(records.len(), batch.record_count());
        records.iter().for_each(|record| drop(record.headers()));
    }
}
