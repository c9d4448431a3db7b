//! The native implementations of each extension point, the checks of an answer, the layouts and the conformance suites.

mod aggregator;
mod assignor;
mod call;
mod conformance;
mod layout;
mod module;
mod partitioner;
mod transform;
