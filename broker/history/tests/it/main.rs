//! The judge, by histories made by hand: each rule has one that keeps it and one that breaks it.

mod groups;
mod memory;
mod records;
mod tale;
mod workload;
