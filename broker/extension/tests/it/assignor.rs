//! The assignors: what each promises beyond the suite, and the check of an answer.

mod check;
mod generated;
mod native;
mod sticky;

use levada_extension::{
    Assignment, Assignor, AssignorInput, AssignorMember, AssignorPartition, AssignorTopic, TopicPartition,
    check_assignment,
};
use levada_model::{MemberId, PartitionIndex, TopicId, TopicName};
use uuid::Uuid;

fn id(topic: &str) -> TopicId {
    TopicId(Uuid::from_u128(topic.bytes().fold(0, |sum, byte| (sum << 8) | u128::from(byte))))
}

/// A partition, written `topic-number`.
fn partition(text: &str) -> TopicPartition {
    let (topic, number) = text.split_once('-').expect("topic-number");
    TopicPartition { topic: id(topic), partition: PartitionIndex(number.parse().expect("a number")) }
}

/// Partitions, written `topic-number topic-number`.
fn partitions(text: &str) -> Vec<TopicPartition> {
    text.split_whitespace().map(partition).collect()
}

fn member(name: &str, subscribed: &str, owned: &str) -> AssignorMember {
    AssignorMember {
        member_id: MemberId::new(name).expect(name),
        instance_id: None,
        subscribed: subscribed.split_whitespace().map(id).collect(),
        owned: partitions(owned),
    }
}

fn topic(name: &str, partitions: u32) -> AssignorTopic {
    let partition = |number| AssignorPartition { partition: PartitionIndex(number), lag: None };
    AssignorTopic {
        topic: id(name),
        name: TopicName::new(name).expect(name),
        partitions: (0..partitions).map(partition).collect(),
    }
}

/// The checked answer.
fn assign(assignor: &dyn Assignor, input: &AssignorInput) -> Assignment {
    let answer = assignor.assign(input).expect("the native ones always answer");
    check_assignment(input, &answer).expect("a right answer");
    answer
}

fn counts(assignment: &Assignment) -> Vec<usize> {
    assignment.iter().map(Vec::len).collect()
}

/// The members of a next rebalance: what was assigned is what they own.
fn owning(members: &[AssignorMember], assignment: &Assignment) -> Vec<AssignorMember> {
    let pairs = members.iter().zip(assignment);
    pairs.map(|(member, owned)| AssignorMember { owned: owned.clone(), ..member.clone() }).collect()
}

/// How many partitions stay with a member that owned them.
fn kept(input: &AssignorInput, assignment: &Assignment) -> usize {
    let stay = |(member, given): (&AssignorMember, &Vec<TopicPartition>)| {
        given.iter().filter(|partition| member.owned.contains(partition)).count()
    };
    input.members.iter().zip(assignment).map(stay).sum()
}
