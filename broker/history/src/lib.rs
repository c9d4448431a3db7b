//! Transactions put to the proof: a load of random transactions, the history of what it asked and saw, and a judge that
//! says what of it must not be. Only tests depend on it.
//!
//! Not here: what is under load (a [`Broker`] is whatever a test makes one: an engine, a server over HTTP), its crashes
//! and restarts, and any runtime.

mod account;
mod broker;
mod check;
mod dice;
mod event;
mod history;
mod violation;
mod workload;

pub use broker::{Broker, Found, Refusal};
pub use check::check;
pub use dice::Dice;
pub use event::{At, Event, Life, Look, Marks, Partition, Read, TransactionNumber, Value, View};
pub use history::History;
pub use levada_coordinator::Outcome;
pub use violation::{Rule, Violation};
pub use workload::{Setting, Workload};
