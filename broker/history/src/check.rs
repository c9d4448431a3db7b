//! The judge: says of a history what must not be.

mod contents;
mod fences;
mod groups;
mod marks;
mod order;
mod outcomes;

use crate::account::Account;
use crate::event::{At, Event};
use crate::violation::{Rule, Violation};

use contents::Contents;
use outcomes::Outcomes;

/// What of a history must not be; nothing, if all is well. A history whose last readers did not read to the end is itself
/// at fault: what they did not reach counts as lost.
///
/// # Panics
/// When the history is none: an answer without a question, a transaction that begins twice.
#[must_use]
pub fn check(events: &[Event]) -> Vec<Violation> {
    let account = Account::of(events);
    let contents = Contents::of(&account);
    let outcomes = Outcomes::of(&account, &contents);
    let unexpected =
        |(at, what): &(At, &str)| Violation::new(Rule::NothingUnexpected, (*what).to_owned(), events, [*at]);
    let mut violations: Vec<Violation> = account.unexpected.iter().map(unexpected).collect();
    violations.extend(contents.check(&account));
    violations.extend(outcomes.check(&account, &contents));
    violations.extend(order::check(&account, &contents));
    violations.extend(marks::check(&account));
    violations.extend(fences::check(&account, &contents, &outcomes));
    violations.extend(groups::check(&account, &outcomes));
    violations
}
