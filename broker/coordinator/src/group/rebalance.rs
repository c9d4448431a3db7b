//! Rebalances: when one is due, what the assignor is asked, and how its answer is put in force.
//!
//! Something that changes the group makes a rebalance due. It starts at the next tick, `rebalance_interval_ms` after the
//! start of the one before at the earliest, and asks the assignor that most members prefer. The answer is put in force for
//! those who are members still; if the group changed while the assignor worked, another rebalance follows, so that joins
//! without end delay nobody for ever. An answer that says what is in force already makes no new generation. Nothing that
//! follows from an answer (giving up, a deadline) makes a rebalance due, so each change of the group makes two at most.
//!
//! An assignor that never answers does not block the group: after `ASSIGN_MS_MAX` the built-in one decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_extension::{
    Assignment, Assignor, AssignorFault, AssignorInput, AssignorMember, AssignorPartition, AssignorTopic,
    CooperativeStickyAssignor, TopicPartition, check_assignment,
};
use levada_model::{MemberId, Tick, TopicId, TopicName, limits};

use super::{Context, Group, Timer};
use crate::records::{Hold, Place};
use crate::terms::{AssignTask, AssignorFallback, TopicInfo, TopicsView};
use crate::timers::after;

/// Where a group's next rebalance stands. That one is due is in the group's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Rebalance {
    /// When the last one started.
    last: Option<Tick>,
    /// What the assignor is working on.
    task: Option<Task>,
}

#[derive(Clone, Debug)]
struct Task {
    token: u64,
    assignor: Arc<str>,
    input: AssignorInput,
    /// Whether the group changed since it was asked.
    outdated: bool,
}

/// Who is to have which partition.
type Target = BTreeMap<TopicPartition, (MemberId, TopicName)>;

impl Group {
    /// Something changed that the assignment in force knows nothing of.
    pub(super) fn request_rebalance(&mut self, ctx: &Context<'_>) {
        if self.members.is_empty() {
            return;
        }
        if let Some(task) = &mut self.rebalance.task {
            task.outdated = true;
        } else if !self.head.rebalance_due {
            let earliest = self.rebalance.last.map(|last| after(last, ctx.options.rebalance_interval_ms));
            let at = earliest.map_or(ctx.now.tick, |earliest| earliest.max(ctx.now.tick));
            self.timers.set(&Timer::Rebalance, Some(at));
        }
        self.head.rebalance_due = true;
    }

    /// The first member is there: others may come within a moment.
    pub(super) fn await_first_rebalance(&mut self, ctx: &Context<'_>) {
        self.head.rebalance_due = true;
        let at = after(ctx.now.tick, ctx.options.initial_rebalance_delay_ms);
        self.timers.set(&Timer::Rebalance, Some(at));
    }

    /// The last member is gone: there is nothing to assign.
    pub(super) fn forget_rebalance(&mut self) {
        self.head.rebalance_due = false;
        self.rebalance = Rebalance::default();
        self.timers.set(&Timer::Rebalance, None);
        self.timers.set(&Timer::Assignor, None);
    }

    /// Asks the assignor.
    pub(super) fn start_rebalance(&mut self, ctx: &mut Context<'_>, topics: &dyn TopicsView) {
        self.look_at(ctx, topics);
        let input = self.assignor_input();
        let assignor = self.preferred_assignor();
        let token = *ctx.next_token;
        *ctx.next_token += 1;
        self.rebalance.last = Some(ctx.now.tick);
        self.timers.set(&Timer::Assignor, Some(after(ctx.now.tick, limits::ASSIGN_MS_MAX)));
        let task =
            AssignTask { group: self.name.clone(), token, assignor: Arc::clone(&assignor), input: input.clone() };
        ctx.assign.push(task);
        self.rebalance.task = Some(Task { token, assignor, input, outdated: false });
    }

    /// The assignor's answer; nothing, if it is not to the question that is open.
    pub(crate) fn assigned(&mut self, ctx: &mut Context<'_>, token: u64, answer: Result<Assignment, AssignorFault>) {
        if self.rebalance.task.as_ref().is_some_and(|task| task.token == token) {
            self.finish_rebalance(ctx, answer);
        }
    }

    /// The assignor has not answered in time.
    pub(super) fn assignor_late(&mut self, ctx: &mut Context<'_>) {
        let reason = format!("it gave no answer within {} ms", limits::ASSIGN_MS_MAX);
        self.finish_rebalance(ctx, Err(AssignorFault { reason }));
    }

    fn finish_rebalance(&mut self, ctx: &mut Context<'_>, answer: Result<Assignment, AssignorFault>) {
        let task = self.rebalance.task.take().expect("an answer is to a question");
        self.timers.set(&Timer::Assignor, None);
        let (assignment, fault) = match checked(&task.input, answer) {
            Ok(assignment) => (assignment, None),
            Err(reason) => (built_in(&task.input), Some(reason)),
        };
        let target = self.target(&task.input, assignment);
        if !self.is_in_force(&target) {
            self.head.generation = self.head.generation.next(ctx.now.wall);
            self.put_in_force(ctx, &target);
        }
        let generation = self.head.generation;
        let assignor = Arc::clone(&task.assignor);
        self.head.fallback = fault.map(|reason| AssignorFallback { generation, assignor, reason });
        self.head.assignor = Some(task.assignor);
        self.head.rebalance_due = false;
        if task.outdated {
            self.request_rebalance(ctx);
        }
        // Those who have nothing wait for just this word.
        let idle = self.members.iter().filter(|(_, member)| member.places.is_empty());
        ctx.changed.extend(idle.map(|(id, _)| id.clone()));
    }

    fn preferred_assignor(&self) -> Arc<str> {
        let most = self.votes.values().max().expect("every member asks for one");
        let (name, _) = self.votes.iter().find(|(_, votes)| *votes == most).expect("the maximum is among them");
        Arc::clone(name)
    }

    fn assignor_input(&self) -> AssignorInput {
        let held = |(partition, place): (&TopicPartition, &Place)| place.hold.epoch().map(|_| *partition);
        let mut members: Vec<AssignorMember> = Vec::with_capacity(self.members.len());
        // Members of a group mostly subscribe to the same: what was found for one is taken for the next.
        let mut before: &[TopicName] = &[];
        for (id, member) in self.members.iter() {
            let subscribed = match members.last() {
                Some(last) if before == member.topics => last.subscribed.clone(),
                _ => member.topics.iter().filter_map(|name| self.seen.get(name).map(|info| info.id)).collect(),
            };
            before = &member.topics;
            members.push(AssignorMember {
                member_id: id.clone(),
                instance_id: member.instance_id.clone(),
                subscribed,
                owned: member.places.iter().filter_map(held).collect(),
            });
        }
        let partition = |partition: &_| AssignorPartition { partition: *partition, lag: None };
        let topics = self.seen.iter().map(|(name, info)| AssignorTopic {
            topic: info.id,
            name: name.clone(),
            partitions: info.partitions.iter().map(partition).collect(),
        });
        AssignorInput::new(members, topics.collect())
    }

    /// What an answer means now: partitions that are gone are left out; what was meant for a member that has left stays
    /// with who holds it, or free.
    fn target(&self, input: &AssignorInput, assignment: Assignment) -> Target {
        let known: BTreeMap<TopicId, (&TopicName, &TopicInfo)> =
            self.seen.iter().map(|(name, info)| (info.id, (name, info))).collect();
        let mut target = Target::new();
        for (member, partitions) in input.members.iter().zip(assignment) {
            let owner = self.owner(member);
            for partition in partitions {
                let Some((name, info)) = known.get(&partition.topic) else { continue };
                if info.partitions.binary_search(&partition.partition).is_err() {
                    continue;
                }
                let holder = || self.holders.get(&partition);
                let reads = |owner: &&MemberId| **owner == member.member_id || self.subscribes(owner, name);
                if let Some(owner) = owner.filter(reads).or_else(holder) {
                    target.insert(partition, (owner.clone(), (*name).clone()));
                }
            }
        }
        target
    }

    /// Who a member of the input is now: itself, or the one that took over its instance id.
    fn owner<'a>(&'a self, member: &'a AssignorMember) -> Option<&'a MemberId> {
        if self.members.contains(&member.member_id) {
            return Some(&member.member_id);
        }
        self.instances.get(member.instance_id.as_ref()?)
    }

    fn subscribes(&self, member: &MemberId, topic: &TopicName) -> bool {
        self.members.get(member).is_some_and(|member| member.topics.contains(topic))
    }

    /// Whether everybody has, or waits for, what the target says, and nothing else.
    fn is_in_force(&self, target: &Target) -> bool {
        let mut had = 0;
        for (id, member) in self.members.iter() {
            for (partition, place) in &member.places {
                let meant = target.get(partition).is_some_and(|(owner, _)| owner == id);
                let kept = !matches!(place.hold, Hold::Revoking(_));
                if meant != kept {
                    return false;
                }
                had += usize::from(kept);
            }
        }
        had == target.len()
    }

    fn put_in_force(&mut self, ctx: &mut Context<'_>, target: &Target) {
        let mut watched = BTreeSet::new();
        for (id, partition, change) in self.changes(target) {
            match change {
                Change::Revoke { within_ms } => self.revoke(ctx, &id, partition, after(ctx.now.tick, within_ms)),
                Change::Restore => self.restore(ctx, &id, partition),
                Change::Forget => self.wait_no_more(&id, partition),
            }
            watched.insert(id);
        }
        watched.iter().for_each(|id| self.arm(id));
        for (partition, (owner, topic)) in target {
            if self.members.get(owner).is_some_and(|member| member.places.contains_key(partition)) {
                continue;
            }
            if self.holders.contains_key(partition) {
                self.wait_for(owner, *partition, topic.clone());
            } else {
                self.begin(ctx, owner, *partition, topic.clone());
            }
        }
    }

    /// What members have or wait for and is to change.
    fn changes(&self, target: &Target) -> Vec<(MemberId, TopicPartition, Change)> {
        let mut changes = Vec::new();
        for (id, member) in self.members.iter() {
            for (partition, place) in &member.places {
                let meant = target.get(partition).is_some_and(|(owner, _)| owner == id);
                let change = match place.hold {
                    Hold::Owned(_) if !meant => Change::Revoke { within_ms: member.rebalance_timeout_ms },
                    Hold::Revoking(_) if meant => Change::Restore,
                    Hold::Pending if !meant => Change::Forget,
                    _ => continue,
                };
                changes.push((id.clone(), *partition, change));
            }
        }
        changes
    }
}

/// What is to change about a partition that a member has or waits for.
enum Change {
    Revoke { within_ms: u64 },
    Restore,
    Forget,
}

/// The answer, if it can be used.
fn checked(input: &AssignorInput, answer: Result<Assignment, AssignorFault>) -> Result<Assignment, String> {
    let cut = |reason: String| reason.chars().take(limits::DETAIL_CHARS_MAX).collect::<String>();
    let assignment = answer.map_err(|fault| cut(fault.reason))?;
    check_assignment(input, &assignment).map_err(|error| cut(error.to_string()))?;
    Ok(assignment)
}

fn built_in(input: &AssignorInput) -> Assignment {
    let assignment = CooperativeStickyAssignor.assign(input).expect("the built-in assignor always answers");
    let check = check_assignment(input, &assignment);
    assert!(check.is_ok(), "the built-in assignor's answers are right: {check:?}");
    assignment
}
