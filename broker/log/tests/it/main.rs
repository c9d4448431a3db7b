//! The log from outside.

mod batch;
