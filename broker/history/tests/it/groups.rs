//! What becomes of committed offsets.

use levada_history::Rule;

use crate::tale::{Abort, Commit, Committed, Tale, value};

/// Offset 1 is committed by transaction 1.
fn committed() -> Tale {
    let tale = Tale::default();
    tale.start(0).look(None).begin(1, 0).add_offset(1, 1).look(None).end(1, Commit);
    tale
}

#[test]
fn an_offset_that_is_committed_stands() {
    committed().look(Some(1)).settle().look(Some(1)).is_good();
    committed().look(None).breaks(Rule::GroupOffsets);
    committed().look(Some(7)).breaks(Rule::NothingInvented);
}

#[test]
fn an_offset_that_is_aborted_is_not_seen() {
    let tale = committed();
    tale.begin(2, 0).add_offset(2, 2).end(2, Abort).look(Some(1)).is_good();
    tale.look(Some(2)).breaks(Rule::NoAbortedRead);
}

#[test]
fn an_offset_that_is_undecided_is_not_seen() {
    let tale = committed();
    tale.begin(2, 0).add_offset(2, 2).look(Some(1)).ask_end(2, Commit).look(Some(2)).settle().is_good();
    let tale = committed();
    tale.begin(2, 0).add_offset(2, 2).look(Some(2)).end(2, Commit).breaks(Rule::NoUndecidedRead);
}

#[test]
fn a_committed_offset_does_not_go_back() {
    let next = || {
        let tale = committed();
        tale.begin(2, 0).add_offset(2, 2);
        tale
    };
    next().end(2, Commit).look(Some(2)).is_good();
    next().end(2, Commit).look(Some(1)).breaks(Rule::GroupOffsets);
    // Nobody knows how it ended, until it was seen.
    next().ask_end(2, Commit).look(Some(1)).look(Some(2)).settle().is_good();
    next().ask_end(2, Commit).look(Some(2)).look(Some(1)).settle().breaks(Rule::GroupOffsets);
    next().ask_end(2, Commit).look(Some(2)).look(None).settle().breaks(Rule::GroupOffsets);
    // Who asked before may be told the old one after.
    let tale = committed();
    let before = tale.now();
    tale.begin(2, 0).add_offset(2, 2).end(2, Commit).look_since(before, Some(1)).look(Some(2)).is_good();
}

#[test]
fn of_two_offsets_the_one_that_was_added_later_stands() {
    let two = || {
        let tale = Tale::default();
        tale.start(0).begin(1, 0).add_offset(1, 1).begin(2, 0).add_offset(2, 2).end(2, Commit).look(Some(2));
        tale.end(1, Commit);
        tale
    };
    two().look(Some(2)).is_good();
    two().look(Some(1)).breaks(Rule::GroupOffsets);
    // Those that were added at the same time stand in any order.
    let tale = Tale::default();
    tale.start(0).begin(1, 0).ask_offset(1, 1).begin(2, 0).add_offset(2, 2).offset_added(1, 1);
    tale.end(1, Commit).end(2, Commit).look(Some(1)).is_good();
}

#[test]
fn offsets_and_records_of_a_transaction_end_one_way() {
    let unknown = || {
        let tale = committed();
        tale.begin(2, 0).send(value(2, 0), 0, 0).add_offset(2, 2).ask_end(2, Commit).start(1).settle();
        tale
    };
    unknown().read(Committed, 0, 2, &[(0, value(2, 0))]).look(Some(2)).is_good();
    unknown().read(Committed, 0, 2, &[]).look(Some(1)).is_good();
    unknown().read(Committed, 0, 2, &[(0, value(2, 0))]).look(Some(1)).breaks(Rule::GroupOffsets);
    unknown().read(Committed, 0, 2, &[]).look(Some(2)).breaks(Rule::AllOrNothing);
}

#[test]
fn who_was_fenced_adds_no_offset() {
    let tale = Tale::default();
    tale.start(0).begin(1, 0).ask_offset(1, 1).start(1).offset_added(1, 1).look(None).settle().is_good();
    let tale = Tale::default();
    tale.start(0).begin(1, 0).start(1).add_offset(1, 1).settle().breaks(Rule::Fencing);
}
