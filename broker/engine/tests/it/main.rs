//! The engine from outside, over the simulated disk and the real one.

mod batches;
mod compaction;
mod damage;
mod fence;
mod gate;
mod group_commit;
mod groups;
mod history;
mod modules;
mod once;
mod power_cut;
mod processors;
mod produce_and_fetch;
mod readers;
mod settings;
mod settle;
mod support;
mod topics;
mod transactions;
