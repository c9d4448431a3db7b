//! The host with real modules: what the broker's suites ask of every extension, what goes wrong in every way, and what a
//! module costs and says.

mod compiler;
mod conformance;
mod hostile;
mod script;
mod support;
mod volume;
