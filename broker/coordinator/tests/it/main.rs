//! The coordinator from outside: cases that others got wrong, and its rules one by one.

mod assignors;
mod cases;
mod classic;
mod explore;
mod groups;
mod kit;
mod log;
mod model;
mod offsets;
mod pending;
mod printed;
mod properties;
mod rebalances;
mod restarts;
mod static_members;
mod transactions;
