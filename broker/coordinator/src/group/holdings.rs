//! The moves of a partition between members. All changes of who holds what go through here, so that nobody ever begins to
//! hold what another member holds.

use levada_extension::TopicPartition;
use levada_model::{MemberId, Tick, TopicName};

use super::pulse::Revocation;
use super::{Context, Group};
use crate::records::{Hold, MemberRecord, Place};
use crate::terms::AssignmentEpoch;

impl Group {
    /// `member` begins to hold a free partition.
    pub(super) fn begin(
        &mut self,
        ctx: &mut Context<'_>,
        member: &MemberId,
        partition: TopicPartition,
        topic: TopicName,
    ) {
        let before = self.holders.insert(partition, member.clone());
        assert!(before.is_none(), "a partition that is held is not given to another member");
        let hold = Hold::Owned(AssignmentEpoch(self.head.generation.0));
        self.member_mut(member).places.insert(partition, Place { topic, hold });
        ctx.changed.insert(member.clone());
    }

    /// `member` is to hold a partition as soon as it is free.
    pub(super) fn wait_for(&mut self, member: &MemberId, partition: TopicPartition, topic: TopicName) {
        self.heirs.insert(partition, member.clone());
        self.member_mut(member).places.insert(partition, Place { topic, hold: Hold::Pending });
    }

    /// `member` is not to hold a partition any more that it waits for.
    pub(super) fn wait_no_more(&mut self, member: &MemberId, partition: TopicPartition) {
        self.heirs.remove(&partition);
        self.member_mut(member).places.remove(&partition);
    }

    /// `member` is to give up a partition by `deadline`.
    pub(super) fn revoke(
        &mut self,
        ctx: &mut Context<'_>,
        member: &MemberId,
        partition: TopicPartition,
        deadline: Tick,
    ) {
        let place = self.place_mut(member, partition);
        let epoch = place.hold.epoch().expect("only what is held is taken away");
        place.hold = Hold::Revoking(epoch);
        self.revoking += 1;
        self.pulse(member).revocations.insert(partition, Revocation { told: false, deadline });
        ctx.changed.insert(member.clone());
    }

    /// `member` keeps a partition that it was to give up: the same holding goes on.
    pub(super) fn restore(&mut self, ctx: &mut Context<'_>, member: &MemberId, partition: TopicPartition) {
        let place = self.place_mut(member, partition);
        let epoch = place.hold.epoch().expect("only what is held is kept");
        place.hold = Hold::Owned(epoch);
        self.revoking -= 1;
        self.pulse(member).revocations.remove(&partition);
        ctx.changed.insert(member.clone());
    }

    /// `member` gives up a partition, or it is taken from it; who waits for it begins.
    pub(super) fn give_up(&mut self, ctx: &mut Context<'_>, member: &MemberId, partition: TopicPartition) {
        let place = self.member_mut(member).places.remove(&partition).expect("only what is held is given up");
        self.pulse(member).revocations.remove(&partition);
        ctx.changed.insert(member.clone());
        self.unplace(ctx, partition, place);
    }

    /// The partition of a place that its member does not have any more: whoever waits for it begins.
    pub(super) fn unplace(&mut self, ctx: &mut Context<'_>, partition: TopicPartition, place: Place) {
        match place.hold {
            Hold::Pending => {
                self.heirs.remove(&partition);
                return;
            }
            Hold::Revoking(_) => self.revoking -= 1,
            Hold::Owned(_) => {}
        }
        self.holders.remove(&partition);
        if let Some(heir) = self.heirs.remove(&partition) {
            self.begin(ctx, &heir, partition, place.topic);
        }
    }

    /// The partition is not there any more: nobody holds it or waits for it.
    pub(super) fn vanish(&mut self, ctx: &mut Context<'_>, partition: TopicPartition) {
        if let Some(heir) = self.heirs.get(&partition).cloned() {
            self.wait_no_more(&heir, partition);
            ctx.changed.insert(heir);
        }
        if let Some(holder) = self.holders.get(&partition).cloned() {
            self.give_up(ctx, &holder, partition);
        }
    }

    pub(super) fn member_mut(&mut self, member: &MemberId) -> &mut MemberRecord {
        self.members.get_mut(member).expect("only members of the group have partitions")
    }

    fn place_mut(&mut self, member: &MemberId, partition: TopicPartition) -> &mut Place {
        self.member_mut(member).places.get_mut(&partition).expect("the member has the partition")
    }
}
