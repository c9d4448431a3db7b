//! Kafka's classic group protocol: the members compute their assignment.

use bytes::Bytes;
use levada_coordinator::{
    ClassicAnswer, ClassicCaller, ClassicCommit, ClassicError, ClassicJoin, ClassicJoined, ClassicProtocol, Generation,
    GroupState, JoinError, StandaloneError,
};
use levada_model::{LeaderEpoch, MemberId, Offset};
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};

use crate::kit::{World, group, instance_id, member, new_member, partition};

/// A member that speaks `range` and `sticky`, by its new id; session 10 s, rebalance time-out 20 s.
fn joining(token: u64, id: &str) -> ClassicJoin {
    let protocol =
        |name: &str| ClassicProtocol { name: name.to_owned(), metadata: Bytes::from(format!("{name} {id}")) };
    ClassicJoin {
        token,
        member_id: None,
        new_id: member(id),
        instance_id: None,
        client: "test".to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: ["range", "sticky"].map(protocol).to_vec(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 20_000,
    }
}

/// The same once it has its id.
fn joining_again(token: u64, id: &str) -> ClassicJoin {
    ClassicJoin { member_id: Some(member(id)), ..joining(token, id) }
}

fn caller(id: &str, generation: u32) -> ClassicCaller {
    ClassicCaller { member_id: member(id), instance_id: None, generation: Generation(generation) }
}

fn unknown(id: &str) -> ClassicError {
    ClassicError::UnknownMember(member(id))
}

impl World {
    fn classic_join(&mut self, join: ClassicJoin) {
        let step = self.coordinator.classic_join(self.now(), &group(), join);
        self.take(step);
    }

    fn sync(&mut self, token: u64, caller: &ClassicCaller, assignments: &[(&str, &str)]) {
        let assignments = assignments.iter().map(|(id, text)| (member(id), Bytes::from((*text).to_owned()))).collect();
        let step = self.coordinator.classic_sync(self.now(), &group(), token, caller, assignments);
        self.take(step);
    }

    fn beat(&mut self, caller: &ClassicCaller) -> Result<(), ClassicError> {
        let step = self.coordinator.classic_heartbeat(self.now(), &group(), caller);
        self.take(step)
    }

    fn classic_leave(&mut self, id: &str) -> Result<(), ClassicError> {
        let step = self.coordinator.classic_leave(self.now(), &group(), &member(id), None);
        self.take(step)
    }

    fn classic_commit(&mut self, caller: &ClassicCaller, offset: u64) -> Result<(), ClassicError> {
        let commit = ClassicCommit {
            partition: partition(0),
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            metadata: "note".to_owned(),
        };
        let step = self.coordinator.classic_commit(self.now(), &group(), caller, vec![commit]);
        self.take(step)
    }

    /// The answer to a request, once.
    fn reply(&mut self, token: u64) -> Option<ClassicAnswer> {
        self.replies.remove(&token)
    }

    fn joined(&mut self, token: u64) -> Result<ClassicJoined, ClassicError> {
        match self.reply(token) {
            Some(ClassicAnswer::Join(joined)) => joined,
            other => panic!("no answer to a join: {other:?}"),
        }
    }

    fn synced(&mut self, token: u64) -> Result<Bytes, ClassicError> {
        match self.reply(token) {
            Some(ClassicAnswer::Sync(synced)) => synced,
            other => panic!("no answer to a sync: {other:?}"),
        }
    }

    /// A and B, of which A leads, in generation 1 with their assignments.
    fn with_two() -> Self {
        let mut world = Self::new(2);
        world.classic_join(joining(1, "A"));
        world.classic_join(joining(2, "B"));
        world.pass(3_000);
        world.joined(1).expect("joined");
        world.joined(2).expect("joined");
        world.sync(3, &caller("B", 1), &[]);
        world.sync(4, &caller("A", 1), &[("A", "for A"), ("B", "for B")]);
        assert_eq!(world.synced(3), Ok(Bytes::from("for B")));
        assert_eq!(world.synced(4), Ok(Bytes::from("for A")));
        world
    }
}

#[test]
fn all_who_join_an_empty_group_within_the_delay_are_one_generation_and_one_of_them_leads() {
    let mut world = World::new(1);
    world.classic_join(joining(1, "A"));
    world.pass(2_000);
    world.classic_join(joining(2, "B"));
    world.pass(999);
    assert!(world.replies.is_empty(), "joins wait");
    world.pass(1);
    let [a, b] = [1, 2].map(|token| world.joined(token).expect("joined"));
    assert_eq!((a.generation, b.generation), (Generation(1), Generation(1)));
    assert_eq!((a.leader, b.leader), (member("A"), member("A")));
    let peers: Vec<_> = a.members.iter().map(|peer| (peer.member_id.as_str(), &peer.metadata[..])).collect();
    assert_eq!(peers, [("A", &b"range A"[..]), ("B", &b"range B"[..])], "the leader is told what all say");
    assert!(b.members.is_empty());
    assert_eq!(world.state(), GroupState::Reconciling);
}

#[test]
fn the_leaders_assignments_reach_every_member_and_can_be_asked_for_again() {
    let mut world = World::with_two();
    assert_eq!(world.state(), GroupState::Stable);
    world.sync(9, &caller("B", 1), &[("A", "from one that does not lead")]);
    assert_eq!(world.synced(9), Ok(Bytes::from("for B")));
}

#[test]
fn a_member_of_another_generation_changes_nothing() {
    let mut world = World::with_two();
    for generation in [0, 2] {
        let old = caller("A", generation);
        let illegal = ClassicError::IllegalGeneration(Generation(1));
        assert_eq!(world.beat(&old), Err(illegal.clone()));
        assert_eq!(world.classic_commit(&old, 5), Err(illegal.clone()));
        world.sync(9, &old, &[("B", "stale")]);
        assert_eq!(world.synced(9), Err(illegal));
    }
    assert_eq!(world.beat(&caller("X", 1)), Err(unknown("X")));
    assert_eq!(world.classic_commit(&caller("A", 1), 5), Ok(()));
    assert_eq!(world.committed(0), Some(5));
}

#[test]
fn when_a_member_joins_the_others_are_told_to_join_again() {
    let mut world = World::with_two();
    world.classic_join(joining(5, "C"));
    assert_eq!(world.state(), GroupState::Assigning);
    for id in ["A", "B"] {
        assert_eq!(world.beat(&caller(id, 1)), Err(ClassicError::RebalanceInProgress));
        assert_eq!(world.classic_commit(&caller(id, 1), 7), Ok(()), "what is done can be committed still");
    }
    world.classic_join(joining_again(6, "A"));
    world.classic_join(joining_again(7, "B"));
    let joined = [5, 6, 7].map(|token| world.joined(token).expect("joined"));
    assert!(joined.iter().all(|joined| joined.generation == Generation(2) && joined.leader == member("A")));
    assert_eq!(world.classic_commit(&caller("A", 2), 8), Err(ClassicError::RebalanceInProgress));
}

#[test]
fn a_rebalance_waits_for_a_member_until_its_time_out_and_then_goes_on_without_it() {
    let mut world = World::with_two();
    world.classic_join(joining(5, "C"));
    world.classic_join(joining_again(6, "A"));
    for _ in 0..3 {
        world.pass(6_000);
        assert_eq!(world.beat(&caller("B", 1)), Err(ClassicError::RebalanceInProgress), "it lives, and is late");
    }
    world.pass(1_999);
    assert!(world.replies.is_empty(), "who waits to join does not expire");
    world.pass(1);
    assert_eq!(world.joined(6).expect("joined").members.len(), 2);
    assert_eq!(world.beat(&caller("B", 1)), Err(unknown("B")));
}

#[test]
fn a_silent_member_is_removed_when_its_session_ends() {
    let mut world = World::with_two();
    world.pass(9_999);
    assert_eq!(world.beat(&caller("A", 1)), Ok(()));
    world.pass(1);
    assert_eq!(world.beat(&caller("A", 1)), Err(ClassicError::RebalanceInProgress));
    world.classic_join(joining_again(5, "A"));
    assert_eq!(world.joined(5).expect("joined").members.len(), 1);
}

#[test]
fn a_leader_that_lives_but_never_brings_the_assignments_is_replaced() {
    let mut world = World::with_two();
    world.classic_join(joining(5, "C"));
    world.classic_join(joining_again(6, "A"));
    world.classic_join(joining_again(7, "B"));
    [5, 6, 7].iter().for_each(|token| drop(world.joined(*token)));
    world.sync(8, &caller("B", 2), &[]);
    world.sync(9, &caller("C", 2), &[]);
    for _ in 0..4 {
        assert_eq!(world.beat(&caller("A", 2)), Ok(()));
        world.pass(5_000);
    }
    assert_eq!(world.beat(&caller("A", 2)), Err(unknown("A")));
    assert_eq!(world.synced(8), Err(ClassicError::RebalanceInProgress));
    assert_eq!(world.synced(9), Err(ClassicError::RebalanceInProgress));
    world.classic_join(joining_again(10, "B"));
    world.classic_join(joining_again(11, "C"));
    let joined = world.joined(10).expect("joined");
    assert_eq!((joined.leader, joined.members.len()), (member("B"), 2));
}

#[test]
fn a_member_that_lost_the_answer_to_its_join_gets_it_again() {
    let mut world = World::new(1);
    world.classic_join(joining(1, "A"));
    world.pass(3_000);
    let first = world.joined(1).expect("joined");
    world.classic_join(joining_again(2, "A"));
    assert_eq!(world.joined(2), Ok(first));
}

#[test]
fn a_static_member_that_comes_back_gets_its_assignment_with_no_new_generation_and_fences_its_elder() {
    let mut world = World::new(2);
    let named = |token, id| ClassicJoin { instance_id: Some(instance_id("i")), ..joining(token, id) };
    let same_words = |token, id| ClassicJoin { protocols: joining(0, "A").protocols, ..named(token, id) };
    world.classic_join(named(1, "A"));
    world.pass(3_000);
    world.joined(1).expect("joined");
    world.sync(2, &caller("A", 1), &[("A", "for A")]);
    world.classic_join(same_words(3, "A2"));
    let joined = world.joined(3).expect("joined");
    assert_eq!((joined.member_id, joined.generation, joined.leader), (member("A2"), Generation(1), member("A2")));
    assert!(joined.members.is_empty(), "it need not compute anything");
    world.sync(4, &caller("A2", 1), &[]);
    assert_eq!(world.synced(4), Ok(Bytes::from("for A")));
    let elder = ClassicCaller { instance_id: Some(instance_id("i")), ..caller("A", 1) };
    assert_eq!(world.beat(&elder), Err(ClassicError::FencedInstance { instance_id: instance_id("i") }));
    world.restart();
    assert_eq!(world.beat(&elder), Err(ClassicError::FencedInstance { instance_id: instance_id("i") }));
}

#[test]
fn only_its_session_ends_a_static_members_membership() {
    let mut world = World::new(2);
    let long = |token, id| ClassicJoin {
        instance_id: Some(instance_id("i")),
        session_timeout_ms: 60_000,
        ..joining(token, id)
    };
    world.classic_join(long(1, "S"));
    world.classic_join(joining(2, "B"));
    world.pass(3_000);
    let leader = world.joined(2).expect("joined").leader;
    assert_eq!((leader, world.joined(1).expect("joined").members.len()), (member("B"), 0));
    world.sync(3, &caller("B", 1), &[]);
    world.classic_join(joining(4, "C"));
    world.classic_join(joining_again(5, "B"));
    world.pass(20_000);
    assert_eq!(world.joined(5).expect("joined").members.len(), 3, "the one that is away is assigned to as well");
}

#[test]
fn the_protocol_is_one_that_all_speak_and_most_prefer() {
    let speaking = |token, id, names: &[&str]| {
        let protocol = |name: &&str| ClassicProtocol { name: (*name).to_owned(), metadata: Bytes::new() };
        ClassicJoin { protocols: names.iter().map(protocol).collect(), ..joining(token, id) }
    };
    let mut world = World::new(1);
    world.classic_join(speaking(1, "A", &["x", "range", "sticky"]));
    world.classic_join(speaking(2, "B", &["sticky", "range"]));
    world.classic_join(speaking(3, "C", &["sticky", "range"]));
    world.classic_join(speaking(4, "D", &["x"]));
    assert_eq!(world.joined(4), Err(ClassicError::InconsistentProtocol), "nothing that all speak");
    world.classic_join(ClassicJoin { protocol_type: "connect".to_owned(), ..speaking(5, "E", &["sticky"]) });
    assert_eq!(world.joined(5), Err(ClassicError::InconsistentProtocol));
    world.classic_join(speaking(6, "F", &[]));
    assert_eq!(world.joined(6), Err(ClassicError::InconsistentProtocol));
    world.pass(3_000);
    assert_eq!(world.joined(1).expect("joined").protocol, "sticky");
}

#[test]
fn a_group_has_members_of_one_kind() {
    let mut world = World::with_two();
    assert_eq!(world.join(new_member("M")), Err(JoinError::InconsistentProtocol));
    let refused = world.coordinator.commit_standalone(world.now(), &group(), Vec::new());
    assert_eq!(refused.answer, Err(StandaloneError::Active(2)));
    world.classic_leave("A").expect("a member");
    world.classic_leave("B").expect("a member");
    world.joins("M");
    world.classic_join(joining(9, "C"));
    assert_eq!(world.joined(9), Err(ClassicError::InconsistentProtocol));
}

#[test]
fn offsets_of_a_classic_group_are_kept_like_any_others() {
    let mut world = World::with_two();
    world.classic_commit(&caller("A", 1), 5).expect("a member");
    world.classic_leave("A").expect("a member");
    world.classic_leave("B").expect("a member");
    assert_eq!(world.classic_leave("B"), Err(unknown("B")));
    world.pass(119_999);
    assert_eq!(world.committed(0), Some(5));
    world.pass(1);
    assert_eq!(world.committed(0), None);
}

#[test]
fn a_restart_continues_a_classic_group_where_it_was() {
    let mut world = World::with_two();
    world.restart();
    assert_eq!(world.beat(&caller("A", 1)), Ok(()));
    world.sync(5, &caller("B", 1), &[]);
    assert_eq!(world.synced(5), Ok(Bytes::from("for B")));
    world.classic_join(joining(6, "C"));
    world.restart();
    assert_eq!(world.beat(&caller("A", 1)), Err(ClassicError::RebalanceInProgress));
    for (token, id) in [(7, "A"), (8, "B"), (9, "C")] {
        world.classic_join(joining_again(token, id));
    }
    assert_eq!(world.joined(7).expect("joined").generation, Generation(2));
}

#[derive(Clone, Debug)]
enum Event {
    Join { who: usize, fresh: bool, named: bool, other_words: bool },
    Sync { who: usize, stale: bool },
    Beat { who: usize },
    Leave { who: usize },
    Pass { millis: u64 },
    Restart,
}

fn events() -> impl Strategy<Value = Event> {
    let who = || 0usize..4;
    prop_oneof![
        6 => (who(), proptest::bool::ANY, proptest::bool::weighted(0.3), proptest::bool::weighted(0.2))
            .prop_map(|(who, fresh, named, other_words)| Event::Join { who, fresh, named, other_words }),
        5 => (who(), proptest::bool::weighted(0.1)).prop_map(|(who, stale)| Event::Sync { who, stale }),
        3 => who().prop_map(|who| Event::Beat { who }),
        1 => who().prop_map(|who| Event::Leave { who }),
        4 => (0u64..8_000).prop_map(|millis| Event::Pass { millis }),
        1 => Just(Event::Restart),
    ]
}

/// Four clients that know only what they were answered.
#[derive(Default)]
struct Clients {
    ids: [Option<(MemberId, Option<&'static str>)>; 4],
    generation: u32,
    next: u64,
    /// Requests that were not answered yet.
    open: std::collections::BTreeSet<u64>,
}

impl Clients {
    fn apply(&mut self, world: &mut World, event: &Event) {
        self.next += 1;
        let token = self.next;
        let generation = world.coordinator.group(&group()).map_or(0, |view| view.generation.0);
        let instance = |who: usize, named: bool| named.then_some(["i0", "i1", "i2", "i3"][who]);
        let speaker = |(id, name): &(MemberId, Option<&'static str>), generation| ClassicCaller {
            member_id: id.clone(),
            instance_id: name.map(instance_id),
            generation: Generation(generation),
        };
        match event {
            Event::Join { who, fresh, named, other_words } => {
                let new = (member(&format!("m{token}")), instance(*who, *named));
                let known = self.ids[*who].clone().filter(|_| !fresh);
                let words = if *other_words { "other" } else { "usual" };
                let (id, name) = known.clone().unwrap_or(new);
                self.ids[*who] = Some((id.clone(), name));
                self.open.insert(token);
                world.classic_join(ClassicJoin {
                    member_id: known.map(|_| id.clone()),
                    new_id: id,
                    instance_id: name.map(instance_id),
                    ..joining(token, words)
                });
            }
            Event::Sync { who, stale } => {
                let Some(known) = &self.ids[*who] else { return };
                self.open.insert(token);
                world.sync(token, &speaker(known, generation + u32::from(*stale)), &[]);
            }
            Event::Beat { who } => {
                let Some(known) = &self.ids[*who] else { return };
                drop(world.beat(&speaker(known, generation)));
            }
            Event::Leave { who } => {
                let Some((id, _)) = self.ids[*who].take() else { return };
                drop(world.classic_leave(id.as_str()));
            }
            Event::Pass { millis } => world.pass(*millis),
            Event::Restart => {
                world.restart();
                // Requests that waited are gone with the coordinator.
                self.open.clear();
            }
        }
        for (token, _) in std::mem::take(&mut world.replies) {
            assert!(self.open.remove(&token), "a request is answered once");
        }
        assert!(generation >= self.generation || generation == 0, "generations rise");
        self.generation = generation;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_classic_request_is_answered_exactly_once(events in proptest::collection::vec(events(), 1..60)) {
        let mut world = World::new(1);
        let mut clients = Clients::default();
        events.iter().for_each(|event| clients.apply(&mut world, event));
        // Nobody speaks any more: the last round ends, and the last sessions.
        for _ in 0..20 {
            clients.apply(&mut world, &Event::Pass { millis: 10_000 });
        }
        assert_eq!(clients.open, std::collections::BTreeSet::new());
        assert!(world.coordinator.group(&group()).is_none_or(|view| view.members.is_empty()));
    }
}
