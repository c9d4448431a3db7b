//! Asking a transform for verdicts on any number of records: in calls that are not too large.

use levada_extension::{AnswerLimits, CallBatch, MalformedRecord, ModuleFault, Transform, Verdict, check_verdicts};
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

/// Verdicts on the first records of a batch.
pub(crate) struct Front {
    pub(crate) verdicts: Vec<Verdict>,
    /// Why there is none on the next record; nothing where there are all.
    pub(crate) fault: Option<ModuleFault>,
}

/// As [`judge`]; where that fails, in ever smaller parts, up to the record over which it fails or the moment at which there
/// is no room for a further call.
///
/// # Errors
/// When a record is malformed.
pub(crate) fn judge_front(transform: &dyn Transform, batch: &CallBatch) -> Result<Front, MalformedRecord> {
    let mut verdicts = Vec::new();
    let mut parts = vec![batch.clone()];
    while let Some(part) = parts.pop() {
        let count = part.record_count();
        match judge(transform, &part) {
            Ok(more) => verdicts.extend(more),
            Err(fault) if count <= 1 || matches!(fault, ModuleFault::Busy(_)) => {
                return Ok(Front { verdicts, fault: Some(fault) });
            }
            Err(_) => {
                let (front, back) = part.split_at(count / 2)?;
                parts.extend([back, front]);
            }
        }
    }
    Ok(Front { verdicts, fault: None })
}
