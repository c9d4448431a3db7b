//! How a transaction ends, in the words of coordinators and of the log.

use levada_coordinator::Outcome;
use levada_log::TransactionEnd;

/// The log's word.
pub(crate) fn end_of(outcome: Outcome) -> TransactionEnd {
    match outcome {
        Outcome::Commit => TransactionEnd::Commit,
        Outcome::Abort => TransactionEnd::Abort,
    }
}

/// The coordinators' word.
pub(crate) fn outcome_of(end: TransactionEnd) -> Outcome {
    match end {
        TransactionEnd::Commit => Outcome::Commit,
        TransactionEnd::Abort => Outcome::Abort,
    }
}
