//! Consumer groups over HTTP.

mod commits;
mod crowd;
mod dead_letters;
mod exercise;
mod instances;
pub(crate) mod member;
mod polls;
mod power_cut;
mod rebalance;
mod retention;
pub(crate) mod timed;
mod topics;
