//! The native implementations of each extension point, the checks of an answer, and the conformance suites.

mod assignor;
mod partitioner;
