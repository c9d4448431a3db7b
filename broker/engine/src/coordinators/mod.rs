//! Coordinators that live in their log: one state machine of `levada_coordinator` for each partition of an internal topic,
//! loaded from it, stepped, ticked, and stored step by step. Groups and transactions share it; a [`Kind`] says what is
//! different.
//!
//! Not here: what a machine does, and what its callers ask of it (`groups`, `transactions`).

mod entry;
mod fault;
mod kind;
mod loading;
mod outcome;
mod place;
mod places;
mod progress;
mod slot;
mod ticker;
mod topic;
mod watches;

pub(crate) use entry::Entry;
pub(crate) use fault::CoordinatorFault;
pub(crate) use kind::{Kind, Parts, Stored};
pub(crate) use outcome::{end_of, outcome_of};
pub(crate) use place::Place;
pub(crate) use places::{CoordinatorHandle, Coordinators};
pub(crate) use ticker::start as start_ticker;
pub(crate) use topic::bring_up_to_date;
pub(crate) use watches::Watch;
