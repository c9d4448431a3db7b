//! Modules that do harm, each with its stated outcome. They are written as text: core modules with the contract's canonical
//! ABI by hand, so that they can break it.
//!
//! Two kinds that such lists name are not here. Parts cannot overlap in layouts whose items follow one another without
//! addresses. And an artifact that was forged with a right checksum is not told from a right one: who may write to the
//! broker's private directory may as well replace the broker.

mod answers;
mod artifacts;
mod memory;
mod time;
mod uploads;
mod writing;

pub(crate) use guest::{Guest, with_schema};

/// Their pattern, which the tests of the whole broker share.
mod guest {
    pub(crate) use levada_fixtures::{Guest, embed, with_schema};
}
