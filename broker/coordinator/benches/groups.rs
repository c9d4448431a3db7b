//! What a group costs the coordinator, at 100 members over 1,000 partitions and ten times that.
//!
//! `cargo bench -p levada-coordinator`; each figure is the median of several runs. A rebalance is all of it: asking, the
//! built-in assignor, the check, putting it in force, and the records.
#![expect(clippy::print_stdout, reason = "a bench reports on its standard output")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use levada_coordinator::{
    AssignTask, Coordinator, CoordinatorOptions, CoordinatorRecord, NewMember, Now, Start, TopicInfo, TopicsView,
};
use levada_extension::native_assignor;
use levada_model::{GroupName, MemberId, PartitionIndex, Tick, Timestamp, TopicId, TopicName};
use uuid::Uuid;

const RUNS: usize = 9;

struct Topics(Vec<(TopicName, TopicInfo)>);

impl TopicsView for Topics {
    fn version(&self) -> u64 {
        1
    }

    fn topic(&self, name: &TopicName) -> Option<TopicInfo> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, info)| info.clone())
    }

    fn has(&self, id: TopicId) -> bool {
        self.0.iter().any(|(_, info)| info.id == id)
    }
}

#[derive(Clone)]
struct Group {
    coordinator: Coordinator,
    records: Vec<CoordinatorRecord>,
    tick: u64,
}

fn options() -> CoordinatorOptions {
    CoordinatorOptions { initial_rebalance_delay_ms: 1, rebalance_interval_ms: 1, offsets_retention_ms: 1_000_000 }
}

fn name() -> GroupName {
    GroupName::new("group").expect("within the rule")
}

fn member(index: usize) -> MemberId {
    MemberId::new(&format!("member-{index:05}")).expect("within the rule")
}

impl Group {
    fn new() -> Self {
        Self { coordinator: Coordinator::new(options()), records: Vec::new(), tick: 0 }
    }

    fn now(&self) -> Now {
        Now { tick: Tick(self.tick), wall: Timestamp(0) }
    }

    fn join(&mut self, topics: &Topics, index: usize) {
        let new = NewMember {
            member_id: member(index),
            instance_id: None,
            client: "bench".to_owned(),
            topics: topics.0.iter().map(|(name, _)| name.clone()).collect(),
            assignor: "cooperative-sticky".into(),
            session_timeout_ms: 45_000,
            rebalance_timeout_ms: 60_000,
            max_poll_interval_ms: 300_000,
            start: Start::Earliest,
        };
        let step = self.coordinator.join(self.now(), topics, &name(), new);
        step.answer.expect("it may join");
        self.records.extend(step.records);
    }

    fn rebalance(&mut self, topics: &Topics) {
        self.tick += 1;
        let step = self.coordinator.tick(self.now(), topics);
        let [task] = <[AssignTask; 1]>::try_from(step.assign).expect("a rebalance was due");
        let answer = native_assignor(&task.assignor).expect("a built-in one").assign(&task.input);
        let assigned = self.coordinator.assigned(self.now(), &name(), task.token, answer);
        self.records.extend(step.records.into_iter().chain(assigned.records));
    }

    fn poll(&mut self, index: usize) {
        let step = self.coordinator.poll(self.now(), &name(), &member(index), false);
        step.answer.expect("a member");
        self.records.extend(step.records);
    }
}

/// The median time of what is done to a copy of `group`.
fn median(group: &Group, mut run: impl FnMut(&mut Group)) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let mut group = black_box(group.clone());
            let start = Instant::now();
            run(&mut group);
            let time = start.elapsed();
            drop(black_box(group));
            time
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

fn report(what: &str, time: Duration) {
    println!("  {what:<56} {:>10.3} ms", time.as_secs_f64() * 1e3);
}

fn main() {
    for (members, topic_count, partition_count) in [(100, 10, 100), (1_000, 10, 1_000), (1_000, 100, 100)] {
        println!("{members} members, {topic_count} topics of {partition_count} partitions, everyone reads all");
        let topic = |index: u32| {
            let partitions = (0..partition_count).map(PartitionIndex).collect();
            let info = TopicInfo { id: TopicId(Uuid::from_u128(index.into())), partitions };
            (TopicName::new(&format!("topic-{index:03}")).expect("within the rule"), info)
        };
        let topics = Topics((0..topic_count).map(topic).collect());
        let empty = Group::new();
        let join_all = |group: &mut Group| (0..members).for_each(|index| group.join(&topics, index));
        report("all join", median(&empty, join_all));
        let mut joined = empty.clone();
        join_all(&mut joined);
        let rebalance = |group: &mut Group| group.rebalance(&topics);
        report("rebalance, from nothing", median(&joined, rebalance));
        let mut stable = joined.clone();
        rebalance(&mut stable);
        let poll_all = |group: &mut Group| (0..members).for_each(|index| group.poll(index));
        report("each fetches once, nothing changed", median(&stable, poll_all));
        let heartbeats = |group: &mut Group| {
            for index in 0..members {
                drop(black_box(group.coordinator.heartbeat(group.now(), &name(), &member(index))));
            }
        };
        report("each sends a heartbeat, nothing changed", median(&stable, heartbeats));
        let mut one_more = stable.clone();
        one_more.join(&topics, members);
        report("rebalance, one joined", median(&one_more, rebalance));
        let mut left = stable.clone();
        drop(left.coordinator.leave(left.now(), &name(), &member(members / 2)));
        report("rebalance, one left", median(&left, rebalance));
        let mut doubled = stable.clone();
        (members..2 * members).for_each(|index| doubled.join(&topics, index));
        report("rebalance, as many joined as there were", median(&doubled, rebalance));
        let mut moving = doubled.clone();
        rebalance(&mut moving);
        poll_all(&mut moving);
        report("half of all partitions move: each fetches once", median(&moving, poll_all));
        let load = |group: &mut Group| {
            let mut coordinator = Coordinator::new(options());
            for record in &group.records {
                coordinator.replay(&record.key, record.value.as_deref()).expect("it can be read");
            }
            drop(black_box(coordinator.loaded(group.now())));
        };
        let mut compacted = moving.clone();
        compacted.records = compacted.coordinator.records();
        report("loading, from a compacted log", median(&compacted, load));
        let idle = |group: &mut Group| drop(black_box(group.coordinator.tick(group.now(), &topics)));
        report("a tick with nothing due", median(&moving, idle));
    }
}
