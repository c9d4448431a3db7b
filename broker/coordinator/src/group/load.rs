//! Taking a group up from its records.

use std::collections::BTreeMap;

use levada_extension::TopicPartition;
use levada_model::MemberId;

use super::pulse::{Pulse, Revocation};
use super::{Context, Group};
use crate::records::{ClassicMemberRecord, GroupRecord, Hold, MemberRecord, OffsetRecord};
use crate::terms::{AssignmentEpoch, Generation};
use crate::timers::after;

impl Group {
    pub(crate) fn load_head(&mut self, head: Option<GroupRecord>) {
        self.head = head.clone().unwrap_or_default();
        self.stored = head;
    }

    pub(crate) fn load_member(&mut self, id: MemberId, member: Option<MemberRecord>) {
        self.members.load(id, member);
    }

    pub(crate) fn load_classic(&mut self, id: MemberId, member: Option<ClassicMemberRecord>) {
        self.classic.members.load(id, member);
    }

    pub(crate) fn load_offset(&mut self, partition: TopicPartition, offset: Option<OffsetRecord>) {
        self.pending.supersede_all(partition);
        self.offsets.load(partition, offset);
    }

    /// All records are in: derives the rest, and starts the timers.
    pub(crate) fn loaded(&mut self, ctx: &mut Context<'_>) {
        if self.active() == 0 {
            self.head.rebalance_due = false;
            self.keep_for_the_rest(ctx);
            return;
        }
        self.head.empty_since = None;
        if self.members.is_empty() {
            self.classic_loaded(ctx);
            return;
        }
        self.drop_classic_members();
        let consistent = self.settle_claims();
        self.index(ctx);
        if std::mem::take(&mut self.head.rebalance_due) {
            // As before the restart: nobody has anything yet, so others may come within a moment.
            if self.holders.is_empty() { self.await_first_rebalance(ctx) } else { self.request_rebalance(ctx) }
        }
        if !consistent {
            self.request_rebalance(ctx);
        }
    }

    fn index(&mut self, ctx: &Context<'_>) {
        let members: Vec<_> = self.members.iter().map(|(id, member)| (id.clone(), member.clone())).collect();
        for (id, member) in members {
            self.index_member(&id, &member);
            let mut pulse = Pulse::new(ctx.now.tick);
            let deadline = after(ctx.now.tick, member.rebalance_timeout_ms);
            for (partition, place) in &member.places {
                let index = if place.hold.epoch().is_some() { &mut self.holders } else { &mut self.heirs };
                index.insert(*partition, id.clone());
                if matches!(place.hold, Hold::Revoking(_)) {
                    self.revoking += 1;
                    pulse.revocations.insert(*partition, Revocation { told: false, deadline });
                }
            }
            self.pulses.insert(id.clone(), pulse);
            self.arm(&id);
        }
        self.see_holdings();
    }

    /// Takes away what damage to the log has made contradictory: of two holders of one partition the later stays, of two
    /// of the same generation none; waiting needs a holder and only one may wait. Whether nothing had to be done.
    fn settle_claims(&mut self) -> bool {
        let mut holders: BTreeMap<TopicPartition, (AssignmentEpoch, Option<MemberId>)> = BTreeMap::new();
        let mut heirs: BTreeMap<TopicPartition, MemberId> = BTreeMap::new();
        for (id, member) in self.members.iter() {
            for (partition, place) in &member.places {
                let Some(epoch) = place.hold.epoch() else {
                    heirs.entry(*partition).or_insert_with(|| id.clone());
                    continue;
                };
                let best = holders.entry(*partition).or_insert_with(|| (epoch, Some(id.clone())));
                match epoch.cmp(&best.0) {
                    std::cmp::Ordering::Greater => *best = (epoch, Some(id.clone())),
                    std::cmp::Ordering::Equal if best.1.as_ref() != Some(id) => best.1 = None,
                    _ => {}
                }
            }
        }
        let newest = holders.values().map(|(epoch, _)| epoch.0).max().unwrap_or_default();
        self.head.generation = self.head.generation.max(Generation(newest));
        let wrong = |id: &MemberId, partition: &TopicPartition, hold: Hold| {
            let holder = holders.get(partition).and_then(|(_, holder)| holder.as_ref());
            match hold {
                Hold::Pending => holder.is_none() || heirs.get(partition) != Some(id),
                Hold::Owned(_) | Hold::Revoking(_) => holder != Some(id),
            }
        };
        let claims = self.members.iter().flat_map(|(id, member)| {
            let wrong = member.places.iter().filter(|(partition, place)| wrong(id, partition, place.hold));
            wrong.map(|(partition, _)| (id.clone(), *partition))
        });
        let wrong: Vec<_> = claims.collect();
        for (id, partition) in &wrong {
            self.member_mut(id).places.remove(partition);
        }
        wrong.is_empty()
    }
}
