//! The real program over real sockets: every command as a user runs it, and the server through its whole life, kills
//! included. `LEVADA_SOAK=N` makes the kill loops N times as long.

mod bench;
mod client;
mod compaction;
mod completions;
mod config;
mod consume;
mod consume_group;
mod demo;
mod dlq;
mod exercise;
mod group_support;
mod groups;
mod kill;
mod kill_group;
mod kill_transactions;
mod log;
mod messages;
mod module_proofs;
mod modules;
mod produce;
mod program;
mod serve;
mod shutdown;
mod topics;
mod transactions;
