//! Transactions: their coordinators with clock and markers, and what producers and operators ask of them.
//!
//! Not here: the rules of transactions (`levada_coordinator`'s), how a coordinator lives in its log (`coordinators`), what
//! partitions keep of transactions (the log's), and how records of one are stored (`produce`).

mod asking;
mod calls;
mod execute;
mod kind;
mod markers;
mod participants;
mod terms;

pub(crate) use execute::ExecuteIds;
pub(crate) use kind::{TransactionKind, Transactions};
pub(crate) use markers::LocalMarkers;
pub use terms::{
    ExecuteRecord, ExecuteRequest, Executed, ExecutedRecord, OpenTransactions, TransactionError, TransactionOffset,
    TransactionOffsets,
};
