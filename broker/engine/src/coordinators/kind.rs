//! What one kind of coordinators has of its own: its machine, its topic, and what follows from a step.

use std::hash::Hash;

use levada_coordinator::{Now, Producer};
use levada_log::Marker;
use levada_model::{Tick, TopicName};

use super::entry::Entry;
use super::place::Place;
use crate::catalog::Catalog;
use crate::partition::Partition;

/// A kind of coordinators. Nothing of it may keep an engine alive: its tasks would.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// The state machine of one partition.
    type Machine: Send + 'static;
    /// What a step of the machine gives.
    type Step<T>;
    /// Of what somebody may await news.
    type Watched: Clone + Eq + Hash + Send + Sync + 'static;
    /// What is to be done besides storing and waking.
    type Effects;

    /// What it coordinates, in words.
    const WHAT: &'static str;
    /// Partitions of its topic; they are never changed.
    const PARTITIONS: u32;
    /// Whether a change of topics is a reason to tick.
    const FOLLOWS_TOPICS: bool;

    /// The topic that holds what it knows.
    fn topic() -> TopicName;

    /// A machine that knows nothing yet.
    fn machine(&self, partition: &Partition) -> Self::Machine;

    /// Takes in what the log holds, in order; what cannot be read changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn replay(machine: &mut Self::Machine, stored: Stored<'_>) -> Result<(), String>;

    /// Ends the replay.
    fn loaded(machine: &mut Self::Machine, now: Now) -> Self::Step<()>;

    /// When it has something to do next.
    fn next_due(machine: &Self::Machine) -> Option<Tick>;

    /// Does what is due.
    fn tick(machine: &mut Self::Machine, now: Now, topics: &Catalog) -> Self::Step<()>;

    /// Takes a step apart.
    fn parts<T>(step: Self::Step<T>) -> Parts<T, Self>;

    /// Does what follows from a step that the owner was handed. The place is locked: nothing here may take long.
    fn follow(place: &Place<'_, Self>, effects: Self::Effects);
}

/// A step of a machine, taken apart.
pub(crate) struct Parts<T, K: Kind> {
    /// What to answer once it is durable.
    pub(crate) answer: T,
    /// What holds all that it did; none if it changed nothing.
    pub(crate) entry: Option<Entry>,
    /// Of what there is news.
    pub(crate) news: Vec<K::Watched>,
    /// What else is to be done.
    pub(crate) effects: K::Effects,
}

/// What a machine is given of its log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored<'a> {
    /// A record.
    Record {
        /// Whose transaction it is part of: producer id and epoch.
        transaction: Option<Producer>,
        /// Its key; empty if it has none.
        key: &'a [u8],
        /// Its value.
        value: Option<&'a [u8]>,
    },
    /// The end of a transaction.
    Marker {
        /// The transaction's producer id with the epoch of the marker.
        producer: Producer,
        /// How it ended.
        marker: Marker,
    },
}
