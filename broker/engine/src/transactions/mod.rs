//! Transactions: the coordinators of `levada_coordinator` with their log, clock and markers, and what producers and
//! operators ask of them.
//!
//! Not here: the rules of transactions (the coordinator's), what partitions keep of them (the log's), and how records of
//! one are stored (`produce`).

mod calls;
mod stand_in;
mod terms;

pub(crate) use stand_in::Transactions;
pub use terms::{
    ExecuteRecord, ExecuteRequest, Executed, ExecutedRecord, TransactionError, TransactionOffset, TransactionOffsets,
};
