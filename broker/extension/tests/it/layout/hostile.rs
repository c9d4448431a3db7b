//! What a module answers to make the broker allocate much (case PC-29): declared sizes and counts cost nothing.

use bytes::Bytes;
use levada_extension::{decode_accumulators, decode_json_verdicts, decode_values, decode_verdicts};
use proptest::prelude::*;

use super::LIMITS;

/// The most bytes that reading `answer` as everything takes at a time.
fn most_allocated(answer: &[u8], expected: usize) -> usize {
    let shared = Bytes::copy_from_slice(answer);
    let measured = allocation_counter::measure(|| {
        drop(decode_verdicts(shared.clone(), expected, &LIMITS()));
        drop(decode_accumulators(shared.clone(), expected, &LIMITS()));
        drop(decode_values(shared.clone(), expected, &LIMITS()));
        if let Ok(text) = std::str::from_utf8(answer) {
            drop(decode_json_verdicts(text, expected, &LIMITS()));
        }
    });
    usize::try_from(measured.bytes_max).expect("a count")
}

#[test]
fn declared_counts_and_lengths_cost_nothing() {
    let answer = |items: &[u8]| [&[1, 0, 0, 0, 1, 0, 0, 0][..], items].concat();
    for (name, answer) in [
        ("four billion verdicts", vec![1, 0, 0, 0, 255, 255, 255, 255]),
        ("four billion records", answer(&[2, 255, 255, 255, 255])),
        ("a value of 4 GiB", answer(&[2, 1, 0, 0, 0, 0xa6, 255, 255, 255, 255])),
        ("a thousand headers", answer(&[2, 1, 0, 0, 0, 0x9a, 0xe8, 3, 0, 0])),
        ("a reason of 2 GiB", answer(&[3, 255, 255, 255, 127])),
        ("an accumulator of 2 GiB", answer(&[255, 255, 255, 127])),
    ] {
        let most = most_allocated(&answer, 1);
        assert!(most < 2_000, "{name}: {most} bytes");
    }
}

/// A million verdicts for one record: the reader stops at the second.
#[test]
fn more_json_verdicts_than_records_are_not_kept() {
    let many = format!("[{}\"pass\"]", "\"pass\",".repeat(1_000_000));
    assert!(decode_json_verdicts(&many, 1, &LIMITS()).is_err());
    assert!(most_allocated(many.as_bytes(), 1) < 2_000);
}

proptest! {
    #[test]
    fn any_answer_costs_no_more_than_it_weighs(bytes in proptest::collection::vec(any::<u8>(), 0..500), head in any::<bool>()) {
        let answer = if head { [&[1, 0, 0, 0, 3, 0, 0, 0][..], &bytes].concat() } else { bytes };
        let most = most_allocated(&answer, 3);
        prop_assert!(most <= 60 * answer.len() + 2_000, "{} bytes for {}", most, answer.len());
    }
}
