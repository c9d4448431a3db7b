//! What may happen to a group, at random.

use levada_coordinator::Outcome;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

#[derive(Clone, Debug)]
pub(super) enum Event {
    Join {
        instance: Option<u8>,
        topics: u8,
        assignor: u8,
    },
    /// Of whom: the place among the members, or (from 5 on) among all that ever joined, the newest first.
    Poll {
        who: usize,
        again: bool,
    },
    Heartbeat {
        who: usize,
    },
    Commit {
        who: usize,
        partition: usize,
        offset: u64,
        epoch: Epoch,
    },
    Leave {
        who: usize,
    },
    Pass {
        steps: u8,
    },
    Everybody {
        fetches: bool,
    },
    Answer {
        how: How,
    },
    CommitStandalone {
        partition: usize,
        offset: u64,
    },
    /// An offset is taken into a transaction of one of three producers, by a member or (from 5 on) from outside.
    Add {
        producer: i64,
        epoch: i16,
        who: usize,
        partition: usize,
        offset: u64,
    },
    /// A transaction of one of them ends.
    End {
        producer: i64,
        epoch: i16,
        coordinator_epoch: i32,
        outcome: Outcome,
    },
    Delete,
    Topic {
        which: u8,
        change: Change,
    },
    SetWall {
        millis: i64,
    },
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Epoch {
    Explicit,
    Current,
    Other(u32),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Well,
    Fault,
    Twice,
    Nobody,
    Rotated,
    WrongToken,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Set(u32),
    Recreate(u32),
    Delete,
}

pub(super) fn events() -> impl Strategy<Value = Event> {
    let who = || 0usize..8;
    let how = prop_oneof![
        6 => Just(How::Well), 1 => Just(How::Fault), 1 => Just(How::Twice), 1 => Just(How::Nobody), 2 => Just(How::Rotated),
        1 => Just(How::WrongToken),
    ];
    let epoch =
        prop_oneof![1 => Just(Epoch::Explicit), 2 => Just(Epoch::Current), 1 => (0u32..9).prop_map(Epoch::Other)];
    let change = prop_oneof![3 => (1u32..4).prop_map(Change::Set), 1 => (1u32..4).prop_map(Change::Recreate), 1 => Just(Change::Delete)];
    prop_oneof![
        4 => (proptest::option::of(0u8..2), 1u8..4, 0u8..3)
            .prop_map(|(instance, topics, assignor)| Event::Join { instance, topics, assignor }),
        4 => (who(), any::<bool>()).prop_map(|(who, again)| Event::Poll { who, again }),
        2 => who().prop_map(|who| Event::Heartbeat { who }),
        4 => (who(), 0usize..6, 0u64..20, epoch)
            .prop_map(|(who, partition, offset, epoch)| Event::Commit { who, partition, offset, epoch }),
        2 => who().prop_map(|who| Event::Leave { who }),
        5 => (1u8..5).prop_map(|steps| Event::Pass { steps }),
        4 => any::<bool>().prop_map(|fetches| Event::Everybody { fetches }),
        6 => how.prop_map(|how| Event::Answer { how }),
        1 => (0usize..6, 0u64..20).prop_map(|(partition, offset)| Event::CommitStandalone { partition, offset }),
        7 => super::pending::adds(),
        4 => super::pending::ends(),
        1 => Just(Event::Delete),
        2 => (0u8..2, change).prop_map(|(which, change)| Event::Topic { which, change }),
        1 => (-300_000i64..300_000).prop_map(|millis| Event::SetWall { millis }),
        2 => Just(Event::Restart),
        1 => Just(Event::Pass { steps: 250 }),
    ]
}
