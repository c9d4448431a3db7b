//! What becomes of records.

use levada_history::{Event, Marks, Read, Rule};
use levada_model::Offset;

use crate::tale::{Abort, Commit, Committed, Tale, Uncommitted, life, value};

/// Transaction 1 of the first life, with a record in each of two partitions, not ended.
fn open() -> Tale {
    let tale = Tale::default();
    tale.start(0).begin(1, 0).send(value(1, 0), 0, 0).send(value(1, 1), 1, 0);
    tale
}

/// The end of a tale in which transaction 1 is committed: what all see then.
fn all_there(tale: &Tale) {
    tale.settle();
    for view in [Committed, Uncommitted] {
        tale.read(view, 0, 2, &[(0, value(1, 0))]).read(view, 1, 2, &[(0, value(1, 1))]);
    }
}

/// And one in which it is aborted.
fn none_there(tale: &Tale) {
    tale.settle().read(Committed, 0, 2, &[]).read(Committed, 1, 2, &[]);
    tale.read(Uncommitted, 0, 2, &[(0, value(1, 0))]).read(Uncommitted, 1, 2, &[(0, value(1, 1))]);
}

#[test]
fn a_committed_transaction_is_read_whole() {
    let tale = open();
    tale.read(Uncommitted, 0, 1, &[(0, value(1, 0))]).end(1, Commit);
    all_there(&tale);
    tale.is_good();
}

#[test]
fn an_aborted_transaction_is_not_read() {
    let tale = open();
    tale.read(Uncommitted, 0, 1, &[(0, value(1, 0))]).end(1, Abort);
    none_there(&tale);
    tale.is_good();
    tale.read(Committed, 0, 2, &[(0, value(1, 0))]).breaks_also(&[Rule::NoAbortedRead, Rule::NothingChanges]);
    let tale = open();
    tale.end(1, Abort).settle().read(Committed, 0, 2, &[(0, value(1, 0))]).breaks(Rule::NoAbortedRead);
}

#[test]
fn what_was_acknowledged_and_committed_is_not_lost() {
    // It is left out.
    let tale = open();
    tale.end(1, Commit).settle().read(Committed, 0, 2, &[(0, value(1, 0))]).read(Committed, 1, 2, &[]);
    tale.breaks(Rule::NothingLost);
    // The log ends before it.
    let tale = open();
    tale.end(1, Commit).settle().read(Committed, 0, 2, &[(0, value(1, 0))]).breaks(Rule::NothingLost);
    // It was there once; after the last start nobody has found it.
    let tale = open();
    tale.end(1, Commit).read(Committed, 0, 2, &[(0, value(1, 0))]).read(Committed, 1, 2, &[(0, value(1, 1))]);
    tale.event(Event::Down("killed")).event(Event::Up).settle().breaks(Rule::NothingLost);
    // Something else is at its place.
    let tale = open();
    tale.begin(2, 0).ask(value(2, 0), 0).end(1, Commit).ask_end(2, Commit).settle();
    tale.read(Committed, 0, 2, &[(0, value(2, 0))]).read(Committed, 1, 2, &[(0, value(1, 1))]);
    tale.breaks(Rule::NothingLost);
    // Not even who sees all sees it.
    let tale = open();
    tale.end(1, Abort).settle().read(Uncommitted, 0, 2, &[]).breaks(Rule::NothingLost);
}

#[test]
fn nothing_is_stored_twice() {
    let tale = open();
    tale.end(1, Commit);
    all_there(&tale);
    tale.read(Uncommitted, 0, 4, &[(0, value(1, 0)), (2, value(1, 0))]).breaks(Rule::NothingDoubled);
    // Also if nobody was answered.
    let tale = Tale::default();
    tale.start(0).begin(1, 0).ask(value(1, 0), 0).end(1, Commit).settle();
    tale.read(Committed, 0, 3, &[(1, value(1, 0))]).is_good();
    tale.read(Uncommitted, 0, 3, &[(0, value(1, 0)), (1, value(1, 0))]).breaks(Rule::NothingDoubled);
}

#[test]
fn nothing_is_read_that_was_not_sent_there_before() {
    let tale = Tale::default();
    tale.settle().read(Uncommitted, 0, 1, &[(0, value(7, 0))]).breaks(Rule::NothingInvented);
    let tale = Tale::default();
    tale.start(0).begin(1, 0).ask(value(1, 0), 0).settle();
    tale.read(Uncommitted, 1, 1, &[(0, value(1, 0))]).breaks(Rule::NothingInvented);
    let tale = Tale::default();
    tale.start(0).begin(1, 0).read(Uncommitted, 0, 1, &[(0, value(1, 0))]).ask(value(1, 0), 0);
    tale.settle().breaks(Rule::NothingInvented);
}

#[test]
fn what_was_refused_is_not_stored() {
    let tale = Tale::default();
    tale.start(0).begin(1, 0).ask(value(1, 0), 0).event(Event::Refused(vec![value(1, 0)])).end(1, Abort).settle();
    tale.read(Committed, 0, 1, &[]).is_good();
    tale.read(Uncommitted, 0, 1, &[(0, value(1, 0))]).breaks(Rule::NothingRefused);
}

#[test]
fn what_was_seen_at_an_offset_stays() {
    let tale = open();
    tale.end(1, Commit);
    all_there(&tale);
    tale.is_good();
    tale.read(Uncommitted, 0, 2, &[(0, value(1, 0)), (1, value(1, 1))]).breaks_also(&[Rule::NothingChanges]);
}

#[test]
fn nobody_reads_what_is_undecided() {
    let tale = open();
    tale.marked(Committed, 0, 0, &[], (0, 1)).end(1, Commit);
    all_there(&tale);
    tale.is_good();
    // Before the commit was asked for.
    let tale = open();
    tale.read(Committed, 0, 1, &[(0, value(1, 0))]).end(1, Commit);
    all_there(&tale);
    tale.breaks(Rule::NoUndecidedRead);
    // It never was.
    let tale = open();
    tale.start(1).settle().read(Committed, 0, 2, &[(0, value(1, 0))]).read(Committed, 1, 2, &[(0, value(1, 1))]);
    tale.breaks(Rule::NoUndecidedRead);
}

#[test]
fn a_transaction_of_unknown_end_ends_one_way() {
    let tale = open();
    tale.ask_end(1, Commit).start(1);
    all_there(&tale);
    tale.is_good();
    let tale = open();
    tale.ask_end(1, Commit).start(1);
    none_there(&tale);
    tale.is_good();
    let tale = open();
    tale.ask_end(1, Commit).start(1).settle();
    tale.read(Committed, 0, 2, &[(0, value(1, 0))]).read(Committed, 1, 2, &[]).breaks(Rule::AllOrNothing);
    // One of its records was not acknowledged, but it was seen.
    let tale = Tale::default();
    tale.start(0).begin(1, 0).send(value(1, 0), 0, 0).ask(value(1, 1), 1).ask_end(1, Commit).start(1).settle();
    tale.read(Committed, 0, 2, &[(0, value(1, 0))]).read(Committed, 1, 2, &[]).is_good();
    tale.read(Uncommitted, 1, 2, &[(0, value(1, 1))]).breaks(Rule::AllOrNothing);
    // Both ends were answered.
    let tale = open();
    tale.end(1, Commit).end(1, Abort);
    all_there(&tale);
    tale.breaks(Rule::AllOrNothing);
}

#[test]
fn what_is_acknowledged_lies_before_what_is_sent_next() {
    let tale = Tale::default();
    tale.start(0).begin(1, 0).ask(value(1, 0), 0).ask(value(1, 1), 0).sent(value(1, 1), 0, 0).sent(value(1, 0), 0, 1);
    tale.end(1, Commit).settle().read(Committed, 0, 3, &[(0, value(1, 1)), (1, value(1, 0))]).is_good();
    let tale = Tale::default();
    tale.start(0).begin(1, 0).send(value(1, 0), 0, 1).send(value(1, 1), 0, 0);
    tale.end(1, Commit).settle().read(Committed, 0, 3, &[(0, value(1, 1)), (1, value(1, 0))]).breaks(Rule::Order);
    // Records of one request lie as they came.
    let request = |offsets: [u64; 2]| {
        let values = vec![value(1, 0), value(1, 1)];
        let tale = Tale::default();
        tale.start(0).begin(1, 0).event(Event::SendAsked(crate::tale::partition(0), values));
        tale.sent(value(1, 0), 0, offsets[0]).sent(value(1, 1), 0, offsets[1]).end(1, Abort).settle();
        tale
    };
    request([0, 1]).is_good();
    request([1, 0]).breaks(Rule::Order);
}

#[test]
fn marks_rise() {
    let tale = Tale::default();
    tale.marked(Uncommitted, 0, 0, &[], (2, 3)).marked(Uncommitted, 0, 0, &[], (2, 3)).is_good();
    tale.marked(Uncommitted, 0, 0, &[], (1, 3)).breaks(Rule::MarksRise);
    let tale = Tale::default();
    tale.marked(Uncommitted, 0, 0, &[], (2, 3)).marked(Committed, 0, 0, &[], (2, 2)).breaks(Rule::MarksRise);
    // Two that asked at the same time may be answered in any order.
    let tale = Tale::default();
    let before = tale.now();
    tale.marked(Uncommitted, 0, 0, &[], (2, 3));
    let marks = Marks { high_watermark: Offset(3), last_stable: Offset(1) };
    let late = Read { asked: before, marks: Some(marks), ..tale.reads().remove(0) };
    tale.event(Event::Read(late)).is_good();
}

#[test]
fn nobody_reads_beyond_a_mark() {
    let tale = Tale::default();
    tale.marked(Uncommitted, 0, 0, &[], (3, 2)).breaks(Rule::Bounds);
    let tale = Tale::default();
    tale.marked(Committed, 0, 2, &[], (1, 2)).breaks(Rule::Bounds);
    let tale = Tale::default();
    tale.marked(Uncommitted, 0, 3, &[], (1, 2)).breaks(Rule::Bounds);
    let tale = open();
    tale.end(1, Abort).marked(Uncommitted, 0, 0, &[(0, value(1, 0))], (0, 2)).settle().breaks(Rule::Bounds);
}

#[test]
fn who_was_fenced_stores_nothing() {
    let tale = open();
    tale.ask(value(1, 2), 0).start(1);
    none_there(&tale);
    tale.is_good();
    // It was answered.
    let tale = open();
    tale.start(1).send(value(1, 2), 0, 2);
    tale.settle().breaks(Rule::Fencing);
    // It was not, but is read.
    let tale = open();
    tale.start(1).ask(value(1, 2), 0).settle();
    tale.read(Uncommitted, 0, 3, &[(0, value(1, 0)), (2, value(1, 2))]).breaks(Rule::Fencing);
    // While the successor was starting it is none yet.
    let tale = open();
    tale.event(Event::StartAsked(life(1))).send(value(1, 2), 0, 1).event(Event::Started(life(1))).settle();
    tale.read(Uncommitted, 0, 3, &[(0, value(1, 0)), (1, value(1, 2))]).is_good();
}

#[test]
fn who_was_fenced_commits_nothing() {
    let tale = open();
    tale.start(1).ask_end(1, Commit);
    none_there(&tale);
    tale.is_good();
    let tale = open();
    tale.start(1).end(1, Commit);
    all_there(&tale);
    tale.breaks(Rule::Fencing);
    // What was asked for before may be answered after.
    let tale = open();
    tale.ask_end(1, Commit).start(1).end(1, Commit);
    all_there(&tale);
    tale.is_good();
}

#[test]
fn what_has_ended_takes_nothing() {
    let tale = open();
    tale.end(1, Commit).ask(value(1, 2), 0);
    all_there(&tale);
    tale.is_good();
    let tale = open();
    tale.end(1, Commit).ask(value(1, 2), 0).settle();
    tale.read(Committed, 0, 4, &[(0, value(1, 0)), (2, value(1, 2))]).read(Committed, 1, 2, &[(0, value(1, 1))]);
    tale.breaks(Rule::EndIsEnd);
}

#[test]
fn nothing_is_open_in_the_end() {
    let tale = open();
    tale.end(1, Abort).marked(Uncommitted, 0, 0, &[], (1, 2)).settle();
    tale.marked(Uncommitted, 0, 0, &[], (2, 2)).is_good();
    tale.marked(Uncommitted, 1, 0, &[], (1, 2)).breaks(Rule::NothingStuck);
}
