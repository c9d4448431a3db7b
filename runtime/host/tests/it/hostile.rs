//! Modules that do harm, each with its stated outcome. They are written as text: core modules with the contract's canonical
//! ABI by hand, so that they can break it.

mod answers;
mod artifacts;
mod guest;
mod memory;
mod time;
mod uploads;
mod writing;

pub(crate) use guest::Guest;
