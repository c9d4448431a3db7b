//! Histories in few words.

use levada_history::{
    At, Event, History, Life, Look, Marks, Outcome, Partition, Read, Rule, TransactionNumber, Value, View,
};
use levada_model::{GroupName, Offset, PartitionIndex, TopicName};

pub(crate) use Outcome::{Abort, Commit};
pub(crate) use View::{Committed, Uncommitted};

/// A history in the making.
#[derive(Default)]
pub(crate) struct Tale(History);

pub(crate) fn partition(index: u32) -> Partition {
    Partition { topic: TopicName::new("t").expect("a name"), index: PartitionIndex(index) }
}

pub(crate) fn value(transaction: u64, number: u32) -> Value {
    Value { transaction: TransactionNumber(transaction), number }
}

pub(crate) fn life(number: u32) -> Life {
    Life { producer: 0, number }
}

fn group() -> GroupName {
    GroupName::new("g").expect("a name")
}

impl Tale {
    pub(crate) fn now(&self) -> At {
        self.0.now()
    }

    pub(crate) fn event(&self, event: Event) -> &Self {
        self.0.note(event);
        self
    }

    pub(crate) fn start(&self, number: u32) -> &Self {
        self.event(Event::StartAsked(life(number))).event(Event::Started(life(number)))
    }

    pub(crate) fn begin(&self, transaction: u64, in_life: u32) -> &Self {
        self.event(Event::Begun(TransactionNumber(transaction), Some(life(in_life))))
    }

    pub(crate) fn ask(&self, value: Value, index: u32) -> &Self {
        self.event(Event::SendAsked(partition(index), vec![value]))
    }

    pub(crate) fn sent(&self, value: Value, index: u32, offset: u64) -> &Self {
        self.event(Event::Sent(partition(index), vec![(value, Offset(offset))]))
    }

    /// A record that is acknowledged at once.
    pub(crate) fn send(&self, value: Value, index: u32, offset: u64) -> &Self {
        self.ask(value, index).sent(value, index, offset)
    }

    pub(crate) fn ask_end(&self, transaction: u64, outcome: Outcome) -> &Self {
        self.event(Event::EndAsked(TransactionNumber(transaction), outcome))
    }

    pub(crate) fn end(&self, transaction: u64, outcome: Outcome) -> &Self {
        self.ask_end(transaction, outcome).event(Event::Ended(TransactionNumber(transaction), outcome))
    }

    pub(crate) fn ask_offset(&self, transaction: u64, offset: u64) -> &Self {
        self.event(Event::OffsetAsked(TransactionNumber(transaction), group(), partition(9), Offset(offset)))
    }

    pub(crate) fn offset_added(&self, transaction: u64, offset: u64) -> &Self {
        self.event(Event::OffsetAdded(TransactionNumber(transaction), group(), partition(9), Offset(offset)))
    }

    pub(crate) fn add_offset(&self, transaction: u64, offset: u64) -> &Self {
        self.ask_offset(transaction, offset).offset_added(transaction, offset)
    }

    pub(crate) fn look(&self, offset: Option<u64>) -> &Self {
        self.look_since(self.now(), offset)
    }

    pub(crate) fn look_since(&self, asked: At, offset: Option<u64>) -> &Self {
        let look = Look { asked, group: group(), partition: partition(9), offset: offset.map(Offset) };
        self.event(Event::Looked(look))
    }

    /// A read of a partition from 0 up to an offset, all of which is stable.
    pub(crate) fn read(&self, view: View, index: u32, next: u64, records: &[(u64, Value)]) -> &Self {
        self.marked(view, index, next, records, (next, next))
    }

    /// With a last stable offset and a high watermark.
    pub(crate) fn marked(
        &self,
        view: View,
        index: u32,
        next: u64,
        records: &[(u64, Value)],
        marks: (u64, u64),
    ) -> &Self {
        self.event(Event::Read(Read {
            asked: self.now(),
            view,
            partition: partition(index),
            from: Offset(0),
            records: records.iter().map(|(offset, value)| (Offset(*offset), *value)).collect(),
            next: Offset(next),
            marks: Some(Marks { high_watermark: Offset(marks.1), last_stable: Offset(marks.0) }),
        }))
    }

    pub(crate) fn settle(&self) -> &Self {
        self.event(Event::Settled)
    }

    #[track_caller]
    pub(crate) fn is_good(&self) {
        let found = self.0.check();
        assert!(found.is_empty(), "{}", found.iter().map(|one| format!("{one}\n")).collect::<String>());
    }

    /// What was read so far.
    pub(crate) fn reads(&self) -> Vec<Read> {
        let events = self.0.events().into_iter();
        events.filter_map(|event| if let Event::Read(read) = event { Some(read) } else { None }).collect()
    }

    /// The history breaks all of these, and perhaps more.
    #[track_caller]
    pub(crate) fn breaks_also(&self, rules: &[Rule]) {
        let found = self.0.check();
        let is_found = |rule: &Rule| found.iter().any(|violation| violation.rule == *rule);
        assert!(rules.iter().all(is_found), "{rules:?} are broken, found was {found:?}");
    }

    /// The history breaks this rule and no other.
    #[track_caller]
    pub(crate) fn breaks(&self, rule: Rule) {
        let found = self.0.check();
        let rules: Vec<Rule> = found.iter().map(|violation| violation.rule).collect();
        assert!(
            !rules.is_empty() && rules.iter().all(|found| *found == rule),
            "{rule:?} is broken, found was {found:?}"
        );
        for violation in found {
            assert!(!violation.events.is_empty() && !violation.what.is_empty(), "it says what and when: {violation}");
        }
    }
}
