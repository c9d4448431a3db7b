//! The server over real sockets: one binary, folders and files by behaviour.
//!
//! Answers of the interface go through [`harness::Harness`], which holds them against `openapi/v1.json`.

mod bodies;
mod compaction;
mod connections;
mod contract;
mod cors;
mod disk;
mod groups;
mod harness;
mod heads;
mod hosts;
mod life;
mod modules;
mod processors;
mod produce;
mod raw;
mod read;
mod scenarios;
mod transactions;
mod ws;
