//! The signs of life of a member, and what it was told to give up. Nothing of this is stored.

use std::collections::BTreeMap;

use levada_extension::TopicPartition;
use levada_model::{MemberId, Tick};

use super::{Context, Group, Timer};
use crate::records::MemberRecord;
use crate::timers::after;

/// A member's signs of life.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    /// When it last asked for anything.
    pub(super) seen: Tick,
    /// When it last fetched.
    pub(super) polled: Tick,
    /// What it is to give up.
    pub(super) revocations: BTreeMap<TopicPartition, Revocation>,
}

/// A partition that a member is to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revocation {
    /// Whether an answer said so.
    pub(super) told: bool,
    /// When it is taken from the member.
    pub(super) deadline: Tick,
}

impl Pulse {
    pub(super) fn new(now: Tick) -> Self {
        Self { seen: now, polled: now, revocations: BTreeMap::new() }
    }

    /// When the first partition is taken from the member.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.revocations.values().map(|revocation| revocation.deadline).min()
    }

    /// When the member is removed if it stays silent.
    fn end(&self, record: &MemberRecord) -> Tick {
        after(self.seen, record.session_timeout_ms).min(after(self.polled, record.max_poll_interval_ms))
    }
}

impl Group {
    /// Notes a sign of life.
    pub(super) fn alive(&mut self, ctx: &Context<'_>, member: &MemberId, polled: bool) {
        let pulse = self.pulse(member);
        pulse.seen = ctx.now.tick;
        if polled {
            pulse.polled = ctx.now.tick;
        }
        self.arm(member);
    }

    /// Sets the time at which something is to be done about a member.
    pub(super) fn arm(&mut self, member: &MemberId) {
        let (Some(pulse), Some(record)) = (self.pulses.get(member), self.members.get(member)) else {
            panic!("only members of the group are watched");
        };
        let end = pulse.end(record);
        let due = pulse.deadline().map_or(end, |deadline| deadline.min(end));
        self.timers.set(&Timer::Member(member.clone()), Some(due));
    }

    /// A member's session, fetch interval or deadline has ended.
    pub(super) fn member_due(&mut self, ctx: &mut Context<'_>, member: &MemberId) {
        let now = ctx.now.tick;
        if self.pulses[member].end(self.members.get(member).expect("a timer goes with its member")) <= now {
            self.remove_member(ctx, member);
            return;
        }
        let late = self.pulses[member].revocations.iter().filter(|(_, revocation)| revocation.deadline <= now);
        let late: Vec<_> = late.map(|(partition, _)| *partition).collect();
        late.into_iter().for_each(|partition| self.give_up(ctx, member, partition));
        self.arm(member);
    }

    pub(super) fn pulse(&mut self, member: &MemberId) -> &mut Pulse {
        self.pulses.get_mut(member).expect("every member has one")
    }
}
