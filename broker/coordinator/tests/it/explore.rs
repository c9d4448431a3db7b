//! Every order of events in small groups, by a model checker: members that join, fetch, send heartbeats, commit and leave
//! while answers are lost, time passes, assignors are slow and the coordinator is loaded anew.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_coordinator::{
    AssignTask, AssignmentEpoch, Coordinator, CoordinatorOptions, GroupState, MemberCommit, MemberError, MemberView,
    NewMember, Now, Step,
};
use levada_extension::TopicPartition;
use levada_model::{LeaderEpoch, MemberId, Offset, Tick, Timestamp};
use stateright::{Model, Property};

use crate::kit::{Topics, group, member, new_member, partition, well};
use crate::printed::{Printed, explore};

const PARTITIONS: u32 = 2;
const OPTIONS: CoordinatorOptions =
    CoordinatorOptions { initial_rebalance_delay_ms: 0, rebalance_interval_ms: 1, offsets_retention_ms: 1_000 };
/// Rounds of everybody fetching within which a group comes to rest from any state.
const ROUNDS_TO_REST: u64 = 6;

/// Fewer states would mean that little was tried.
const STATES_MIN: usize = 5_000;
/// How much is explored.
#[derive(Clone, Copy)]
struct Small {
    clients: usize,
    joins: usize,
    ticks: u64,
    restarts: usize,
    /// Whether there are heartbeats and commits too, and answers that get lost.
    all: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Join(usize),
    /// The answer gets lost, or does not.
    Fetch(usize, bool),
    Heartbeat(usize, bool),
    Commit(usize, u32),
    Leave(usize),
    Answer,
    Pass,
    Restart,
}

/// A process that is, or was, a member.
#[derive(Clone, Debug, Default)]
struct Client {
    id: Option<MemberId>,
    /// What it was delivered last of each partition: the holding, as its cursor has it.
    cursor: BTreeMap<TopicPartition, AssignmentEpoch>,
}

#[derive(Clone, Debug)]
struct State {
    coordinator: Coordinator,
    log: BTreeMap<Bytes, Bytes>,
    tasks: Vec<AssignTask>,
    clients: Vec<Client>,
    joins: usize,
    restarts: usize,
    tick: u64,
}

impl State {
    fn now(&self) -> Now {
        Now { tick: Tick(self.tick), wall: Timestamp(0) }
    }

    fn take<T>(&mut self, step: Step<T>) -> T {
        for record in step.records {
            match record.value {
                Some(value) => drop(self.log.insert(record.key, value)),
                None => drop(self.log.remove(&record.key)),
            }
        }
        self.tasks.extend(step.assign);
        step.answer
    }

    fn join(&mut self, client: usize, topics: &Topics) {
        let id = format!("{}{}", ["A", "B", "C"][client], self.joins);
        let new =
            NewMember { session_timeout_ms: 3, rebalance_timeout_ms: 2, max_poll_interval_ms: 4, ..new_member(&id) };
        self.joins += 1;
        let step = self.coordinator.join(self.now(), topics, &group(), new);
        self.take(step).expect("it may join");
        self.clients[client] = Client { id: Some(member(&id)), cursor: BTreeMap::new() };
    }

    fn ask(
        &mut self,
        client: usize,
        lost: bool,
        ask: impl FnOnce(&mut Coordinator, Now, &MemberId) -> Step<Result<MemberView, MemberError>>,
    ) -> bool {
        let Some(id) = self.clients[client].id.clone() else { return false };
        let now = self.now();
        let step = ask(&mut self.coordinator, now, &id);
        let answer = self.take(step);
        if lost {
            return true;
        }
        self.clients[client] = match answer {
            Ok(view) => {
                let kept = view.holdings.iter().map(|holding| (holding.partition, holding.epoch));
                Client { id: Some(id), cursor: kept.collect() }
            }
            Err(_) => Client::default(),
        };
        true
    }

    fn fetch(&mut self, client: usize, lost: bool) -> bool {
        self.ask(client, lost, |coordinator, now, id| coordinator.poll(now, &group(), id, false))
    }

    fn commit(&mut self, client: usize, index: u32) -> bool {
        let Client { id: Some(id), cursor } = self.clients[client].clone() else { return false };
        let Some(epoch) = cursor.get(&partition(index)) else { return false };
        let step = self.coordinator.commit(self.now(), &group(), &id, vec![commit(index, Some(*epoch))]);
        drop(self.take(step));
        true
    }

    fn leave(&mut self, client: usize) -> bool {
        let Some(id) = self.clients[client].id.take() else { return false };
        let step = self.coordinator.leave(self.now(), &group(), &id);
        drop(self.take(step));
        self.clients[client] = Client::default();
        true
    }

    fn answer(&mut self) -> bool {
        if self.tasks.is_empty() {
            return false;
        }
        let task = self.tasks.remove(0);
        let step = self.coordinator.assigned(self.now(), &group(), task.token, well(&task));
        self.take(step);
        true
    }

    fn pass(&mut self, topics: &Topics) {
        self.tick += 1;
        let step = self.coordinator.tick(self.now(), topics);
        self.take(step);
    }

    fn restart(&mut self) {
        self.restarts += 1;
        self.coordinator = Coordinator::new(OPTIONS);
        for (key, value) in &self.log {
            self.coordinator.replay(key, Some(value)).expect("it can be read");
        }
        self.tasks.clear();
        let step = self.coordinator.loaded(self.now());
        assert!(step.records.is_empty(), "an undamaged log is consistent");
    }

    fn printed(self) -> Printed<Self> {
        Printed::new(self, |state| {
            let open: Vec<_> = state.tasks.iter().map(|task| task.token).collect();
            format!("{:?}", (&state.coordinator, open, &state.clients, state.joins, state.restarts, state.tick))
        })
    }

    /// The members for whom a commit of the partition would count: any, or one from what a client was delivered.
    fn could_commit(&self, index: u32) -> usize {
        let mut copy = self.coordinator.clone();
        let mut counts = |id: &MemberId, epoch| {
            let answer = copy.commit(self.now(), &group(), id, vec![commit(index, epoch)]).answer;
            answer.is_ok_and(|answer| answer[0].is_ok())
        };
        let ids = self.clients.iter().filter_map(|client| client.id.clone());
        let explicit = ids.filter(|id| counts(id, None)).count();
        let cursors = self.clients.iter().filter(|client| {
            let epoch = client.cursor.get(&partition(index)).copied();
            client.id.as_ref().is_some_and(|id| epoch.is_some() && counts(id, epoch))
        });
        cursors.count().max(explicit)
    }

    /// Whether the group comes to rest if everybody who is a member fetches and assignors answer.
    fn comes_to_rest(&self, topics: &Topics) -> bool {
        let mut state = self.clone();
        for _ in 0..ROUNDS_TO_REST {
            while state.answer() {}
            for client in 0..state.clients.len() {
                state.fetch(client, false);
            }
            state.pass(topics);
        }
        let Some(view) = state.coordinator.group(&group()) else { return true };
        let held: usize = view.members.iter().map(|member| member.view.holdings.len()).sum();
        view.state == GroupState::Empty || (view.state == GroupState::Stable && held == PARTITIONS as usize)
    }
}

fn commit(index: u32, epoch: Option<AssignmentEpoch>) -> MemberCommit {
    MemberCommit { partition: partition(index), offset: Offset(1), leader_epoch: LeaderEpoch(0), epoch }
}

impl Small {
    fn world(self) -> Topics {
        let mut world = Topics::default();
        world.set("t", 1, PARTITIONS);
        world
    }
}

impl Model for Small {
    type State = Printed<State>;
    type Action = Action;

    fn init_states(&self) -> Vec<Printed<State>> {
        let state = State {
            coordinator: Coordinator::new(OPTIONS),
            log: BTreeMap::new(),
            tasks: Vec::new(),
            clients: vec![Client::default(); self.clients],
            joins: 0,
            restarts: 0,
            tick: 0,
        };
        vec![state.printed()]
    }

    fn actions(&self, state: &Printed<State>, actions: &mut Vec<Action>) {
        for client in 0..self.clients {
            if state.clients[client].id.is_none() {
                actions.extend((state.joins < self.joins).then_some(Action::Join(client)));
                continue;
            }
            actions.push(Action::Fetch(client, false));
            if self.all {
                let more =
                    [Action::Fetch(client, true), Action::Heartbeat(client, false), Action::Heartbeat(client, true)];
                actions.extend(more);
                actions.extend((0..PARTITIONS).map(|index| Action::Commit(client, index)));
            }
            actions.push(Action::Leave(client));
        }
        actions.push(Action::Answer);
        actions.extend((state.tick < self.ticks).then_some(Action::Pass));
        actions.extend((state.restarts < self.restarts).then_some(Action::Restart));
    }

    fn next_state(&self, before: &Printed<State>, action: Action) -> Option<Printed<State>> {
        let mut state = State::clone(before);
        let done = match action {
            Action::Join(client) => {
                state.join(client, &self.world());
                true
            }
            Action::Fetch(client, lost) => state.fetch(client, lost),
            Action::Heartbeat(client, lost) => {
                state.ask(client, lost, |coordinator, now, id| coordinator.heartbeat(now, &group(), id))
            }
            Action::Commit(client, index) => state.commit(client, index),
            Action::Leave(client) => state.leave(client),
            Action::Answer => state.answer(),
            Action::Pass => {
                state.pass(&self.world());
                true
            }
            Action::Restart => {
                state.restart();
                true
            }
        };
        done.then(|| state.printed())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a commit of a partition counts for one member at most", |_, state: &Printed<State>| {
                (0..PARTITIONS).all(|index| state.could_commit(index) <= 1)
            }),
            Property::always(
                "the group comes to rest, and everything is held",
                |small: &Small, state: &Printed<State>| state.comes_to_rest(&small.world()),
            ),
            Property::always("the log says what the coordinator knows", |_, state: &Printed<State>| {
                let known = state.coordinator.records().into_iter();
                known.map(|record| (record.key, record.value.expect("a value"))).collect::<BTreeMap<_, _>>()
                    == state.log
            }),
            Property::sometimes("a partition moves", |_, state: &Printed<State>| {
                let view = state.coordinator.group(&group());
                view.is_some_and(|view| view.members.iter().flat_map(|m| &m.view.holdings).any(|h| h.epoch.0 > 1))
            }),
        ]
    }
}

#[test]
fn in_every_order_of_events_of_two_members_no_partition_has_two_owners_and_the_group_comes_to_rest() {
    explore(Small { clients: 2, joins: 2, ticks: 3, restarts: 0, all: true }, STATES_MIN);
}

#[test]
fn in_every_order_of_events_of_three_members_no_partition_has_two_owners_and_the_group_comes_to_rest() {
    explore(Small { clients: 3, joins: 3, ticks: 2, restarts: 0, all: false }, STATES_MIN);
}

#[test]
fn in_every_order_of_events_with_a_restart_no_partition_has_two_owners_and_the_group_comes_to_rest() {
    explore(Small { clients: 2, joins: 2, ticks: 2, restarts: 1, all: true }, STATES_MIN);
}
