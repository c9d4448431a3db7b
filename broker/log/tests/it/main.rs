//! The log from outside: one program, a folder for each kind of behaviour.

mod batch;
mod compaction;
mod partition;
mod recovery;
mod storage;
mod transactions;
