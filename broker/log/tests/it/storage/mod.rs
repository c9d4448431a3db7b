//! The file system that the log stands on: one suite for every implementation, and what a simulated power cut leaves.

mod conformance;
mod power_cut;
mod sim_faults;
