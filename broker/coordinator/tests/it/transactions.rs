//! The coordinator of transactions from outside.

mod cases;
mod execute;
mod explore;
mod kit;
mod markers;
mod model;
mod producers;
mod properties;
mod restarts;
mod rules;
