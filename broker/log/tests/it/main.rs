//! The log from outside: one program, a folder for each kind of behaviour.

mod batch;
mod partition;
mod recovery;
mod storage;
