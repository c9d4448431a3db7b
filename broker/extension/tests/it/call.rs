//! The records of a call: that they come out as they went in, and in parts as a whole.

use bytes::Bytes;
use levada_extension::{CallBatch, CallSection, Moment};
use levada_model::{Header, PartitionIndex, Record, Timestamp, TopicName};
use proptest::collection::vec;
use proptest::prelude::*;

fn part() -> impl Strategy<Value = Option<Bytes>> {
    proptest::option::of(vec(any::<u8>(), 0..40).prop_map(Bytes::from))
}

fn some_records() -> impl Strategy<Value = Vec<(Timestamp, Record)>> {
    let header = ("[a-zü]{0,3}", part()).prop_map(|(name, value)| Header { name, value });
    let record = (any::<i64>(), part(), part(), vec(header, 0..3));
    let record = record.prop_map(|(time, key, value, headers)| (Timestamp(time), Record { key, value, headers }));
    vec(record, 0..6)
}

fn batch(sections: &[Vec<(Timestamp, Record)>]) -> CallBatch {
    let topic = TopicName::new("t").expect("a name");
    let section = |records: &Vec<_>| CallSection::unstored(topic.clone(), PartitionIndex(1), records);
    let moment = Moment { time: Timestamp(0), seed: 0 };
    CallBatch { moment, sections: sections.iter().map(section).collect() }
}

fn read(batch: &CallBatch) -> Vec<(Timestamp, Record)> {
    let read = batch.records().map(|record| {
        let record = record.expect("well-formed");
        (record.timestamp, record.to_record().expect("well-formed"))
    });
    read.collect()
}

proptest! {
    #[test]
    fn records_come_out_as_they_went_in(sections in vec(some_records(), 0..4)) {
        let batch = batch(&sections);
        prop_assert_eq!(batch.record_count(), sections.iter().map(Vec::len).sum::<usize>());
        prop_assert_eq!(read(&batch), sections.concat());
    }

    #[test]
    fn two_parts_are_the_whole_and_keep_offsets(sections in vec(some_records(), 0..4), at in any::<prop::sample::Index>()) {
        let sections: Vec<_> = sections.into_iter().filter(|records| !records.is_empty()).collect();
        let batch = batch(&sections);
        let place = at.index(batch.record_count() + 2);
        let (before, behind) = batch.split_at(place).expect("well-formed");
        prop_assert!(before.sections.iter().chain(&behind.sections).all(|section| section.record_count > 0));
        prop_assert_eq!(before.record_count(), place.min(batch.record_count()));
        prop_assert_eq!([read(&before), read(&behind)].concat(), sections.concat());
        let offsets = |batch: &CallBatch| batch.records().map(|r| r.expect("well-formed").offset).collect::<Vec<_>>();
        prop_assert_eq!([offsets(&before), offsets(&behind)].concat(), offsets(&batch));
    }
}

#[test]
fn a_call_that_is_not_what_the_log_stores_is_told() {
    let whole = batch(&[vec![(Timestamp(1), Record::default()); 3]]);
    let changed = |change: &dyn Fn(&mut CallSection)| {
        let mut batch = whole.clone();
        change(&mut batch.sections[0]);
        batch.records().collect::<Result<Vec<_>, _>>().expect_err("malformed").to_string()
    };
    assert_eq!(changed(&|section| section.record_count = 4), "record 3 of the call: it is malformed");
    assert_eq!(changed(&|section| section.record_count = 2), "record 2 of the call: bytes lie before it");
    let cut = |section: &mut CallSection| section.records.truncate(section.records.len() - 1);
    assert_eq!(changed(&cut), "record 2 of the call: it is malformed");
    let mut header = whole.clone();
    let mut bytes = header.sections[0].records.to_vec();
    *bytes.last_mut().expect("a header count") = 2;
    header.sections[0].records = bytes.into();
    let last = header.records().last().expect("three").expect("the walk steps over headers");
    assert_eq!(last.to_record().expect_err("malformed").to_string(), "record 2 of the call: its headers are malformed");
}
