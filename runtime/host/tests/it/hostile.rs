//! Modules that do harm, each with its stated outcome. They are written as text: core modules with the contract's canonical
//! ABI by hand, so that they can break it.

mod answers;
mod artifacts;
mod memory;
mod time;
mod uploads;
mod writing;

pub(crate) use guest::Guest;

/// Their pattern, which the tests of the whole broker share.
mod guest {
    pub(crate) use levada_fixtures::{Guest, embed};
}
