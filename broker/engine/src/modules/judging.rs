//! Asking a transform for verdicts on any number of records: in calls that are not too large.

use levada_extension::{AnswerLimits, CallBatch, ModuleFault, Transform, Verdict, check_verdicts};
use levada_model::limits::{MODULE_CALL_BYTES_MAX, MODULE_CALL_RECORDS_MAX};

/// A verdict for each record. What is too large for one call is asked in halves.
///
/// # Errors
/// When a call has no usable answer.
pub(crate) fn judge(transform: &dyn Transform, batch: &CallBatch) -> Result<Vec<Verdict>, ModuleFault> {
    let count = batch.record_count();
    let bytes: usize = batch.sections.iter().map(|section| section.records.len()).sum();
    // Half, since what crosses is a little more than what is stored.
    let is_large = count > MODULE_CALL_RECORDS_MAX || bytes > MODULE_CALL_BYTES_MAX / 2;
    if is_large && count > 1 {
        return judge_halves(transform, batch);
    }
    match transform.transform(batch) {
        Err(ModuleFault::TooLarge { .. }) if count > 1 => judge_halves(transform, batch),
        answer => {
            let verdicts = answer?;
            check_verdicts(&verdicts, count, &AnswerLimits::default())?;
            Ok(verdicts.into_each(count))
        }
    }
}

fn judge_halves(transform: &dyn Transform, batch: &CallBatch) -> Result<Vec<Verdict>, ModuleFault> {
    let (front, back) = batch.split_at(batch.record_count() / 2)?;
    let mut verdicts = judge(transform, &front)?;
    verdicts.extend(judge(transform, &back)?);
    Ok(verdicts)
}
