//! What is not a whole, right batch is refused, and said how.

use levada_log::{BatchError, BatchHeader, HEADER_BYTES, NewBatch, RecordsError};
use levada_model::{Compression, ProducerEpoch, ProducerId, Record, Sequence, Timestamp, limits};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::{
    ATTRIBUTES_AT, COMPRESSIONS, LENGTH_AT, RECORDS_AT, bytes_of, check, parse, parse_buf, reseal, some_compression,
    some_records, text,
};

const LAST_OFFSET_DELTA_AT: usize = 23;
const PRODUCER_ID_AT: usize = 43;
const PRODUCER_EPOCH_AT: usize = 51;
const BASE_SEQUENCE_AT: usize = 53;
const COUNT_AT: usize = 57;

fn sample(compression: Compression) -> Vec<u8> {
    let producer = Some((ProducerId(7), ProducerEpoch(0), Sequence(0)));
    let records = [(Timestamp(5), text("one")), (Timestamp(6), text("two, two, two, two, two, two"))];
    bytes_of(NewBatch { compression, producer, ..NewBatch::default() }, &records)
}

#[test]
fn any_flipped_bit_is_noticed_but_in_what_the_broker_stamps() {
    for compression in COMPRESSIONS {
        let batch = sample(compression);
        for bit in 0..batch.len() * 8 {
            let mut flipped = batch.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Base offset (but its sign) and leader epoch.
            let stamped = (1..64).contains(&(bit ^ 7)) || (96..128).contains(&bit);
            assert_eq!(parse(&flipped).is_ok(), stamped, "{compression:?}, bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn every_cut_prefix_is_cut_off(compression in some_compression(), records in some_records()) {
        let batch = bytes_of(NewBatch { compression, ..NewBatch::default() }, &records);
        for cut in 0..batch.len() {
            let need = if cut < HEADER_BYTES { HEADER_BYTES } else { batch.len() };
            prop_assert_eq!(parse(&batch[..cut]), Err(BatchError::CutOff { have: cut, need }));
        }
    }

    #[test]
    fn zeros_are_never_a_batch(count in 0..5000_usize) {
        prop_assert!(parse(&vec![0; count]).is_err());
    }

    #[test]
    fn a_batch_that_ends_in_zeros_is_refused(records in some_records(), kept in 0.0..1.0_f64) {
        let mut batch = bytes_of(NewBatch::default(), &records);
        let keep = (batch.len() as f64 * kept) as usize;
        let all_zero = batch[keep..].iter().all(|byte| *byte == 0);
        batch[keep..].fill(0);
        prop_assert_eq!(parse(&batch).is_err(), !all_zero);
    }
}

#[test]
fn zeros_are_refused_by_their_magic_as_soon_as_it_is_there() {
    assert_eq!(BatchHeader::parse(&[0; 16]), Err(BatchError::CutOff { have: 16, need: 61 }));
    assert_eq!(BatchHeader::parse(&[0; 17]), Err(BatchError::Magic(0)));
    assert_eq!(BatchHeader::parse(&[0; 4096]), Err(BatchError::Magic(0)));
}

#[test]
fn impossible_lengths_are_refused_before_anything_is_waited_for() {
    let too_large = i32::try_from(limits::BATCH_BYTES_MAX - 12 + 1).expect("below 2^31");
    for length in [i32::MIN, -1, 0, 48, too_large, i32::MAX] {
        let mut batch = sample(Compression::None);
        batch[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(parse(&batch), Err(BatchError::Length(length)));
    }
    let mut batch = sample(Compression::None);
    batch[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&(too_large - 1).to_be_bytes());
    let need = limits::BATCH_BYTES_MAX;
    assert_eq!(parse(&batch), Err(BatchError::CutOff { have: batch.len(), need }));
}

#[test]
fn fields_that_contradict_the_format_or_each_other_are_named() {
    let cases: [(usize, &[u8], &str); 12] = [
        (0, &i64::MIN.to_be_bytes(), "base offset"),
        (ATTRIBUTES_AT, &5_i16.to_be_bytes(), "compression"),
        (ATTRIBUTES_AT, &7_i16.to_be_bytes(), "compression"),
        (ATTRIBUTES_AT, &0x80_i16.to_be_bytes(), "attributes"),
        (ATTRIBUTES_AT, &i16::MIN.to_be_bytes(), "attributes"),
        (LAST_OFFSET_DELTA_AT, &(-1_i32).to_be_bytes(), "last offset delta"),
        (LAST_OFFSET_DELTA_AT, &0_i32.to_be_bytes(), "record count"),
        (COUNT_AT, &(-2_i32).to_be_bytes(), "record count"),
        (COUNT_AT, &i32::MAX.to_be_bytes(), "record count"),
        (PRODUCER_ID_AT, &(-2_i64).to_be_bytes(), "producer id"),
        (PRODUCER_EPOCH_AT, &(-1_i16).to_be_bytes(), "producer epoch"),
        (BASE_SEQUENCE_AT, &(-1_i32).to_be_bytes(), "base sequence"),
    ];
    for (at, bytes, name) in cases {
        let mut batch = sample(Compression::None);
        batch[at..at + bytes.len()].copy_from_slice(bytes);
        reseal(&mut batch);
        let error = parse(&batch).expect_err(name);
        assert!(matches!(error, BatchError::Field { field, .. } if field == name), "{name}: {error}");
    }
    let mut batch = bytes_of(NewBatch::default(), &[(Timestamp(1), text("x"))]);
    batch[ATTRIBUTES_AT + 1] = 0x10;
    reseal(&mut batch);
    let error = parse(&batch).expect_err("a transaction of nobody");
    assert!(matches!(error, BatchError::Field { field: "producer id of a transactional batch", .. }), "{error}");
}

/// A batch whose records are `records` and whose head says that there are `count` of them.
fn with_records(count: u32, records: &[u8]) -> Vec<u8> {
    let mut batch = bytes_of(NewBatch::default(), &[(Timestamp(1), Record::default())]);
    batch.truncate(RECORDS_AT);
    batch.extend_from_slice(records);
    batch[LAST_OFFSET_DELTA_AT..LAST_OFFSET_DELTA_AT + 4].copy_from_slice(&count.saturating_sub(1).to_be_bytes());
    batch[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_be_bytes());
    reseal(&mut batch);
    batch
}

/// What the check of a client's batch and the walk of a stored one say, as (place, detail).
fn verdicts(batch: &[u8]) -> [Option<(u32, String)>; 2] {
    let verdict = |error| match error {
        RecordsError::Malformed { index, detail } => (index, detail),
        other => panic!("{other}"),
    };
    let checked = check(&parse_buf(batch), 1 << 20).err().map(verdict);
    let walked = parse(batch).expect("a batch").records().expect("not packed").find_map(Result::err).map(verdict);
    [checked, walked]
}

#[test]
fn records_that_lie_about_themselves_are_refused_by_both_walks() {
    let good = [0x0c, 0, 0, 0, 1, 1, 0];
    let cases: &[(&str, u32, &[u8], u32, &str)] = &[
        ("fewer than declared", 2, &good, 1, "it ends in its length"),
        ("a count that nobody could send", 1 << 30, &good, 1, "it ends in its length"),
        ("more than declared", 1, &[good, good].concat(), 1, "7 bytes lie behind the last record"),
        ("no length", 1, &[], 0, "it ends in its length"),
        ("a null length", 1, &[1], 0, "its length is null"),
        ("a negative length", 1, &[3], 0, "its length does not fit the 0 bytes that are left"),
        (
            "a length beyond the end",
            1,
            &[0x0e, 0, 0, 0, 1, 1, 0],
            0,
            "its length does not fit the 6 bytes that are left",
        ),
        (
            "a length of 2^31 - 1",
            1,
            &[0xfe, 0xff, 0xff, 0xff, 0x0f],
            0,
            "its length does not fit the 0 bytes that are left",
        ),
        ("a varint without end", 1, &[0xff; 12], 0, "its length is out of range"),
        ("an empty body", 1, &[0], 0, "it ends in its attributes"),
        (
            "a key beyond the record",
            1,
            &[0x0c, 0, 0, 0, 0x40, 1, 0],
            0,
            "its key length does not fit the 2 bytes that are left",
        ),
        ("a key below null", 1, &[0x0c, 0, 0, 0, 3, 1, 0], 0, "its key length does not fit the 2 bytes that are left"),
        (
            "a value beyond the record",
            1,
            &[0x0c, 0, 0, 0, 1, 4, 0],
            0,
            "its value length does not fit the 1 bytes that are left",
        ),
        ("bytes behind the headers", 1, &[0x0e, 0, 0, 0, 1, 1, 0, 9], 0, "1 bytes lie behind its headers"),
        ("a negative header count", 1, &[0x0c, 0, 0, 0, 1, 1, 1], 0, "-1 headers, and 1000 are allowed"),
        (
            "2^31 - 1 headers",
            1,
            &[0x14, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f],
            0,
            "2147483647 headers, and 1000 are allowed",
        ),
        (
            "1000 headers that are not there",
            1,
            &[0x0e, 0, 0, 0, 1, 1, 0xd0, 0x0f],
            0,
            "it ends in its header name length",
        ),
        ("a header without a name", 1, &[0x10, 0, 0, 0, 1, 1, 2, 1, 1], 0, "a header name is null"),
        ("a header name that is not UTF-8", 1, &[0x12, 0, 0, 0, 1, 1, 2, 2, 0xff, 1], 0, "a header name is not UTF-8"),
        ("an offset beyond the last", 1, &[0x0c, 0, 0, 2, 1, 1, 0], 0, "its offset delta is 1"),
        ("a negative offset", 1, &[0x0c, 0, 0, 1, 1, 1, 0], 0, "its offset delta is -1"),
        ("the same offset twice", 2, &[good, good].concat(), 1, "its offset delta is 0"),
    ];
    for (name, count, records, index, detail) in cases {
        let expected = Some((*index, (*detail).to_owned()));
        let batch = with_records(*count, records);
        assert_eq!(verdicts(&batch), [expected.clone(), expected], "{name}");
    }
}

#[test]
fn a_gap_between_offsets_is_refused_from_a_client_and_read_from_the_log() {
    // Offsets 0 and 2: what compaction leaves.
    let mut batch = with_records(3, &[0x0c, 0, 0, 0, 1, 1, 0, 0x0c, 0, 0, 4, 1, 1, 0]);
    batch[COUNT_AT + 3] = 2;
    reseal(&mut batch);
    let said = Some((0, "the head says 2 records for 3 offsets".to_owned()));
    assert_eq!(verdicts(&batch), [said, None]);

    // The count is dense, the offsets are not.
    let batch = with_records(2, &[0x0c, 0, 0, 2, 1, 1, 0, 0x0c, 0, 0, 2, 1, 1, 0]);
    let expected = |index, detail: &str| Some((index, detail.to_owned()));
    assert_eq!(verdicts(&batch), [expected(0, "its offset delta is 1"), expected(1, "its offset delta is 1")]);
}

#[test]
fn an_empty_batch_is_refused_from_a_client_and_read_from_the_log() {
    let said = Some((0, "the head says 0 records for 1 offsets".to_owned()));
    assert_eq!(verdicts(&with_records(0, &[])), [said, None]);
}

#[test]
fn a_delete_horizon_is_refused_from_a_client_and_read_from_the_log() {
    let mut batch = with_records(1, &[0x0c, 0, 5, 0, 1, 1, 0]);
    batch[ATTRIBUTES_AT + 1] = 0x40;
    reseal(&mut batch);
    let said = Some((0, "the head has a delete horizon, which compaction alone sets".to_owned()));
    assert_eq!(verdicts(&batch), [said, None]);
    let read = parse(&batch).expect("a batch");
    assert_eq!(read.header().delete_horizon(), Some(Timestamp(1)));
    // Its record's time counts from the horizon: -3 from 1.
    let record = read.records().expect("not packed").next().expect("one").expect("whole");
    assert_eq!(record.timestamp, Timestamp(-2));
}

#[test]
fn a_packed_batch_without_bytes_is_an_empty_one() {
    for compression in 1..=4 {
        let mut batch = with_records(0, &[]);
        batch[ATTRIBUTES_AT + 1] = compression;
        reseal(&mut batch);
        assert_eq!(parse(&batch).expect("a batch").records().expect("nothing to unpack").count(), 0);
    }
}

#[test]
fn a_check_ends_with_the_first_error_of_whoever_looks() {
    let batch = parse_buf(&sample(Compression::Lz4));
    let mut seen = 0;
    let result = batch.check_records(1 << 20, |view| {
        seen += 1;
        Err::<(), _>(RecordsError::Malformed { index: view.index, detail: "not liked".to_owned() })
    });
    assert_eq!(result.expect_err("the first").to_string(), "record 0: not liked");
    assert_eq!(seen, 1);
}
