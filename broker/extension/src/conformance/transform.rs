//! What every transform must do.

use super::{batch, some_records};
use crate::{AnswerLimits, CallBatch, Transform, Verdict, check_verdicts};

/// Runs the suite of [`Transform`] over records of all sorts, which it must have verdicts for.
///
/// # Panics
/// At the first duty that `transform` breaks.
pub fn transform(transform: &dyn Transform) {
    let records = some_records();
    assert_eq!(verdicts(transform, &batch(&[])), [], "no records, no verdicts");

    let whole = batch(&[&records[..]]);
    let all = verdicts(transform, &whole);
    assert_eq!(verdicts(transform, &whole), all, "equal calls had different answers");

    let (front, back) = records.split_at(records.len() / 3);
    assert_eq!(verdicts(transform, &batch(&[front, back])), all, "verdicts depend on how a batch is cut into sections");
    for (place, record) in records.iter().enumerate() {
        let alone = verdicts(transform, &batch(&[std::slice::from_ref(record)]));
        assert_eq!(alone, all[place..=place], "the verdict on record {place} depends on the records around it");
    }
    let backwards: Vec<_> = records.iter().rev().cloned().collect();
    let mut turned = verdicts(transform, &batch(&[&backwards]));
    turned.reverse();
    assert_eq!(turned, all, "verdicts depend on the order of the records");

    let many: Vec<_> = std::iter::repeat_n(records, 70).flatten().collect();
    let repeated: Vec<_> = std::iter::repeat_n(all, 70).flatten().collect();
    assert_eq!(verdicts(transform, &batch(&[&many])), repeated, "a large batch is judged otherwise");
}

/// The checked answer, one verdict a record.
fn verdicts(transform: &dyn Transform, batch: &CallBatch) -> Vec<Verdict> {
    let count = batch.record_count();
    let answer = transform.transform(batch).unwrap_or_else(|fault| panic!("no answer for {count} records: {fault}"));
    check_verdicts(&answer, count, &AnswerLimits::default()).expect("a well-formed answer");
    answer.into_each(count)
}
