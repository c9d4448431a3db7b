//! The log from outside.

mod batch;
mod storage;
