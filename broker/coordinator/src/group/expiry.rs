//! How long the offsets of a group without members are kept: those of processors as long as nobody deletes them.
//!
//! Never while there are members. From the moment when the last one left, or from the last commit to a group that has
//! none, for `offsets_retention_ms`, counted in ticks; only what had passed before a restart is taken from the time of
//! day. Then every offset becomes a mark that it has expired, which tells a member who comes late why it begins anew; a
//! group of marks alone is not shown, and goes after the same time once more.

use levada_extension::TopicPartition;

use super::{Context, Group, Timer};
use crate::records::{GroupRecord, OffsetRecord};
use crate::terms::DeleteError;
use crate::timers::{after, after_stored};

impl Group {
    /// The last member is gone.
    pub(super) fn emptied(&mut self, ctx: &Context<'_>) {
        self.forget_rebalance();
        self.seen.clear();
        self.head.empty_since = Some(ctx.now.wall);
        self.keep_for_a_while(ctx);
    }

    /// The time of retention begins.
    pub(super) fn keep_for_a_while(&mut self, ctx: &Context<'_>) {
        if self.name.is_internal() {
            return;
        }
        let at = after(ctx.now.tick, ctx.options.offsets_retention_ms);
        self.timers.set(&Timer::Expiry, Some(at));
    }

    /// The time of retention has begun before a restart.
    pub(super) fn keep_for_the_rest(&mut self, ctx: &Context<'_>) {
        if self.name.is_internal() {
            return;
        }
        let written = self.offsets.iter().map(|(_, record)| record.written_at());
        let since = written.chain(self.pending.written_at()).chain(self.head.empty_since).max().unwrap_or(ctx.now.wall);
        let at = after_stored(ctx.now, since, ctx.options.offsets_retention_ms);
        self.timers.set(&Timer::Expiry, Some(at));
    }

    /// The time of retention has passed. Where a transaction with offsets of the group is open, somebody is at work on it:
    /// it begins anew, since a commit is about to come or the transaction ends by its own time.
    pub(super) fn expire(&mut self, ctx: &mut Context<'_>) {
        if !self.pending.is_empty() {
            self.keep_for_a_while(ctx);
            return;
        }
        let committed: Vec<TopicPartition> = self.committed().map(|(partition, _)| *partition).collect();
        if committed.is_empty() {
            self.erase();
            return;
        }
        for partition in committed {
            self.offsets.insert(partition, OffsetRecord::Expired(ctx.now.wall));
        }
        self.keep_for_a_while(ctx);
    }

    /// Deletes it with what is pending, unless it has members.
    pub(crate) fn delete(&mut self) -> Result<(), DeleteError> {
        if !self.is_shown() {
            return Err(DeleteError::NotFound);
        }
        if self.active() > 0 {
            return Err(DeleteError::Active(self.active()));
        }
        self.erase();
        Ok(())
    }

    fn erase(&mut self) {
        self.drop_pending(|_| true);
        let partitions: Vec<_> = self.offsets.keys().copied().collect();
        partitions.iter().for_each(|partition| drop(self.offsets.remove(partition)));
        self.head = GroupRecord::default();
        self.timers.set(&Timer::Expiry, None);
    }
}
