//! How each transaction ended, by all that shows it: one way, and what was acknowledged is there.

use std::collections::BTreeMap;

use levada_coordinator::Outcome;
use levada_model::Offset;

use super::contents::Contents;
use crate::account::{Account, Send, Transaction};
use crate::event::{At, TransactionNumber, Value, View};
use crate::violation::{Rule, Violation};

/// What shows that a transaction ended one way: when, and in words.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    pub(super) at: At,
    what: String,
}

/// What shows how a transaction ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) committed: Option<Proof>,
    pub(super) aborted: Option<Proof>,
}

/// The evidence of all transactions.
pub(super) struct Outcomes(BTreeMap<TransactionNumber, Evidence>);

impl Evidence {
    /// Whether all of it says that the transaction was committed.
    pub(super) fn is_commit(&self) -> bool {
        self.committed.is_some() && self.aborted.is_none()
    }

    fn committed(&mut self, at: At, what: impl FnOnce() -> String) {
        if self.committed.as_ref().is_none_or(|known| at < known.at) {
            self.committed = Some(Proof { at, what: what() });
        }
    }

    fn aborted(&mut self, at: At, what: impl FnOnce() -> String) {
        if self.aborted.as_ref().is_none_or(|known| at < known.at) {
            self.aborted = Some(Proof { at, what: what() });
        }
    }
}

impl Outcomes {
    pub(super) fn of(account: &Account<'_>, contents: &Contents) -> Self {
        let mut outcomes = Self(BTreeMap::new());
        for (number, transaction) in &account.transactions {
            let evidence = outcomes.0.entry(*number).or_default();
            for (at, outcome) in &transaction.ends {
                match outcome {
                    Outcome::Commit => evidence.committed(*at, || "its commit was answered".to_owned()),
                    Outcome::Abort => evidence.aborted(*at, || "its abort was answered".to_owned()),
                }
            }
        }
        for (value, sent) in &account.sends {
            let evidence = outcomes.0.entry(value.transaction).or_default();
            if let Some((at, sighting)) = contents.first_sight(*value, Some(View::Committed)) {
                evidence.committed(at, || format!("{value} is read in {} at {}", sighting.partition, sighting.offset));
            }
            let Some(offset) = place_of(account, contents, *value, sent) else { continue };
            let found = contents.found(View::Committed, &sent.partition, offset);
            if let Some(found) = found.filter(|found| found.value.is_none()) {
                evidence.aborted(found.first, || format!("{value} is left out in {} at {offset}", sent.partition));
            }
        }
        for (at, look) in &account.looks {
            let is_it = |(group, partition, offset)| {
                (group, partition, Some(offset)) == (&look.group, &look.partition, look.offset)
            };
            let add = account.adds.iter().find(|add| is_it((&add.group, &add.partition, add.offset)));
            if let Some(add) = add {
                let evidence = outcomes.0.entry(add.transaction).or_default();
                evidence.committed(*at, || {
                    format!("its offset {} of {} is committed in {}", add.offset, add.partition, add.group)
                });
            }
        }
        outcomes
    }

    pub(super) fn of_transaction(&self, number: TransactionNumber) -> &Evidence {
        const NONE: &Evidence = &Evidence { committed: None, aborted: None };
        self.0.get(&number).unwrap_or(NONE)
    }

    pub(super) fn check(&self, account: &Account<'_>, contents: &Contents) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (number, transaction) in &account.transactions {
            violations.extend(self.ends_one_way(account, *number, transaction));
        }
        for (value, sent) in &account.sends {
            violations.extend(self.is_kept(account, contents, *value, sent));
        }
        violations
    }

    fn ends_one_way(
        &self,
        account: &Account<'_>,
        number: TransactionNumber,
        transaction: &Transaction,
    ) -> Option<Violation> {
        let evidence = self.of_transaction(number);
        let committed = evidence.committed.as_ref()?;
        let broken = |rule, what: String, more: Option<At>| {
            let places = [Some(transaction.begun), transaction.commit_asked, Some(committed.at), more];
            Some(Violation::new(rule, format!("{number}: {what}"), account.events, places.into_iter().flatten()))
        };
        if let Some(aborted) = &evidence.aborted {
            let ended = |outcome| transaction.ends.iter().any(|(_, end)| *end == outcome);
            let rule = match (ended(Outcome::Commit), ended(Outcome::Abort)) {
                (false, true) => Rule::NoAbortedRead,
                (true, false) => Rule::NothingLost,
                _ => Rule::AllOrNothing,
            };
            return broken(rule, format!("{}, and {}", committed.what, aborted.what), Some(aborted.at));
        }
        if transaction.commit_asked.is_none_or(|asked| committed.at < asked) {
            let asked = transaction.commit_asked.map_or("never".to_owned(), |asked| format!("at {}", asked.0));
            return broken(
                Rule::NoUndecidedRead,
                format!("{}, and a commit was asked for {asked}", committed.what),
                None,
            );
        }
        None
    }

    /// Whether what was acknowledged is there, and is found in the end.
    fn is_kept(&self, account: &Account<'_>, contents: &Contents, value: Value, sent: &Send) -> Option<Violation> {
        let (acknowledged, offset) = sent.acknowledged?;
        let lost = |what: &str, at: Option<At>| {
            let what = format!("{value}, acknowledged in {} at {offset}, {what}", sent.partition);
            let places = [Some(sent.asked), Some(acknowledged), at];
            Some(Violation::new(Rule::NothingLost, what, account.events, places.into_iter().flatten()))
        };
        for view in [View::Committed, View::Uncommitted] {
            let Some(found) = contents.found(view, &sent.partition, offset) else { continue };
            match found.value {
                Some(other) if other != value => return lost(&format!("is {other}"), Some(found.first)),
                None if view == View::Uncommitted => return lost("is not there", Some(found.first)),
                _ => (),
            }
        }
        if !self.of_transaction(value.transaction).is_commit() {
            return None;
        }
        let resolved = account.resolved(account.transactions.get(&value.transaction)?);
        let since = resolved.max(account.last_up).max(Some(acknowledged)).expect("it was acknowledged");
        let found = contents.found(View::Committed, &sent.partition, offset);
        if found.is_none_or(|found| found.last_asked <= since) {
            return lost("is committed and was not found in the end", found.map(|found| found.first));
        }
        None
    }
}

/// Where a record is, as far as anybody knows.
fn place_of(account: &Account<'_>, contents: &Contents, value: Value, sent: &Send) -> Option<Offset> {
    let acknowledged = sent.acknowledged.map(|(_, offset)| offset);
    acknowledged.or_else(|| {
        if account.is_tried_anew(value.transaction) {
            return None;
        }
        let seen = contents.first_sight(value, Some(View::Uncommitted));
        seen.filter(|(_, sighting)| sighting.partition == sent.partition).map(|(_, sighting)| sighting.offset)
    })
}
