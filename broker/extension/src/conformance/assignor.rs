//! What every assignor must do.

use levada_model::{InstanceId, MemberId, PartitionIndex, TopicId, TopicName};
use uuid::Uuid;

use crate::{
    Assignor, AssignorInput, AssignorMember, AssignorPartition, AssignorTopic, TopicPartition, check_assignment,
};

/// Runs the suite of [`Assignor`]. How even an answer is, and how much it moves, is each assignor's own affair.
///
/// # Panics
/// At the first duty that `assignor` breaks.
pub fn assignor(assignor: &dyn Assignor) {
    for (case, input) in cases() {
        let answer = assignor.assign(&input).unwrap_or_else(|fault| panic!("{case}: no answer, {fault}"));
        if let Err(error) = check_assignment(&input, &answer) {
            panic!("{case}: {error}");
        }
        let again = assignor.assign(&input).unwrap_or_else(|fault| panic!("{case}: no second answer, {fault}"));
        assert_eq!(answer, again, "{case}: equal inputs had different answers");
    }
}

fn cases() -> Vec<(&'static str, AssignorInput)> {
    let mut cases = cases_of_members_and_topics();
    cases.extend(cases_of_claims());
    cases
}

fn cases_of_members_and_topics() -> Vec<(&'static str, AssignorInput)> {
    let none: &[u128] = &[];
    let static_members = AssignorInput::new(
        vec![member(1, &[1], &[]), static_member(2, "pod-1/a", &[1]), static_member(3, "pod-0/a", &[1])],
        vec![topic(1, 0..5)],
    );
    let lags = [Some(0), None, Some(u64::MAX), Some(u64::MAX), Some(1)];
    let lagging = (0..).zip(lags).map(|(number, lag)| AssignorPartition { partition: PartitionIndex(number), lag });
    let lagging = AssignorTopic { partitions: lagging.collect(), ..topic(1, 0..0) };
    let unequal = |member: u128| vec![member % 7, member % 3, 8, 9 + member % 2];
    vec![
        ("nobody and nothing", AssignorInput::default()),
        ("no members", AssignorInput::new(vec![], vec![topic(1, 0..3)])),
        ("no topics", AssignorInput::new(members(3, |_| vec![1, 2]), vec![])),
        ("a topic without partitions", AssignorInput::new(members(2, |_| vec![1]), vec![topic(1, 0..0)])),
        ("no subscriptions", AssignorInput::new(members(3, |_| none.to_vec()), vec![topic(1, 0..3)])),
        ("one member", AssignorInput::new(members(1, |_| vec![1, 2]), vec![topic(1, 0..3), topic(2, 0..1)])),
        ("a member without a subscription", {
            let idle = |member| if member == 1 { vec![] } else { vec![1] };
            AssignorInput::new(members(3, idle), vec![topic(1, 0..5)])
        }),
        ("a topic nobody subscribes to", {
            AssignorInput::new(members(2, |_| vec![1]), vec![topic(1, 0..3), topic(2, 0..3)])
        }),
        ("more members than partitions", AssignorInput::new(members(5, |_| vec![1]), vec![topic(1, 0..4)])),
        ("retired partitions in between", {
            AssignorInput::new(members(2, |_| vec![1]), vec![topic(1, [0, 3, 4, 9999])])
        }),
        ("a subscription named twice", AssignorInput::new(members(2, |_| vec![1, 1]), vec![topic(1, 0..3)])),
        ("a topic for each", AssignorInput::new(members(3, |i| vec![i]), (0..3).map(|id| topic(id, 0..4)).collect())),
        ("a chain of subscriptions", {
            AssignorInput::new(members(4, |i| vec![i, i + 1]), (0..5).map(|id| topic(id, 0..3)).collect())
        }),
        ("static members", static_members),
        ("lags of all sizes", AssignorInput::new(members(2, |_| vec![1]), vec![lagging])),
        ("200 members, 2,000 partitions, one subscription", {
            AssignorInput::new(members(200, |_| (0..20).collect()), (0..20).map(|id| topic(id, 0..100)).collect())
        }),
        ("200 members, 2,000 partitions, many subscriptions", {
            AssignorInput::new(members(200, unequal), (0..20).map(|id| topic(id, 0..100)).collect())
        }),
    ]
}

fn cases_of_claims() -> Vec<(&'static str, AssignorInput)> {
    let everything: Vec<(u128, u32)> = (0..3).flat_map(|topic| (0..4).map(move |number| (topic, number))).collect();
    let one = |members: Vec<AssignorMember>| AssignorInput::new(members, vec![topic(1, 0..3)]);
    vec![
        // Case PC-16.
        (
            "two members claim one partition",
            one(vec![member(0, &[1], &[(1, 0), (1, 1)]), member(1, &[1], &[(1, 1)]), member(2, &[1], &[])]),
        ),
        ("everyone claims everything", {
            let all = |id| member(id, &[0, 1, 2], &everything);
            AssignorInput::new((0..3).map(all).collect(), (0..3).map(|id| topic(id, 0..4)).collect())
        }),
        ("one member claims everything", {
            one(vec![member(0, &[1], &[(1, 0), (1, 1), (1, 2)]), member(1, &[1], &[]), member(2, &[1], &[])])
        }),
        ("a claim named twice", one(vec![member(0, &[1], &[(1, 2), (1, 2)]), member(1, &[1], &[])])),
        ("claims for what does not exist", {
            one(vec![member(0, &[1], &[(1, 3), (1, u32::MAX), (7, 0)]), member(1, &[1, 7], &[(7, 0)])])
        }),
        ("claims without a subscription", {
            one(vec![member(0, &[], &[(1, 0), (1, 1)]), member(1, &[1], &[(1, 2)]), member(2, &[1], &[(1, 0)])])
        }),
        ("claims with different subscriptions", {
            let members =
                vec![member(0, &[1, 2], &[(1, 0), (1, 1), (1, 2), (2, 0)]), member(1, &[2], &[(1, 0), (2, 1)])];
            AssignorInput::new(members, vec![topic(1, 0..3), topic(2, 0..2)])
        }),
    ]
}

fn members(count: u128, subscribed: impl Fn(u128) -> Vec<u128>) -> Vec<AssignorMember> {
    (0..count).map(|id| member(id, &subscribed(id), &[])).collect()
}

fn member(id: u128, subscribed: &[u128], owned: &[(u128, u32)]) -> AssignorMember {
    let partition = |(topic, number): &(u128, u32)| TopicPartition {
        topic: TopicId(Uuid::from_u128(*topic)),
        partition: PartitionIndex(*number),
    };
    AssignorMember {
        member_id: MemberId::new(&format!("member-{id:03}")).expect("within the rule"),
        instance_id: None,
        subscribed: subscribed.iter().map(|id| TopicId(Uuid::from_u128(*id))).collect(),
        owned: owned.iter().map(partition).collect(),
    }
}

fn static_member(id: u128, instance_id: &str, subscribed: &[u128]) -> AssignorMember {
    let instance_id = Some(InstanceId::new(instance_id).expect("within the rule"));
    AssignorMember { instance_id, ..member(id, subscribed, &[]) }
}

fn topic(id: u128, numbers: impl IntoIterator<Item = u32>) -> AssignorTopic {
    let partition = |number| AssignorPartition { partition: PartitionIndex(number), lag: Some(u64::from(number)) };
    AssignorTopic {
        topic: TopicId(Uuid::from_u128(id)),
        name: TopicName::new(&format!("topic-{id:02}")).expect("within the rule"),
        partitions: numbers.into_iter().map(partition).collect(),
    }
}
