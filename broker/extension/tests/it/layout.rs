//! The layouts, from the broker's side: the vectors of the contract, hostile answers, and the JSON form.

mod corpus;
mod hostile;
mod json_form;
mod vectors;

use levada_extension::{AnswerLimits, CallBatch, CallSection, Moment};
use levada_model::{PartitionIndex, Record, Timestamp, TopicName};

const LIMITS: fn() -> AnswerLimits = AnswerLimits::default;

fn batch_of(records: &[(Timestamp, Record)]) -> CallBatch {
    let topic = TopicName::new("orders").expect("a name");
    let sections = vec![CallSection::unstored(topic, PartitionIndex(3), records)];
    CallBatch { moment: Moment { time: Timestamp(7), seed: 9 }, sections }
}
