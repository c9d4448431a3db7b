//! What every implementation of a trait of this crate must do, as suites that its tests call.

mod aggregator;
mod assignor;
mod partitioner;
mod transform;

use bytes::Bytes;
use levada_model::{Header, PartitionIndex, Record, Timestamp, TopicName};

pub use aggregator::aggregator;
pub use assignor::assignor;
pub use partitioner::partitioner;
pub use transform::transform;

use crate::{CallBatch, CallSection, Moment};

const MOMENT: Moment = Moment { time: Timestamp(1_700_000_000_000), seed: 42 };

/// Records of all sorts: JSON with a number `n` and other things, plain words, any bytes, null and empty parts, headers.
fn some_records() -> Vec<(Timestamp, Record)> {
    let json = |n: i64| format!("{{\"n\":{n},\"s\":\"text-{n}\",\"list\":[{n},{{\"n\":null}}]}}");
    let text = |key: &str, value: String| Record {
        key: Some(key.to_owned().into()),
        value: Some(value.into()),
        headers: vec![],
    };
    let mut records: Vec<Record> =
        (-3_i64..4).map(|n| text(&format!("key-{}", n.rem_euclid(3)), json(n * 7))).collect();
    let headers = [("a", Some(Bytes::from_static(b"1"))), ("a", None), ("\u{fc}", Some(Bytes::from_static(b"\xff\0")))];
    let headers = headers.map(|(name, value)| Header { name: name.to_owned(), value }).to_vec();
    records.extend([
        Record { key: None, value: Some(json(12).into()), headers },
        Record { key: Some(Bytes::new()), value: None, headers: vec![] },
        Record { key: None, value: Some(Bytes::new()), headers: vec![] },
        Record {
            key: Some(Bytes::from_static(b"\xff\0")),
            value: Some(Bytes::from_static(b"\xff\xfe")),
            headers: vec![],
        },
        text("key-1", "plain words".to_owned()),
        text("key-2", "{\"n\":\"no number\"}".to_owned()),
        text("key-0", format!("{}1{}", "[".repeat(100), "]".repeat(100))),
        text("key-0", json(5)),
    ]);
    records.into_iter().zip(0..).map(|(record, i)| (Timestamp(MOMENT.time.0 - 50 + 10 * i), record)).collect()
}

fn batch(sections: &[&[(Timestamp, Record)]]) -> CallBatch {
    let topic = TopicName::new("conformance").expect("within the rule");
    let section = |(i, records): (usize, &&[(Timestamp, Record)])| {
        let partition = PartitionIndex(u32::try_from(i).expect("a few"));
        CallSection::unstored(topic.clone(), partition, records)
    };
    CallBatch { moment: MOMENT, sections: sections.iter().enumerate().map(section).collect() }
}
