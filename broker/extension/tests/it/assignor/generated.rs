//! Groups of any kind, for the properties.

use levada_extension::{AssignorInput, AssignorMember};
use levada_model::MemberId;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{id, partition, topic};

/// Small groups: up to 5 members, 4 topics of up to 5 partitions, subscriptions and claims of any kind.
pub(crate) fn inputs() -> impl Strategy<Value = AssignorInput> {
    (members(vec(0..4_u32, 0..5), 5), vec(0..6_u32, 0..5)).prop_map(|(members, sizes)| input(members, &sizes))
}

/// Groups whose members all subscribe to all of the topics.
pub(crate) fn equal_inputs(members_max: usize) -> impl Strategy<Value = AssignorInput> {
    let sizes = vec(0..9_u32, 1..5);
    (members(Just((0..4).collect()), members_max), sizes).prop_map(|(members, sizes)| input(members, &sizes))
}

fn members(
    subscribed: impl Strategy<Value = Vec<u32>> + Clone,
    members_max: usize,
) -> impl Strategy<Value = Vec<AssignorMember>> {
    let member = (subscribed, vec((0..5_u32, 0..7_u32), 0..8)).prop_map(|(subscribed, owned)| AssignorMember {
        member_id: MemberId::new("unnamed").expect("within the rule"),
        instance_id: None,
        subscribed: subscribed.into_iter().map(|topic| id(&format!("t{topic}"))).collect(),
        owned: owned.into_iter().map(|(topic, number)| partition(&format!("t{topic}-{number}"))).collect(),
    });
    vec(member, 0..=members_max).prop_map(|members| {
        let named = members.into_iter().enumerate();
        named.map(|(i, member)| AssignorMember { member_id: name(i), ..member }).collect()
    })
}

fn input(members: Vec<AssignorMember>, sizes: &[u32]) -> AssignorInput {
    AssignorInput::new(members, (0..).zip(sizes).map(|(i, size)| topic(&format!("t{i}"), *size)).collect())
}

/// Names that sort by number.
pub(crate) fn name(i: usize) -> MemberId {
    MemberId::new(&format!("m{i:04}")).expect("within the rule")
}
