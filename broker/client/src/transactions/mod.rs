//! Transactions: the calls one by one, a [`TransactionalProducer`] that keeps epochs and sequences, and whole ones in one
//! request.

mod calls;
mod execute;
mod producer;

pub use execute::{Execute, ExecuteRecord, Executed};
pub use producer::{Transaction, TransactionalProducer};
