//! Stand-ins that tests of several crates use: a host of modules whose modules are JSON documents. Never part of a release.

mod host;

pub use host::{Host, HostHandle, module};
