//! Who was fenced changes nothing, and what has ended takes nothing.

use super::contents::Contents;
use super::outcomes::Outcomes;
use crate::account::{Account, Send, Transaction};
use crate::event::{At, Life, TransactionNumber, Value};
use crate::violation::{Rule, Violation};

pub(super) fn check(account: &Account<'_>, contents: &Contents, outcomes: &Outcomes) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (value, sent) in &account.sends {
        let Some(transaction) = account.transactions.get(&value.transaction) else { continue };
        let Some(shown) = is_stored(contents, *value, sent) else { continue };
        let stored = |when| format!("{value} was sent to {} after {when}, and is stored", sent.partition);
        if let Some((life, since)) = fenced(account, transaction).filter(|(_, since)| sent.asked > *since) {
            let what = stored(format!("{life} was succeeded"));
            violations.push(Violation::new(Rule::Fencing, what, account.events, [since, sent.asked, shown]));
        } else if let Some((ended, _)) = transaction.ends.first().filter(|(ended, _)| sent.asked > *ended) {
            let what = stored("its transaction had ended".to_owned());
            violations.push(Violation::new(Rule::EndIsEnd, what, account.events, [*ended, sent.asked, shown]));
        }
    }
    for (number, transaction) in &account.transactions {
        violations.extend(commits_late(account, outcomes, *number, transaction));
    }
    for add in &account.adds {
        let Some(transaction) = account.transactions.get(&add.transaction) else { continue };
        let fenced = fenced(account, transaction).filter(|(_, since)| add.asked > *since);
        if let (Some((life, since)), Some(at)) = (fenced, add.acknowledged) {
            let what = format!("an offset of {} was taken after {life} was succeeded", add.group);
            violations.push(Violation::new(Rule::Fencing, what, account.events, [since, add.asked, at]));
        }
    }
    violations
}

/// Since when a transaction's producer is fenced.
fn fenced(account: &Account<'_>, transaction: &Transaction) -> Option<(Life, At)> {
    let life = transaction.life?;
    Some((life, account.succeeded(life)?))
}

/// What shows that a record is in its partition.
fn is_stored(contents: &Contents, value: Value, sent: &Send) -> Option<At> {
    let seen = contents.first_sight(value, None).map(|(at, _)| at);
    [seen, sent.acknowledged.map(|(at, _)| at)].into_iter().flatten().min()
}

fn commits_late(
    account: &Account<'_>,
    outcomes: &Outcomes,
    number: TransactionNumber,
    transaction: &Transaction,
) -> Option<Violation> {
    let (life, since) = fenced(account, transaction)?;
    let asked = transaction.commit_asked.filter(|asked| *asked > since)?;
    let committed = outcomes.of_transaction(number).committed.as_ref()?;
    let what = format!("{number} is committed, which was asked for first after {life} was succeeded");
    Some(Violation::new(Rule::Fencing, what, account.events, [since, asked, committed.at]))
}
