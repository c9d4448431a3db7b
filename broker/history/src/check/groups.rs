//! Committed offsets of groups: the newest that counts, and never an older one again.
//!
//! An offset of a transaction counts from when it was added to it, once the transaction is committed: of two it is the one
//! that was added later that stands, whichever was committed first.

use std::collections::BTreeMap;

use levada_model::GroupName;

use super::outcomes::Outcomes;
use crate::account::{Account, Add};
use crate::event::{At, Look, Partition};
use crate::violation::{Rule, Violation};

/// One group's offset of one partition.
struct Register<'a> {
    account: &'a Account<'a>,
    outcomes: &'a Outcomes,
    adds: Vec<&'a Add>,
    looks: Vec<(At, &'a Look)>,
}

pub(super) fn check(account: &Account<'_>, outcomes: &Outcomes) -> Vec<Violation> {
    let mut registers: BTreeMap<(&GroupName, &Partition), Register<'_>> = BTreeMap::new();
    let new = || Register { account, outcomes, adds: Vec::new(), looks: Vec::new() };
    for add in &account.adds {
        registers.entry((&add.group, &add.partition)).or_insert_with(new).adds.push(add);
    }
    for (at, look) in &account.looks {
        registers.entry((&look.group, &look.partition)).or_insert_with(new).looks.push((*at, look));
    }
    registers.values().flat_map(Register::check).collect()
}

impl Register<'_> {
    fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        // The one that was added last among those that certainly stood before a look.
        let mut committed: Vec<(At, &Add)> =
            self.adds.iter().filter_map(|add| Some((self.stands(add)?, *add))).collect();
        committed.sort_by_key(|(at, _)| *at);
        let (mut committed, mut newest) = (committed.into_iter().peekable(), None::<(At, &Add)>);
        let mut asking: Vec<&(At, &Look)> = self.looks.iter().collect();
        asking.sort_by_key(|(_, look)| look.asked);
        let (mut answered, mut seen) = (self.looks.iter().peekable(), None::<(At, &Add)>);
        for (at, look) in asking {
            while let Some((stood, add)) = committed.next_if(|(stood, _)| *stood < look.asked) {
                if newest.is_none_or(|(_, known)| known.asked < add.asked) {
                    newest = Some((stood, add));
                }
            }
            while let Some((before, earlier)) = answered.next_if(|(before, _)| *before < look.asked) {
                let add = self.add_of(earlier).filter(|add| seen.is_none_or(|(_, known)| known.asked < add.asked));
                seen = add.map(|add| (*before, add)).or(seen);
            }
            for (since, known) in [newest, seen].into_iter().flatten() {
                violations.extend(self.is_older(*at, look, since, known));
            }
            if look.offset.is_some() && self.add_of(look).is_none() {
                violations.push(self.broken(Rule::NothingInvented, look, "nobody committed it", [*at]));
            }
        }
        violations
    }

    /// From when on an offset stands, if it does.
    fn stands(&self, add: &Add) -> Option<At> {
        add.acknowledged?;
        if !self.outcomes.of_transaction(add.transaction).is_commit() {
            return None;
        }
        self.account.resolved(self.account.transactions.get(&add.transaction)?)
    }

    fn add_of(&self, look: &Look) -> Option<&Add> {
        self.adds.iter().copied().find(|add| look.offset == Some(add.offset))
    }

    /// A look that sees what certainly was added before another one that stood already.
    fn is_older(&self, at: At, look: &Look, since: At, known: &Add) -> Option<Violation> {
        let is_older = match (look.offset, self.add_of(look)) {
            (None, _) => true,
            (Some(_), Some(add)) => add.acknowledged.is_some_and(|acknowledged| acknowledged < known.asked),
            (Some(_), None) => false,
        };
        let what = format!("{} of {} stood before", known.offset, known.transaction);
        is_older.then(|| self.broken(Rule::GroupOffsets, look, &what, [known.asked, since, at]))
    }

    fn broken<const N: usize>(&self, rule: Rule, look: &Look, why: &str, places: [At; N]) -> Violation {
        let shown = look.offset.map_or("nothing".to_owned(), |offset| offset.to_string());
        let what = format!("{} has {shown} committed of {}: {why}", look.group, look.partition);
        Violation::new(rule, what, self.account.events, places)
    }
}
