//! What one kind of coordinators has of its own: its machine, its topic, and what follows from a step.

use std::hash::Hash;

use levada_coordinator::{CoordinatorRecord, Now, Producer};
use levada_log::Marker;
use levada_model::{Offset, Tick, TopicName};

use super::slot::Place;
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

/// What one step has stored, as one batch: all of it holds or none does.
///
/// The machine has judged it, and knows of each producer what the log does: it has read the same batches, and remembers them
/// for at least as long. If the log refuses one all the same, or has it already, whoever asked is told so, the machine is
/// forgotten, and the next one has read what the log went by. So nothing is refused for ever as long as nobody has the
/// machine take by itself, at each load, what the log refuses.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Records that hold at once.
    Records(Vec<CoordinatorRecord>),
    /// Records that hold once their transaction is committed; the log gives them their sequence.
    Transactional {
        /// The transaction's producer id and epoch.
        producer: Producer,
        /// At least one.
        records: Vec<CoordinatorRecord>,
    },
    /// The end of a transaction here.
    Marker {
        /// The transaction's producer id with the epoch of the marker.
        producer: Producer,
        /// How it ended, and who says so.
        marker: Marker,
    },
}

/// What a machine is given of its log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored<'a> {
    /// A record.
    Record {
        /// Where it lies.
        offset: Offset,
        /// Whose transaction it is part of: producer id and epoch.
        transaction: Option<Producer>,
        /// Its key; empty if it has none.
        key: &'a [u8],
        /// Its value.
        value: Option<&'a [u8]>,
    },
    /// The end of a transaction.
    Marker {
        /// Where it lies.
        offset: Offset,
        /// The transaction's producer id with the epoch of the marker.
        producer: Producer,
        /// How it ended.
        marker: Marker,
    },
}
