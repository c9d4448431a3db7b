//! Committed offsets: which commit counts, and what stands.

use levada_extension::TopicPartition;
use levada_model::MemberId;

use super::{Context, Group};
use crate::records::{MemberRecord, OffsetRecord};
use crate::terms::{CommitAnswer, Committed, MemberCommit, Refusal, StandaloneError};

impl Group {
    /// A member commits.
    pub(crate) fn commit(
        &mut self,
        ctx: &mut Context<'_>,
        member: &MemberId,
        commits: Vec<MemberCommit>,
    ) -> CommitAnswer {
        self.alive(ctx, member, false);
        let record = self.members.get(member).expect("only members commit");
        let judged: Vec<_> = commits.iter().map(|commit| judge(record, commit)).collect();
        let commit = |(commit, judged): (MemberCommit, Result<(), Refusal>)| judged.map(|()| self.store(ctx, commit));
        commits.into_iter().zip(judged).map(commit).collect()
    }

    /// Somebody commits who is no member.
    pub(crate) fn commit_standalone(
        &mut self,
        ctx: &mut Context<'_>,
        commits: Vec<(TopicPartition, Committed)>,
    ) -> Result<(), StandaloneError> {
        if self.active() > 0 {
            return Err(StandaloneError::Active(self.active()));
        }
        for (partition, committed) in commits {
            self.offsets.insert(partition, OffsetRecord::Committed(committed));
        }
        self.keep_for_a_while(ctx);
        Ok(())
    }

    /// Takes in a commit that counts; what stands now.
    fn store(&mut self, ctx: &Context<'_>, commit: MemberCommit) -> Committed {
        let stands = self.offsets.get(&commit.partition).and_then(OffsetRecord::committed);
        if let Some(stands) = stands.filter(|stands| commit.epoch.is_some() && stands.offset >= commit.offset) {
            return stands.clone();
        }
        let committed = Committed {
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            committed_at: ctx.now.wall,
            metadata: String::new(),
        };
        self.offsets.insert(commit.partition, OffsetRecord::Committed(committed.clone()));
        committed
    }
}

/// Whether a member holds a partition, or has to give it up and has not yet.
pub(super) fn is_held(member: &MemberRecord, partition: &TopicPartition) -> bool {
    member.places.get(partition).is_some_and(|place| place.hold.epoch().is_some())
}

/// Whether a commit counts: its member holds the partition, and has without a break since the delivery.
fn judge(member: &MemberRecord, commit: &MemberCommit) -> Result<(), Refusal> {
    let held = member.places.get(&commit.partition).and_then(|place| place.hold.epoch());
    match (held, commit.epoch) {
        (None, _) => Err(Refusal::NotHeld),
        (Some(held), Some(delivered)) if held != delivered => Err(Refusal::LostSince),
        (Some(_), _) => Ok(()),
    }
}
