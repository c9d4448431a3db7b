//! Transactions: the coordinator of one partition of `__transaction_state`, as a state machine beside that of groups.
//!
//! Kafka's second protocol (KIP-98, KIP-890): each transaction has an epoch of its own, so producer id and epoch name one
//! transaction for ever.

mod coordinator;
mod entry;
mod handle;
mod kept;
mod record;
mod terms;

pub use coordinator::TransactionCoordinator;
pub use handle::{HandleError, TransactionHandle};
pub use terms::{
    AddError, BeginError, BodyDigest, EndError, ExecuteError, Executing, InitError, Outcome, Participants, Producer,
    Progress, TransactionCounts, TransactionError, TransactionOptions, TransactionState, TransactionStep,
    TransactionView, WriteMarkers,
};
