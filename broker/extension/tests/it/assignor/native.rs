//! The suite over all four, and where each puts what.

use levada_extension::{
    Assignment, Assignor, AssignorFault, AssignorInput, AssignorMember, NATIVE_ASSIGNORS, RangeAssignor,
    RoundRobinAssignor, conformance, native_assignor,
};
use levada_model::InstanceId;

use super::{assign, id, member, partitions, topic};

#[test]
fn all_native_assignors_keep_their_duties() {
    for name in NATIVE_ASSIGNORS {
        let assignor = native_assignor(name).expect(name);
        assert_eq!(assignor.name(), name);
        conformance::assignor(&*assignor);
    }
    assert!(native_assignor("module:range").is_none());
}

/// Ranges, spoilt.
struct Spoilt(fn(&AssignorInput, &mut Assignment));

impl Assignor for Spoilt {
    fn name(&self) -> &str {
        "spoilt"
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        let mut answer = RangeAssignor.assign(input)?;
        (self.0)(input, &mut answer);
        Ok(answer)
    }
}

#[test]
fn the_suite_finds_assignors_that_break_a_duty() {
    let spoils: [fn(&AssignorInput, &mut Assignment); 4] = [
        |_, answer| answer.iter_mut().for_each(|given| given.truncate(1)),
        |_, answer| answer.push(vec![]),
        |_, answer| answer.iter_mut().for_each(|given| given.extend(given.first().copied())),
        |input, answer| {
            let mut claims = input.members.iter().map(|member| member.owned.clone());
            answer.iter_mut().for_each(|given| given.extend(claims.next().expect("one a list")));
        },
    ];
    for (i, spoil) in spoils.into_iter().enumerate() {
        let suite = std::panic::catch_unwind(|| conformance::assignor(&Spoilt(spoil)));
        assert!(suite.is_err(), "spoil {i} was not found");
    }
}

#[test]
fn range_cuts_topics_of_one_size_alike() {
    let members = vec![member("a", "t u", ""), member("b", "t u", "")];
    let input = AssignorInput::new(members, vec![topic("t", 3), topic("u", 3)]);
    assert_eq!(assign(&RangeAssignor, &input), [partitions("t-0 t-1 u-0 u-1"), partitions("t-2 u-2")]);
}

#[test]
fn range_cuts_each_topic_for_its_own_subscribers() {
    let members = vec![member("a", "t", ""), member("b", "t u", ""), member("c", "u", "")];
    let input = AssignorInput::new(members, vec![topic("t", 2), topic("u", 3)]);
    let expected = [partitions("t-0"), partitions("t-1 u-0 u-1"), partitions("u-2")];
    assert_eq!(assign(&RangeAssignor, &input), expected);
}

/// The examples in the documentation of Kafka's `RoundRobinAssignor`.
#[test]
fn round_robin_deals_as_kafka_documents() {
    let members = vec![member("c0", "t0 t1", ""), member("c1", "t0 t1", "")];
    let input = AssignorInput::new(members, vec![topic("t0", 3), topic("t1", 3)]);
    let expected = [partitions("t0-0 t0-2 t1-1"), partitions("t0-1 t1-0 t1-2")];
    assert_eq!(assign(&RoundRobinAssignor, &input), expected);

    let members = vec![member("c0", "t0", ""), member("c1", "t0 t1", ""), member("c2", "t0 t1 t2", "")];
    let input = AssignorInput::new(members, vec![topic("t0", 1), topic("t1", 2), topic("t2", 3)]);
    let expected = [partitions("t0-0"), partitions("t1-0"), partitions("t1-1 t2-0 t2-1 t2-2")];
    assert_eq!(assign(&RoundRobinAssignor, &input), expected);
}

#[test]
fn the_input_lists_static_members_first_and_everything_in_order() {
    let fixed = |name: &str, instance: &str| AssignorMember {
        instance_id: Some(InstanceId::new(instance).expect(instance)),
        ..member(name, "t", "")
    };
    let members = vec![member("b", "t", ""), fixed("z", "pod-0/a"), member("a", "t", ""), fixed("c", "pod-1/a")];
    let mut backwards = topic("t", 3);
    backwards.partitions.reverse();
    let input = AssignorInput::new(members, vec![topic("u", 1), backwards]);
    let names: Vec<_> = input.members.iter().map(|member| member.member_id.as_str()).collect();
    assert_eq!(names, ["z", "c", "a", "b"]);
    assert_eq!(input.topics.iter().map(|topic| topic.topic).collect::<Vec<_>>(), [id("t"), id("u")]);
    assert_eq!(input.topics[0], topic("t", 3));
}
