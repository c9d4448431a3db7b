//! What readers found at each offset: the same for all of them, once, and nothing that was not sent.

use std::collections::{BTreeMap, HashMap};

use levada_model::Offset;

use crate::account::Account;
use crate::event::{At, Partition, Read, Value, View};
use crate::violation::{Rule, Violation};

/// What readers of one view found at one offset.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// The record; none: they were told that there is none to see.
    pub(super) value: Option<Value>,
    /// The first who found it.
    pub(super) first: At,
    /// When the last who looked had asked.
    pub(super) last_asked: At,
}

/// Where a record was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) partition: Partition,
    pub(super) offset: Offset,
    /// By the first reader of each view.
    pub(super) committed: Option<At>,
    pub(super) uncommitted: Option<At>,
}

type Places = HashMap<(View, Partition), Vec<Option<Found>>>;

/// The partitions as readers found them.
pub(super) struct Contents {
    places: Places,
    sightings: BTreeMap<Value, Vec<Sighting>>,
    changes: Vec<(Partition, Offset, Found, At, Option<Value>)>,
}

impl Contents {
    pub(super) fn of(account: &Account<'_>) -> Self {
        let mut contents = Self { places: HashMap::new(), sightings: BTreeMap::new(), changes: Vec::new() };
        for (at, read) in &account.reads {
            contents.take(*at, read);
        }
        contents
    }

    fn take(&mut self, at: At, read: &Read) {
        let key = (read.view, read.partition.clone());
        let places = self.places.entry(key).or_default();
        let end = usize::try_from(read.next.0).expect("few");
        if places.len() < end {
            places.resize(end, None);
        }
        let mut records = read.records.iter().copied().peekable();
        for offset in read.from.0..read.next.0 {
            while records.peek().is_some_and(|(place, _)| place.0 < offset) {
                records.next();
            }
            let value = records.next_if(|(place, _)| place.0 == offset).map(|(_, value)| value);
            let place = &mut places[usize::try_from(offset).expect("few")];
            match place {
                None => *place = Some(Found { value, first: at, last_asked: read.asked }),
                Some(known) => {
                    if known.value != value {
                        self.changes.push((read.partition.clone(), Offset(offset), *known, at, value));
                    }
                    known.last_asked = known.last_asked.max(read.asked);
                }
            }
        }
        for (offset, value) in &read.records {
            self.sight(*value, read, *offset, at);
        }
    }

    fn sight(&mut self, value: Value, read: &Read, offset: Offset, at: At) {
        let sightings = self.sightings.entry(value).or_default();
        let is_there = |sighting: &&mut Sighting| (&sighting.partition, sighting.offset) == (&read.partition, offset);
        let sighting = match sightings.iter_mut().find(is_there) {
            Some(known) => known,
            None => {
                let partition = read.partition.clone();
                sightings.push(Sighting { partition, offset, committed: None, uncommitted: None });
                sightings.last_mut().expect("just pushed")
            }
        };
        match read.view {
            View::Committed => sighting.committed.get_or_insert(at),
            View::Uncommitted => sighting.uncommitted.get_or_insert(at),
        };
    }

    /// What readers of a view found there, if any came by.
    pub(super) fn found(&self, view: View, partition: &Partition, offset: Offset) -> Option<Found> {
        let places = self.places.get(&(view, partition.clone()))?;
        *places.get(usize::try_from(offset.0).ok()?)?
    }

    /// Where a record was seen.
    pub(super) fn sightings(&self, value: Value) -> &[Sighting] {
        self.sightings.get(&value).map_or(&[], Vec::as_slice)
    }

    /// Who saw a record first, and where, in a view or in any.
    pub(super) fn first_sight(&self, value: Value, view: Option<View>) -> Option<(At, &Sighting)> {
        let at = |sighting: &Sighting| match view {
            Some(View::Committed) => sighting.committed,
            Some(View::Uncommitted) => sighting.uncommitted,
            None => [sighting.committed, sighting.uncommitted].into_iter().flatten().min(),
        };
        self.sightings(value).iter().filter_map(|sighting| Some((at(sighting)?, sighting))).min_by_key(|(at, _)| *at)
    }

    pub(super) fn check(&self, account: &Account<'_>) -> Vec<Violation> {
        let mut violations: Vec<Violation> =
            self.changes.iter().map(|change| changed(account, change)).chain(self.disagreements(account)).collect();
        for (value, sightings) in &self.sightings {
            violations.extend(is_sound(account, *value, sightings));
        }
        violations
    }

    /// Offsets at which the views show two records: what is hidden from one may differ, what is shown may not.
    fn disagreements<'a>(&'a self, account: &'a Account<'_>) -> impl Iterator<Item = Violation> + 'a {
        let committed = self.places.iter().filter(|((view, _), _)| *view == View::Committed);
        let shown = committed.flat_map(|((_, partition), places)| {
            let found = (0..).map(Offset).zip(places).filter_map(|(offset, found)| Some((offset, (*found)?)));
            found.filter(|(_, found)| found.value.is_some()).map(move |(offset, found)| (partition, offset, found))
        });
        shown.filter_map(|(partition, offset, found)| {
            let other = self.found(View::Uncommitted, partition, offset)?;
            let differs = other.value != found.value;
            differs.then(|| changed(account, &(partition.clone(), offset, found, other.first, other.value)))
        })
    }
}

fn changed(account: &Account<'_>, change: &(Partition, Offset, Found, At, Option<Value>)) -> Violation {
    let (partition, offset, known, at, value) = change;
    let shown = |value: &Option<Value>| value.map_or("nothing to see".to_owned(), |value| value.to_string());
    let what = format!("{partition} at {offset} was {}, and then {}", shown(&known.value), shown(value));
    Violation::new(Rule::NothingChanges, what, account.events, [known.first, *at])
}

/// Whether a record that was seen was sent there before, and is at one place.
fn is_sound(account: &Account<'_>, value: Value, sightings: &[Sighting]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let sight = |sighting: &Sighting| {
        [sighting.committed, sighting.uncommitted].into_iter().flatten().min().expect("it was seen")
    };
    let mut broken = |rule, what, places: Vec<At>| {
        violations.push(Violation::new(rule, what, account.events, places));
    };
    let seen: Vec<At> = sightings.iter().map(sight).collect();
    let Some(sent) = account.sends.get(&value) else {
        broken(Rule::NothingInvented, format!("{value} was never sent"), seen);
        return violations;
    };
    for sighting in sightings {
        let at = sight(sighting);
        if sighting.partition != sent.partition || at < sent.asked {
            let what = format!("{value} in {}, sent to {} at {}", sighting.partition, sent.partition, sent.asked.0);
            broken(Rule::NothingInvented, what, vec![sent.asked, at]);
        }
    }
    let acknowledged = sent.acknowledged.map(|(at, offset)| (at, &sent.partition, offset));
    let is_tried_anew = account.is_tried_anew(value.transaction);
    let places = sightings
        .iter()
        .filter(|sighting| sighting.committed.is_some() || !is_tried_anew)
        .map(|sighting| (sight(sighting), &sighting.partition, sighting.offset));
    let mut all = acknowledged.into_iter().chain(places);
    let first = all.next();
    if let Some((known, other)) = first.and_then(|first| Some((first, all.find(|place| place.2 != first.2)?))) {
        let what = format!("{value} in {} is at {} and at {}", sent.partition, known.2, other.2);
        broken(Rule::NothingDoubled, what, vec![sent.asked, known.0, other.0]);
    }
    if let Some(refused) = sent.refused {
        let what = format!("{value} was refused and is in {}", sent.partition);
        broken(Rule::NothingRefused, what, [&[sent.asked, refused], &seen[..]].concat());
    }
    violations
}
