//! The aggregators that are built in: their suite, and numbers to the digit.

use bytes::Bytes;
use levada_extension::{
    Aggregator, CallBatch, CallSection, Group, Groups, ModuleFault, Moment, NativeAggregator, conformance,
};
use levada_model::{PartitionIndex, Record, Timestamp, TopicName};
use proptest::prelude::*;

const MOMENT: Moment = Moment { time: Timestamp(0), seed: 0 };

fn at(pointer: &str) -> [NativeAggregator; 4] {
    let pointer = || pointer.parse().expect("a pointer");
    [
        NativeAggregator::Sum(pointer()),
        NativeAggregator::Min(pointer()),
        NativeAggregator::Max(pointer()),
        NativeAggregator::Avg(pointer()),
    ]
}

fn batch(values: &[&str]) -> CallBatch {
    let record = |value: &&str| (Timestamp(0), Record { value: Some((*value).to_owned().into()), ..Record::default() });
    let records: Vec<_> = values.iter().map(record).collect();
    let topic = TopicName::new("t").expect("a name");
    CallBatch { moment: MOMENT, sections: vec![CallSection::unstored(topic, PartitionIndex(0), &records)] }
}

fn group(accumulators: Vec<Bytes>, records: Vec<u32>) -> Groups {
    Groups { moment: MOMENT, groups: vec![Group { key: "k".to_owned(), window: None, accumulators, records }] }
}

fn fold(aggregator: &dyn Aggregator, values: &[&str]) -> Bytes {
    let places = (0..).take(values.len()).collect();
    aggregator.fold(&group(vec![], places), &batch(values), false).expect("an answer").remove(0)
}

fn worth(aggregator: &dyn Aggregator, accumulator: Bytes) -> String {
    let value = aggregator.result(&group(vec![accumulator], vec![])).expect("an answer").remove(0).expect("a row");
    String::from_utf8(value.to_vec()).expect("JSON")
}

fn worths(values: &[&str]) -> [String; 4] {
    at("").map(|native| {
        let aggregator = native.build();
        worth(&*aggregator, fold(&*aggregator, values))
    })
}

#[test]
fn the_native_aggregators_keep_their_duties() {
    conformance::aggregator(&*NativeAggregator::Count.build());
    for pointer in ["/n", "/list/0", "/nothing", ""] {
        at(pointer).into_iter().for_each(|native| conformance::aggregator(&*native.build()));
    }
}

#[test]
fn sums_of_integers_stay_integers_of_any_length() {
    let long = ["9007199254740993", "9223372036854775807", "18446744073709551615", "-1"];
    assert_eq!(worths(&long)[..3], ["27679123309819068414", "-1", "18446744073709551615"]);
}

#[test]
fn numbers_are_as_they_were_produced() {
    assert_eq!(worths(&["1.50", "2e0", "7"]), ["10.5", "1.50", "7", "3.5"]);
    assert_eq!(worths(&["-0.0", "0"]), ["0.0", "-0.0", "-0.0", "0.0"]);
    assert_eq!(worths(&["1e400", "3"]), ["3", "3", "1e400", "3.0"], "what no double holds is compared, not added");
    assert_eq!(worths(&["1e308", "1e308"])[0], "null", "beyond the doubles");
}

#[test]
fn what_is_no_number_changes_nothing() {
    assert_eq!(worths(&["\"5\"", "null", "words", "[1]", "true"]), ["0", "null", "null", "null"]);
}

#[test]
fn a_sum_is_an_integer_again_when_its_last_double_is_taken_out() {
    let [sum, min, ..] = at("").map(NativeAggregator::build);
    let values = ["3", "0.1", "0.2"];
    let subtract = |aggregator: &dyn Aggregator| {
        aggregator.subtract(&group(vec![fold(aggregator, &values)], vec![1, 2]), &batch(&values))
    };
    let rest = subtract(&*sum).expect("an answer").remove(0);
    assert_eq!(worth(&*sum, rest.clone()), "3");
    assert_eq!(rest, fold(&*sum, &["3"]), "rounding leaves nothing behind");
    assert_eq!(subtract(&*min), Err(ModuleFault::Unsupported));
}

#[test]
fn count_counts_tombstones_too() {
    let count = NativeAggregator::Count.build();
    let mut batch = batch(&["1"]);
    let topic = TopicName::new("t").expect("a name");
    let tombstone = [(Timestamp(0), Record::default())];
    batch.sections.push(CallSection::unstored(topic, PartitionIndex(0), &tombstone));
    let folded = count.fold(&group(vec![], vec![0, 1]), &batch, true).expect("an answer");
    assert_eq!(folded.into_iter().map(|each| worth(&*count, each)).collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn accumulators_and_places_that_are_not_ours_are_refused() {
    for native in at("").into_iter().chain([NativeAggregator::Count]) {
        let aggregator = native.build();
        for bytes in [&b"x"[..], b"\0\0\0", b"\"text\"", b"1 2"] {
            let accumulator = vec![Bytes::from_static(bytes)];
            assert!(aggregator.result(&group(accumulator, vec![])).is_err(), "{bytes:?}");
        }
        assert!(aggregator.result(&group(vec![], vec![])).is_err(), "no accumulator has no value");
        assert!(aggregator.fold(&group(vec![], vec![1]), &batch(&["1"]), false).is_err(), "a record that is not there");
        assert_eq!(aggregator.migrate(0, &group(vec![], vec![])), Err(ModuleFault::Unsupported));
    }
}

proptest! {
    #[test]
    fn sums_agree_with_the_naive_ones(integers in proptest::collection::vec(any::<i64>(), 0..30)) {
        let texts: Vec<String> = integers.iter().map(i64::to_string).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let [sum, min, max, _] = worths(&texts);
        let or_null = |extreme: Option<&i64>| extreme.map_or("null".to_owned(), i64::to_string);
        prop_assert_eq!(sum, integers.iter().copied().map(i128::from).sum::<i128>().to_string());
        prop_assert_eq!(min, or_null(integers.iter().min()));
        prop_assert_eq!(max, or_null(integers.iter().max()));
    }
}
