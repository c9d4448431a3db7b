//! Every order of events of two producers of one id over two partitions, by a model checker: requests that come late or
//! twice, markers and their answers in any order, time that runs out, and a coordinator that dies between any two effects.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_coordinator::{
    BeginError, CoordinatorRecord, EndError, InitError, Now, Outcome, Participants, Producer, Progress,
    TransactionCoordinator, TransactionError, TransactionHandle, TransactionStep, WriteMarkers,
};
use levada_model::{ProducerEpoch, ProducerId, Tick, Timestamp};
use stateright::{Model, Property};

use super::kit::{OPTIONS, PATIENCE_MS, TIMEOUT_MS, participants, partition, transactional_id};
use crate::printed::{Printed, explore};

const PARTITIONS: u32 = 2;
const PRODUCER: ProducerId = ProducerId(1);

/// Fewer states would mean that little was tried.
const STATES_MIN: usize = 5_000;
/// How much is explored.
#[derive(Clone, Copy)]
struct Small {
    starts: usize,
    deaths: usize,
    time_outs: usize,
    /// Ends that come once more, as late as they like.
    lates: usize,
    /// Transactions begin in epochs below this.
    epochs: i16,
    /// Steps whose records may be on their way to the disk at once.
    on_the_way: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start(usize),
    Begin(usize),
    Add(usize, u32),
    Write(usize, u32),
    End(usize, Outcome),
    /// An end that was asked for once comes again.
    Late(usize),
    /// The oldest records on their way are durable: what waited for them happens.
    Durable,
    /// A marker gets to a partition.
    Mark(usize, u32),
    /// The coordinator hears of it.
    Heard(usize),
    TimeOut,
    Die,
}

/// What waits for records to be durable.
#[derive(Clone, Debug)]
struct Waiting {
    records: Vec<CoordinatorRecord>,
    markers: Vec<WriteMarkers>,
    answer: Option<(usize, Answer)>,
}

#[derive(Clone, Debug)]
enum Answer {
    Start(Progress<Producer>),
    Begin(Result<TransactionHandle, BeginError>),
    Add(u32, bool),
    End(Result<Progress<Producer>, EndError>),
}

/// A process that produces under the id.
#[derive(Clone, Debug, Default)]
struct Client {
    producer: Option<Producer>,
    transaction: Option<TransactionHandle>,
    added: [bool; PARTITIONS as usize],
    wrote: [bool; PARTITIONS as usize],
    /// How it wants its transaction to end, once it has said so.
    wants: Option<Outcome>,
    waits: bool,
    /// It was told that it is fenced.
    fenced: bool,
}

/// What a partition knows of the one producer.
#[derive(Clone, Debug)]
struct Partition {
    epoch: i16,
    undecided: Option<i16>,
    decided: BTreeMap<i16, Outcome>,
}

#[derive(Clone, Debug)]
struct State {
    coordinator: TransactionCoordinator,
    log: BTreeMap<Bytes, Bytes>,
    on_the_way: Vec<Waiting>,
    sent: Vec<WriteMarkers>,
    heard: Vec<(TransactionHandle, Participants)>,
    partitions: [Partition; PARTITIONS as usize],
    clients: [Client; 2],
    /// Ends that were asked for.
    ends: Vec<(TransactionHandle, Outcome)>,
    /// The outcomes that were answered, by epoch.
    answered: BTreeMap<i16, Outcome>,
    /// The newest epoch that a start was answered.
    started: i16,
    starts: usize,
    deaths: usize,
    time_outs: usize,
    lates: usize,
    now_ms: u64,
    /// What went wrong.
    broken: Option<&'static str>,
}

impl State {
    fn now(&self) -> Now {
        Now { tick: Tick(self.now_ms), wall: Timestamp(i64::try_from(self.now_ms).expect("a short time")) }
    }

    /// Hands the effects of a step over to the disk.
    fn take<T>(&mut self, step: TransactionStep<T>, answer: impl FnOnce(T) -> Option<(usize, Answer)>) {
        let answer = answer(step.answer);
        self.clients.iter_mut().enumerate().for_each(|(index, client)| {
            client.waits |= answer.as_ref().is_some_and(|(of, _)| *of == index);
        });
        let is_durable = step.records.is_empty() && self.on_the_way.is_empty();
        self.on_the_way.push(Waiting { records: step.records, markers: step.markers, answer });
        if is_durable {
            self.durable();
        }
    }

    fn durable(&mut self) {
        let waiting = self.on_the_way.remove(0);
        for record in waiting.records {
            self.log.insert(record.key, record.value.expect("nothing expires here"));
        }
        self.sent.extend(waiting.markers);
        if let Some((index, answer)) = waiting.answer {
            self.clients[index].waits = false;
            self.answer(index, answer);
        }
        // What changed nothing waited only for what came before.
        if self.on_the_way.first().is_some_and(|next| next.records.is_empty()) {
            self.durable();
        }
    }

    fn answer(&mut self, index: usize, answer: Answer) {
        let client = &mut self.clients[index];
        match answer {
            Answer::Start(Progress::Done(producer)) => {
                *client = Client { producer: Some(producer), ..Client::default() };
                self.started = self.started.max(producer.epoch.0);
            }
            Answer::Begin(Ok(transaction)) => client.transaction = Some(transaction),
            Answer::Begin(Err(BeginError::ConcurrentTransactions)) | Answer::Start(Progress::Wait(_)) => {}
            Answer::Add(index, true) => client.added[index as usize] = true,
            Answer::End(Ok(Progress::Wait(_))) => {}
            Answer::End(Ok(Progress::Done(next))) => {
                let epoch = client.transaction.expect("it ends one").producer_epoch.0;
                let outcome = client.wants.expect("it ends it so");
                if self.answered.insert(epoch, outcome).is_some_and(|before| before != outcome) {
                    self.broken = Some("two outcomes were answered");
                }
                *client = Client { producer: Some(next), ..Client::default() };
            }
            Answer::End(Err(EndError::Transaction(TransactionError::TransactionEnded { outcome }))) => {
                // Its time was over: by an abort it learns how to go on.
                if outcome == Outcome::Commit {
                    self.broken = Some("somebody else committed its transaction");
                }
                client.wants = Some(Outcome::Abort);
            }
            Answer::Add(_, false) => client.wants = Some(Outcome::Abort),
            Answer::Begin(Err(_)) | Answer::End(Err(_)) => *client = Client { fenced: true, ..Client::default() },
        }
    }

    fn start(&mut self, client: usize) {
        self.starts += 1;
        let now = self.now();
        let (id, spare) = (transactional_id("t"), Some(PRODUCER));
        let step = self.coordinator.init(now, &id, TIMEOUT_MS, None);
        let step = if matches!(step.answer, Err(InitError::NeedsProducerId)) {
            self.coordinator.init(now, &id, TIMEOUT_MS, spare)
        } else {
            step
        };
        self.take(step, |answer| Some((client, Answer::Start(answer.expect("it may start")))));
    }

    fn begin(&mut self, client: usize) {
        let producer = self.clients[client].producer.expect("it was started");
        let step = self.coordinator.begin(self.now(), producer.id, producer.epoch, None);
        self.take(step, |answer| Some((client, Answer::Begin(answer))));
    }

    fn add(&mut self, client: usize, index: u32) {
        let transaction = self.clients[client].transaction.expect("it is open");
        let step = self.coordinator.add_partitions(self.now(), transaction, &[partition(index)]);
        self.take(step, |answer| Some((client, Answer::Add(index, answer.is_ok()))));
    }

    /// A client writes, whatever became of its transaction meanwhile.
    fn write(&mut self, client: usize, index: u32) {
        let epoch = self.clients[client].transaction.expect("it has one").producer_epoch.0;
        self.clients[client].wrote[index as usize] = true;
        let partition = &mut self.partitions[index as usize];
        if epoch < partition.epoch {
            return;
        }
        if partition.undecided.is_some_and(|open| open != epoch) {
            self.broken = Some("two transactions of one producer are open in a partition");
        }
        if epoch < self.started {
            self.broken = Some("a fenced producer wrote");
        }
        if partition.decided.contains_key(&epoch) || self.answered.contains_key(&epoch) {
            self.broken = Some("a transaction that had ended was written to");
        }
        (partition.epoch, partition.undecided) = (epoch, Some(epoch));
    }

    fn end(&mut self, client: usize, outcome: Outcome) {
        let transaction = self.clients[client].transaction.expect("it is open");
        self.clients[client].wants = Some(outcome);
        if !self.ends.contains(&(transaction, outcome)) {
            self.ends.push((transaction, outcome));
        }
        let step = self.coordinator.end(self.now(), transaction, outcome);
        self.take(step, |answer| Some((client, Answer::End(answer))));
    }

    fn late(&mut self, index: usize) {
        self.lates += 1;
        let (transaction, outcome) = self.ends[index];
        let step = self.coordinator.end(self.now(), transaction, outcome);
        self.take(step, |_| None);
    }

    fn mark(&mut self, index: usize, of: u32) {
        let marker = &mut self.sent[index];
        marker.participants.partitions.remove(&partition(of));
        let (epoch, outcome, transaction) = (marker.producer_epoch.0, marker.outcome, marker.transaction);
        if marker.participants.is_empty() {
            self.sent.remove(index);
        }
        self.heard.push((transaction, participants(&[of], &[])));
        let partition = &mut self.partitions[of as usize];
        if epoch <= partition.epoch {
            return;
        }
        partition.epoch = epoch;
        if let Some(open) = partition.undecided.take() {
            partition.decided.insert(open, outcome);
            if open != transaction.producer_epoch.0 {
                self.broken = Some("a marker ended another transaction");
            }
        }
    }

    fn heard(&mut self, index: usize) {
        let (transaction, written) = self.heard.remove(index);
        let step = self.coordinator.markers_written(self.now(), transaction, &written);
        self.take(step, |()| None);
    }

    fn pass(&mut self, millis: u64) {
        self.now_ms += millis;
        let step = self.coordinator.tick(self.now());
        self.take(step, |()| None);
    }

    /// The coordinator dies with all that is not durable; what was sent may still arrive, and be heard of.
    fn die(&mut self) {
        self.deaths += 1;
        self.on_the_way.clear();
        self.clients.iter_mut().for_each(|client| client.waits = false);
        self.coordinator = TransactionCoordinator::new(OPTIONS);
        for (key, value) in &self.log {
            self.coordinator.replay(key, Some(value)).expect("it can be read");
        }
        let step = self.coordinator.loaded(self.now());
        // Its markers take the place of those that it does not know to be on their way.
        let fresh = step.markers.clone();
        self.sent.retain(|sent| !fresh.iter().any(|new| new.transaction == sent.transaction));
        self.take(step, |()| None);
    }

    fn printed(self) -> Printed<Self> {
        Printed::new(self, |state| format!("{state:?}"))
    }

    /// Whether all that is durable, and on its way, is what the coordinator knows.
    fn log_is_whole(&self) -> bool {
        let mut log = self.log.clone();
        for record in self.on_the_way.iter().flat_map(|waiting| waiting.records.clone()) {
            log.insert(record.key, record.value.expect("nothing expires here"));
        }
        let known = self.coordinator.records().into_iter();
        known.map(|record| (record.key, record.value.expect("a value"))).collect::<BTreeMap<_, _>>() == log
    }

    /// Whether each transaction that was written to has one outcome, which is the one that was answered.
    fn is_atomic(&self) -> bool {
        let decided = || self.partitions.iter().flat_map(|partition| &partition.decided);
        let one = decided().all(|(epoch, outcome)| decided().all(|(other, with)| other != epoch || with == outcome));
        let told = self.answered.iter().all(|(epoch, outcome)| {
            self.partitions.iter().all(|partition| {
                partition.undecided != Some(*epoch) && partition.decided.get(epoch).is_none_or(|with| with == outcome)
            })
        });
        one && told
    }

    /// Whether everything comes to its end when nobody says anything more, and a producer can start then.
    fn comes_to_rest(&self) -> bool {
        let mut state = self.clone();
        for millis in [0, TIMEOUT_MS, PATIENCE_MS] {
            state.pass(millis);
            while !state.on_the_way.is_empty() || !state.sent.is_empty() || !state.heard.is_empty() {
                if !state.on_the_way.is_empty() {
                    state.durable();
                } else if let Some(sent) = state.sent.first() {
                    let partition = sent.participants.partitions.first().expect("it goes somewhere").partition;
                    state.mark(0, partition.0);
                } else {
                    state.heard(0);
                }
            }
        }
        let none_open = state.coordinator.open_ids(None, usize::MAX).is_empty();
        let none_undecided = state.partitions.iter().all(|partition| partition.undecided.is_none());
        let step = state.coordinator.init(state.now(), &transactional_id("t"), TIMEOUT_MS, Some(PRODUCER));
        let starts = matches!(step.answer, Ok(Progress::Done(Producer { epoch: ProducerEpoch(epoch), .. }))
            if state.partitions.iter().all(|partition| partition.epoch <= epoch));
        none_open && none_undecided && starts && state.is_atomic() && state.broken.is_none()
    }

    fn client_actions(&self, small: &Small, index: usize, actions: &mut Vec<Action>) {
        let client = &self.clients[index];
        if let Some(transaction) = client.transaction {
            let may = |write: u32| client.added[write as usize] && !client.wrote[write as usize];
            actions.extend((0..PARTITIONS).filter(|write| may(*write)).map(|write| Action::Write(index, write)));
            debug_assert!(transaction.producer_epoch.0 < small.epochs);
        }
        if client.waits || client.fenced || self.on_the_way.len() == small.on_the_way {
            return;
        }
        match (client.producer, client.transaction, client.wants) {
            // Which of the two starts first makes no difference.
            (None, ..) if index > 0 && self.starts == 0 => {}
            (None, ..) => actions.extend((self.starts < small.starts).then_some(Action::Start(index))),
            (Some(producer), None, _) => {
                actions.extend((producer.epoch.0 < small.epochs).then_some(Action::Begin(index)));
            }
            (Some(_), Some(_), None) => {
                let new = (0..PARTITIONS).filter(|add| !client.added[*add as usize]);
                actions.extend(new.map(|add| Action::Add(index, add)));
                actions.extend([Action::End(index, Outcome::Commit), Action::End(index, Outcome::Abort)]);
            }
            (Some(_), Some(_), Some(outcome)) => actions.push(Action::End(index, outcome)),
        }
    }
}

impl Model for Small {
    type State = Printed<State>;
    type Action = Action;

    fn init_states(&self) -> Vec<Printed<State>> {
        let partition = Partition { epoch: -1, undecided: None, decided: BTreeMap::new() };
        let state = State {
            coordinator: TransactionCoordinator::new(OPTIONS),
            log: BTreeMap::new(),
            on_the_way: Vec::new(),
            sent: Vec::new(),
            heard: Vec::new(),
            partitions: [partition.clone(), partition],
            clients: [Client::default(), Client::default()],
            ends: Vec::new(),
            answered: BTreeMap::new(),
            started: -1,
            starts: 0,
            deaths: 0,
            time_outs: 0,
            lates: 0,
            now_ms: 0,
            broken: None,
        };
        vec![state.printed()]
    }

    fn actions(&self, state: &Printed<State>, actions: &mut Vec<Action>) {
        (0..2).for_each(|client| state.client_actions(self, client, actions));
        for (index, sent) in state.sent.iter().enumerate() {
            let to = sent.participants.partitions.iter();
            actions.extend(to.map(|partition| Action::Mark(index, partition.partition.0)));
        }
        if !state.on_the_way.is_empty() {
            actions.push(Action::Durable);
        }
        if state.on_the_way.len() < self.on_the_way {
            actions.extend((0..state.heard.len()).map(Action::Heard));
            actions.extend((state.time_outs < self.time_outs).then_some(Action::TimeOut));
            if state.lates < self.lates {
                actions.extend((0..state.ends.len()).map(Action::Late));
            }
        }
        actions.extend((state.deaths < self.deaths).then_some(Action::Die));
    }

    fn next_state(&self, before: &Printed<State>, action: Action) -> Option<Printed<State>> {
        let mut state = State::clone(before);
        match action {
            Action::Start(client) => state.start(client),
            Action::Begin(client) => state.begin(client),
            Action::Add(client, index) => state.add(client, index),
            Action::Write(client, index) => state.write(client, index),
            Action::End(client, outcome) => state.end(client, outcome),
            Action::Late(index) => state.late(index),
            Action::Durable => state.durable(),
            Action::Mark(index, partition) => state.mark(index, partition),
            Action::Heard(index) => state.heard(index),
            Action::TimeOut => {
                state.time_outs += 1;
                state.pass(TIMEOUT_MS);
            }
            Action::Die => state.die(),
        }
        let state = state.printed();
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing goes wrong in a partition", |_, state: &Printed<State>| state.broken.is_none()),
            Property::always("a transaction has one outcome, the one that is answered", |_, state: &Printed<State>| {
                state.is_atomic()
            }),
            Property::always("the log says what the coordinator knows", |_, state: &Printed<State>| {
                state.log_is_whole()
            }),
            Property::always("everything comes to its end", |_, state: &Printed<State>| state.comes_to_rest()),
            Property::sometimes("both partitions are committed", |_, state: &Printed<State>| {
                state.partitions.iter().all(|partition| partition.decided.values().any(|with| *with == Outcome::Commit))
            }),
            Property::sometimes("a producer is fenced", |_, state: &Printed<State>| {
                state.clients.iter().any(|c| c.fenced)
            }),
            Property::sometimes("what a fenced producer wrote is aborted", |_, state: &Printed<State>| {
                let aborted =
                    |epoch: i16| state.partitions.iter().any(|p| p.decided.get(&epoch) == Some(&Outcome::Abort));
                (0..state.started).any(|epoch| aborted(epoch) && !state.answered.contains_key(&epoch))
            }),
        ]
    }
}

#[test]
fn with_two_producers_and_late_ends_every_order_of_events_is_atomic_and_comes_to_its_end() {
    let small = Small { starts: 2, deaths: 0, time_outs: 0, lates: 1, epochs: 2, on_the_way: 2 };
    explore(small, STATES_MIN);
}

#[test]
fn with_a_coordinator_that_dies_every_order_of_events_is_atomic_and_comes_to_its_end() {
    let small = Small { starts: 2, deaths: 1, time_outs: 0, lates: 0, epochs: 1, on_the_way: 2 };
    explore(small, STATES_MIN);
}

#[test]
fn with_time_that_runs_out_every_order_of_events_is_atomic_and_comes_to_its_end() {
    let small = Small { starts: 2, deaths: 0, time_outs: 1, lates: 0, epochs: 2, on_the_way: 1 };
    explore(small, STATES_MIN);
}

#[test]
fn with_a_coordinator_that_dies_time_that_runs_out_and_late_ends_every_order_of_events_comes_to_its_end() {
    let small = Small { starts: 2, deaths: 1, time_outs: 1, lates: 1, epochs: 1, on_the_way: 1 };
    explore(small, STATES_MIN);
}
