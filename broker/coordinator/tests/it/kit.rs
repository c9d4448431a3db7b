//! A coordinator with a clock, topics and a log, for tests. After every step the log, compacted, must be what the
//! coordinator says that it knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use levada_coordinator::{
    AssignTask, ClassicAnswer, Committed, Coordinator, CoordinatorOptions, DeleteError, GroupState, GroupView, Holding,
    JoinError, MarkerError, MemberCommit, MemberError, MemberView, NewMember, Now, OffsetsMarker, Outcome,
    PendingError, Producer, Refusal, StandaloneError, Start, Step, TopicInfo, TopicsView,
};
use levada_extension::{Assignment, AssignorFault, TopicPartition, native_assignor};
use levada_model::{
    GroupName, InstanceId, LeaderEpoch, MemberId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Tick, Timestamp,
    TopicId, TopicName,
};
use uuid::Uuid;

use crate::log::{COMPACTIONS, Log};

pub(crate) const OPTIONS: CoordinatorOptions = CoordinatorOptions {
    initial_rebalance_delay_ms: 3_000,
    rebalance_interval_ms: 1_000,
    offsets_retention_ms: 120_000,
};

/// Topics that tests change.
#[derive(Clone, Default)]
pub(crate) struct Topics {
    version: u64,
    topics: BTreeMap<TopicName, TopicInfo>,
}

impl Topics {
    /// Creates a topic, anew if it is there, or grows it under its id.
    pub(crate) fn set(&mut self, name: &str, id: u128, partitions: u32) {
        self.version += 1;
        let partitions = (0..partitions).map(PartitionIndex).collect();
        self.topics.insert(topic(name), TopicInfo { id: TopicId(Uuid::from_u128(id)), partitions });
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.version += 1;
        self.topics.remove(&topic(name));
    }

    pub(crate) fn id(&self, name: &str) -> Option<u128> {
        self.topics.get(&topic(name)).map(|info| info.id.0.as_u128())
    }

    /// All partitions by topic.
    pub(crate) fn all(&self) -> BTreeMap<TopicName, Vec<TopicPartition>> {
        let all = |info: &TopicInfo| {
            let topic = info.id;
            info.partitions.iter().map(|index| TopicPartition { topic, partition: *index }).collect()
        };
        self.topics.iter().map(|(name, info)| (name.clone(), all(info))).collect()
    }
}

impl TopicsView for Topics {
    fn version(&self) -> u64 {
        self.version
    }

    fn topic(&self, name: &TopicName) -> Option<TopicInfo> {
        self.topics.get(name).cloned()
    }

    fn has(&self, id: TopicId) -> bool {
        self.topics.values().any(|info| info.id == id)
    }
}

/// Who answers the assignor's tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The built-in assignor that was asked for, at once.
    AtOnce,
    /// The test.
    ByHand,
}

/// A coordinator in its world, with one group.
pub(crate) struct World {
    pub(crate) coordinator: Coordinator,
    pub(crate) topics: Topics,
    pub(crate) answers: Answers,
    pub(crate) tasks: Vec<AssignTask>,
    /// The members named by the last step.
    pub(crate) changed: BTreeSet<MemberId>,
    /// Answers to classic members that no test has taken yet, by token.
    pub(crate) replies: BTreeMap<u64, ClassicAnswer>,
    /// The records of the last step.
    pub(crate) written: usize,
    /// All that was written.
    pub(crate) log: Log,
    /// What of it counts: the newest of each key.
    visible: BTreeMap<Bytes, Bytes>,
    restarts: usize,
    options: CoordinatorOptions,
    tick: u64,
    wall: i64,
}

impl World {
    /// Topic `t`, with so many partitions.
    pub(crate) fn new(partitions: u32) -> Self {
        let mut topics = Topics::default();
        topics.set("t", 1, partitions);
        Self {
            coordinator: Coordinator::new(OPTIONS),
            topics,
            answers: Answers::AtOnce,
            tasks: Vec::new(),
            changed: BTreeSet::new(),
            replies: BTreeMap::new(),
            written: 0,
            log: Log::default(),
            visible: BTreeMap::new(),
            restarts: 0,
            options: OPTIONS,
            tick: 1_000_000,
            // Before 2020, so that first generations are 1.
            wall: 1_500_000_000_000,
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now { tick: Tick(self.tick), wall: Timestamp(self.wall) }
    }

    /// Milliseconds since the start of the test's clock.
    pub(crate) fn tick(&self) -> Tick {
        Tick(self.tick)
    }

    /// Sets the time of day.
    pub(crate) fn set_wall(&mut self, wall: i64) {
        self.wall = wall;
    }

    /// Lets time pass, and does at each time what is due then.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.tick + millis;
        loop {
            let due = self.coordinator.next_due().map_or(end, |due| due.0.clamp(self.tick, end));
            self.wall += i64::try_from(due - self.tick).expect("short");
            self.tick = due;
            self.run();
            if self.tick == end && self.coordinator.next_due().is_none_or(|due| due.0 > end) {
                return;
            }
        }
    }

    /// Lets time pass without doing what is due.
    pub(crate) fn advance(&mut self, millis: u64) {
        self.tick += millis;
        self.wall += i64::try_from(millis).expect("short");
    }

    /// Does what is due now.
    pub(crate) fn run(&mut self) {
        let step = self.coordinator.tick(self.now(), &self.topics);
        self.take(step);
    }

    pub(crate) fn join(&mut self, member: NewMember) -> Result<MemberView, JoinError> {
        let step = self.coordinator.join(self.now(), &self.topics, &group(), member);
        self.take(step)
    }

    /// A member joins with the usual times.
    pub(crate) fn joins(&mut self, id: &str) {
        self.join(new_member(id)).expect("it may join");
    }

    /// The same without a look at the whole log, for groups of thousands.
    pub(crate) fn coordinator_join(&mut self, id: &str) {
        let step = self.coordinator.join(self.now(), &self.topics, &group(), new_member(id));
        self.log.append(&step);
        step.answer.expect("it may join");
        for record in step.records {
            self.visible.insert(record.key, record.value.expect("nothing is removed"));
        }
    }

    pub(crate) fn poll(&mut self, id: &str) -> Result<MemberView, MemberError> {
        let step = self.coordinator.poll(self.now(), &group(), &member(id), false);
        self.take(step)
    }

    pub(crate) fn look(&mut self, id: &str) -> Result<MemberView, MemberError> {
        let step = self.coordinator.poll(self.now(), &group(), &member(id), true);
        self.take(step)
    }

    pub(crate) fn heartbeat(&mut self, id: &str) -> Result<MemberView, MemberError> {
        let step = self.coordinator.heartbeat(self.now(), &group(), &member(id));
        self.take(step)
    }

    pub(crate) fn leave(&mut self, id: &str) -> Result<(), MemberError> {
        let step = self.coordinator.leave(self.now(), &group(), &member(id));
        self.take(step)
    }

    /// One partition of `t` is committed: from a cursor with its epoch, or explicitly.
    pub(crate) fn commit(
        &mut self,
        id: &str,
        index: u32,
        offset: u64,
        epoch: Option<u32>,
    ) -> Result<Result<u64, Refusal>, MemberError> {
        self.commit_at(id, partition(index), offset, epoch)
    }

    /// The same for a partition of any topic.
    pub(crate) fn commit_at(
        &mut self,
        id: &str,
        partition: TopicPartition,
        offset: u64,
        epoch: Option<u32>,
    ) -> Result<Result<u64, Refusal>, MemberError> {
        let commit = MemberCommit {
            partition,
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            epoch: epoch.map(levada_coordinator::AssignmentEpoch),
        };
        let step = self.coordinator.commit(self.now(), &group(), &member(id), vec![commit]);
        let mut answer = self.take(step)?;
        assert_eq!(answer.len(), 1);
        Ok(answer.remove(0).map(|committed| committed.offset.0))
    }

    pub(crate) fn commit_standalone(&mut self, index: u32, offset: u64) {
        let committed = Committed {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            committed_at: self.now().wall,
            metadata: String::new(),
        };
        self.commit_standalone_at(partition(index), committed).expect("no member is active");
    }

    /// The same for a partition of any topic.
    pub(crate) fn commit_standalone_at(
        &mut self,
        partition: TopicPartition,
        committed: Committed,
    ) -> Result<(), StandaloneError> {
        let step = self.coordinator.commit_standalone(self.now(), &group(), vec![(partition, committed)]);
        self.take(step)
    }

    pub(crate) fn delete(&mut self) -> Result<(), DeleteError> {
        let step = self.coordinator.delete(self.now(), &group());
        self.take(step)
    }

    /// Answers the oldest open task.
    pub(crate) fn answer(&mut self, answer: Result<Assignment, AssignorFault>) {
        let task = self.tasks.remove(0);
        let step = self.coordinator.assigned(self.now(), &task.group, task.token, answer);
        self.take(step);
    }

    /// Answers a task that is not open.
    pub(crate) fn answer_wrongly(&mut self) {
        let step = self.coordinator.assigned(self.now(), &group(), u64::MAX, Ok(Vec::new()));
        self.take(step);
        assert_eq!(self.written, 0);
    }

    /// Answers the oldest open task as the built-in assignor does.
    pub(crate) fn answer_well(&mut self) {
        let answer = well(&self.tasks[0]);
        self.answer(answer);
    }

    /// Loads a new coordinator from the log, which was compacted meanwhile, or was not.
    pub(crate) fn restart(&mut self) {
        self.restarts += 1;
        if let Some(how) = COMPACTIONS.get(self.restarts % (COMPACTIONS.len() + 1)) {
            self.log = self.log.compacted(*how);
        }
        let mut coordinator = self.log.replayed(&self.options);
        let step = coordinator.loaded(self.now());
        assert!(step.records.is_empty(), "an undamaged log is consistent");
        self.coordinator = coordinator;
        self.tasks.clear();
        self.take(step);
    }

    pub(crate) fn describe(&self) -> GroupView {
        self.coordinator.group(&group()).expect("the group is there")
    }

    pub(crate) fn state(&self) -> GroupState {
        self.describe().state
    }

    /// The partitions of `t` that a member holds, without those that it is to give up.
    pub(crate) fn held(&self, id: &str) -> Vec<u32> {
        self.holdings(id).iter().filter(|holding| !holding.revoked).map(|h| h.partition.partition.0).collect()
    }

    /// The partitions of `t` that a member is to give up.
    pub(crate) fn revoked(&self, id: &str) -> Vec<u32> {
        self.holdings(id).iter().filter(|holding| holding.revoked).map(|h| h.partition.partition.0).collect()
    }

    pub(crate) fn holdings(&self, id: &str) -> Vec<Holding> {
        let view = self.describe();
        let member = view.members.iter().find(|summary| summary.view.member_id == member(id));
        member.map(|summary| summary.view.holdings.clone()).unwrap_or_default()
    }

    pub(crate) fn epoch(&self, id: &str, index: u32) -> u32 {
        let holdings = self.holdings(id);
        holdings.iter().find(|holding| holding.partition == partition(index)).expect("it is held").epoch.0
    }

    /// An offset of a partition of `t` is taken into a transaction, from outside of the members.
    pub(crate) fn add(&mut self, producer: Producer, index: u32, offset: u64) -> Result<(), PendingError> {
        self.add_as(None, producer, vec![(partition(index), offset)])
    }

    /// Offsets are taken into a transaction, by a member or from outside of them.
    pub(crate) fn add_as(
        &mut self,
        by: Option<&str>,
        producer: Producer,
        offsets: Vec<(TopicPartition, u64)>,
    ) -> Result<(), PendingError> {
        let now = self.now();
        let committed = |(at, offset)| {
            let leader_epoch = LeaderEpoch(0);
            let metadata = String::new();
            (at, Committed { offset: Offset(offset), leader_epoch, committed_at: now.wall, metadata })
        };
        let commits = offsets.into_iter().map(committed).collect();
        let by = by.map(member);
        let step = self.coordinator.add_transaction_offsets(now, &group(), by.as_ref(), producer, commits);
        self.take(step)
    }

    /// The transaction of a producer ends, by a marker of the first coordinator.
    pub(crate) fn end(&mut self, producer: Producer, outcome: Outcome) {
        self.end_by(OffsetsMarker { producer: next(producer), coordinator_epoch: 1, outcome }).expect("it is taken");
    }

    pub(crate) fn end_by(&mut self, marker: OffsetsMarker) -> Result<(), MarkerError> {
        let step = self.coordinator.end_transaction(self.now(), marker);
        self.take(step)
    }

    /// Whatever a compaction leaves of the log gives the same coordinator.
    pub(crate) fn check_replays(&self) {
        self.log.check_replays(&self.coordinator, self.now(), &self.options);
    }

    /// The committed offset of a partition of `t`.
    pub(crate) fn committed(&self, index: u32) -> Option<u64> {
        let view = self.coordinator.group(&group())?;
        view.offsets.iter().find(|(at, _)| *at == partition(index)).map(|(_, committed)| committed.offset.0)
    }

    /// Takes in what a step did.
    pub(crate) fn take<T>(&mut self, step: Step<T>) -> T {
        self.written = step.records.len();
        if self.log.append(&step) {
            self.written = 1;
            self.visible = self.log.visible();
        }
        for record in step.records {
            match record.value {
                Some(value) => drop(self.visible.insert(record.key, value)),
                None => {
                    let is_stored = self.visible.remove(&record.key).is_some() || self.log.is_pending(&record.key);
                    assert!(is_stored, "only what is stored is removed");
                }
            }
        }
        let known = self.coordinator.records().into_iter();
        let known: BTreeMap<_, _> = known.map(|record| (record.key, record.value.expect("a value"))).collect();
        assert!(known == self.visible, "the records of all steps say what the coordinator knows");
        self.changed = step.changed.into_iter().map(|(_, member)| member).collect();
        for reply in step.replies {
            let before = self.replies.insert(reply.token, reply.answer);
            assert!(before.is_none(), "a request is answered once");
        }
        self.tasks.extend(step.assign);
        if self.answers == Answers::AtOnce {
            while !self.tasks.is_empty() {
                self.answer_well();
            }
        }
        step.answer
    }
}

/// What the built-in assignor answers.
pub(crate) fn well(task: &AssignTask) -> Result<Assignment, AssignorFault> {
    native_assignor(&task.assignor).expect("a built-in one").assign(&task.input)
}

/// What the assignor that is asked for answers if it is built in, else another.
pub(crate) fn well_or_built_in(task: &AssignTask) -> Result<Assignment, AssignorFault> {
    native_assignor(&task.assignor)
        .unwrap_or_else(|| native_assignor("round-robin").expect("it is"))
        .assign(&task.input)
}

/// A producer in the epoch of one of its transactions.
pub(crate) fn producer(id: i64, epoch: i16) -> Producer {
    Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

/// The producer in the epoch of the marker, and of its next transaction.
pub(crate) fn next(producer: Producer) -> Producer {
    Producer { epoch: ProducerEpoch(producer.epoch.0 + 1), ..producer }
}

/// A member of session 45 s, rebalance time-out 60 s, fetch interval 300 s.
pub(crate) fn new_member(id: &str) -> NewMember {
    NewMember {
        member_id: member(id),
        instance_id: None,
        client: "test".to_owned(),
        topics: vec![topic("t")],
        assignor: Arc::from("cooperative-sticky"),
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 60_000,
        max_poll_interval_ms: 300_000,
        start: Start::Earliest,
    }
}

/// The same with an instance id.
pub(crate) fn static_member(id: &str, instance: &str) -> NewMember {
    NewMember { instance_id: Some(instance_id(instance)), ..new_member(id) }
}

pub(crate) fn group() -> GroupName {
    GroupName::new("g").expect("within the rule")
}

pub(crate) fn member(id: &str) -> MemberId {
    MemberId::new(id).expect("within the rule")
}

pub(crate) fn instance_id(id: &str) -> InstanceId {
    InstanceId::new(id).expect("within the rule")
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).expect("within the rule")
}

/// A partition of `t`.
pub(crate) fn partition(index: u32) -> TopicPartition {
    TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(index) }
}
