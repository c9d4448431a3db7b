//! What must not be, and where it was.

use std::fmt;

use crate::event::{At, Event};

/// Most events that a violation shows; the first ones say enough.
const SHOWN_EVENTS_MAX: usize = 8;
/// Most characters of each.
const SHOWN_CHARS_MAX: usize = 240;

/// What every history keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// What is read was sent, there, before.
    NothingInvented,
    /// What was acknowledged and committed is found where it was acknowledged, and is there in the end.
    NothingLost,
    /// No record is at two places.
    NothingDoubled,
    /// What was refused is not stored.
    NothingRefused,
    /// What was seen at an offset stays.
    NothingChanges,
    /// Nobody who reads what is committed sees a record of an aborted transaction.
    NoAbortedRead,
    /// Nor one of a transaction whose commit nobody has asked for yet.
    NoUndecidedRead,
    /// A transaction ends one way, in all partitions and groups, for ever.
    AllOrNothing,
    /// What was acknowledged lies before what was sent after that.
    Order,
    /// A group's offset is the newest that was committed.
    GroupOffsets,
    /// Neither the high watermark nor the last stable offset goes back.
    MarksRise,
    /// Readers see nothing beyond their mark, and the last stable offset is not beyond the high watermark.
    Bounds,
    /// A producer whose successor has started changes nothing.
    Fencing,
    /// A transaction that has ended takes nothing.
    EndIsEnd,
    /// In the end nothing is open.
    NothingStuck,
    /// Nobody is answered what nothing accounts for.
    NothingUnexpected,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What, and where.
    pub what: String,
    /// By which events that can be seen.
    pub events: Vec<(At, Event)>,
}

impl Violation {
    pub(crate) fn new(rule: Rule, what: String, events: &[Event], places: impl IntoIterator<Item = At>) -> Self {
        let mut places: Vec<At> = places.into_iter().filter(|at| at.0 < events.len()).collect();
        places.sort_unstable();
        places.dedup();
        places.truncate(SHOWN_EVENTS_MAX);
        Self { rule, what, events: places.into_iter().map(|at| (at, events[at.0].clone())).collect() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)?;
        for (At(place), event) in &self.events {
            let text = format!("{event:?}");
            let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            write!(f, "\n    [{place}] {shown}{}", if shown.len() < text.len() { " …" } else { "" })?;
        }
        Ok(())
    }
}
