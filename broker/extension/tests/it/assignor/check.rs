//! The check of an answer: each way to be wrong is told, and told as what it is.

use std::collections::HashMap;

use levada_extension::{
    Assignment, AssignmentError, AssignorInput, RangeAssignor, TopicPartition, check_assignment, read_assignment,
};
use levada_model::MemberId;
use proptest::prelude::*;

use super::generated::inputs;
use super::{assign, member, partition, partitions, topic};

/// Case PC-16: `t` has three partitions, A owns two and B claims one of them too.
fn case_16() -> AssignorInput {
    let members = vec![member("A", "t", "t-0 t-1"), member("B", "t", "t-1"), member("C", "t", "")];
    AssignorInput::new(members, vec![topic("t", 3), topic("u", 1)])
}

fn wrong(answer: &[&str]) -> AssignmentError {
    let answer = answer.iter().map(|given| partitions(given)).collect();
    check_assignment(&case_16(), &answer).expect_err("a wrong answer")
}

fn name(text: &str) -> MemberId {
    MemberId::new(text).expect(text)
}

#[test]
fn each_bad_answer_is_named() {
    let right = ["t-1", "t-0", "t-2"].map(partitions).to_vec();
    assert_eq!(check_assignment(&case_16(), &right), Ok(()));

    let twice = AssignmentError::Twice { partition: partition("t-1"), first: name("A"), second: name("B") };
    assert_eq!(wrong(&["t-0 t-1", "t-1", "t-2"]), twice);
    assert_eq!(wrong(&["t-0 t-1", "", ""]), AssignmentError::Missing { partition: partition("t-2") });
    let unasked = AssignmentError::NotSubscribed { member: name("C"), partition: partition("u-0") };
    assert_eq!(wrong(&["t-0", "t-1", "t-2 u-0"]), unasked);
    let unknown = |text| AssignmentError::Unknown { member: name("A"), partition: partition(text) };
    assert_eq!(wrong(&["t-0 v-0", "t-1", "t-2"]), unknown("v-0"));
    assert_eq!(wrong(&["t-0 t-3", "t-1", "t-2"]), unknown("t-3"));
    let ghost = AssignmentError::Members { expected: 3, got: 4 };
    assert_eq!(wrong(&["t-0", "t-1", "t-2", ""]), ghost);
    assert_eq!(wrong(&["t-0 t-1 t-2"]), AssignmentError::Members { expected: 3, got: 1 });
}

#[test]
fn an_error_says_which_partition_and_which_members() {
    let text = wrong(&["t-0 t-1", "t-1", "t-2"]).to_string();
    assert!(text.starts_with("partition 1 of topic ") && text.ends_with("given to member A and to member B"), "{text}");
}

#[test]
fn a_partition_twice_for_one_member_is_twice() {
    let twice = AssignmentError::Twice { partition: partition("t-0"), first: name("A"), second: name("A") };
    assert_eq!(wrong(&["t-0 t-0", "t-1", "t-2"]), twice);
}

#[test]
fn an_answer_by_places_is_read_and_checked() {
    let read = |lists: &[&[(u32, u32)]]| read_assignment(&case_16(), lists.iter().map(|list| list.iter().copied()));
    let right = ["t-1", "t-0", "t-2"].map(partitions).to_vec();
    assert_eq!(read(&[&[(0, 1)], &[(0, 0)], &[(0, 2)]]), Ok(right));
    let unknown = AssignmentError::UnknownTopic { member: name("B"), place: 2, topics: 2 };
    assert_eq!(read(&[&[(0, 1)], &[(2, 0)], &[(0, 2)]]), Err(unknown));
    let unasked = AssignmentError::NotSubscribed { member: name("A"), partition: partition("u-0") };
    assert_eq!(read(&[&[(1, 0)], &[], &[]]), Err(unasked));
    let members = AssignmentError::Members { expected: 3, got: 4 };
    assert_eq!(read(&[&[(9, 9)], &[], &[], &[]]), Err(members), "the count comes first");
}

/// What the check promises, in its plainest form.
fn naively_right(input: &AssignorInput, assignment: &Assignment) -> bool {
    let mut given: HashMap<TopicPartition, usize> = HashMap::new();
    for (i, list) in assignment.iter().enumerate() {
        for partition in list {
            *given.entry(*partition).or_default() += 1;
            if !input.members.get(i).is_some_and(|member| member.subscribed.contains(&partition.topic)) {
                return false;
            }
        }
    }
    let mut wanted: HashMap<TopicPartition, usize> = HashMap::new();
    for topic in &input.topics {
        if input.members.iter().any(|member| member.subscribed.contains(&topic.topic)) {
            for partition in &topic.partitions {
                wanted.insert(TopicPartition { topic: topic.topic, partition: partition.partition }, 1);
            }
        }
    }
    assignment.len() == input.members.len() && given == wanted
}

/// One small change to an answer; places count from whatever is there.
#[derive(Clone, Debug)]
enum Change {
    Repeat { list: usize, place: usize, at: usize },
    Drop { list: usize, place: usize },
    Move { list: usize, place: usize, to: usize },
    Insert { list: usize, partition: TopicPartition },
    Lists(usize),
}

fn changes() -> impl Strategy<Value = Change> {
    let any = any::<usize>;
    prop_oneof![
        (any(), any(), any()).prop_map(|(list, place, at)| Change::Repeat { list, place, at }),
        (any(), any()).prop_map(|(list, place)| Change::Drop { list, place }),
        (any(), any(), any()).prop_map(|(list, place, to)| Change::Move { list, place, to }),
        (any(), 0..5_u32, 0..7_u32).prop_map(|(list, topic, number)| {
            Change::Insert { list, partition: partition(&format!("t{topic}-{number}")) }
        }),
        (0..6_usize).prop_map(Change::Lists),
    ]
}

fn apply(change: &Change, answer: &mut Assignment) {
    let lists = answer.len().max(1);
    let full = |list: usize, answer: &Assignment| {
        (0..answer.len()).map(|i| (list % lists + i) % lists).find(|list| !answer[*list].is_empty())
    };
    match change {
        Change::Lists(count) => answer.resize(*count, Vec::new()),
        Change::Insert { list, partition } => {
            answer.iter_mut().skip(list % lists).take(1).for_each(|l| l.push(*partition))
        }
        Change::Repeat { list, place, .. } | Change::Drop { list, place } | Change::Move { list, place, .. } => {
            let Some(list) = full(*list, answer) else { return };
            let place = place % answer[list].len();
            match change {
                Change::Repeat { at, .. } => {
                    let partition = answer[list][place];
                    answer[at % lists].push(partition);
                }
                Change::Move { to, .. } => {
                    let partition = answer[list].remove(place);
                    answer[to % lists].push(partition);
                }
                _ => drop(answer[list].remove(place)),
            }
        }
    }
}

proptest! {
    #[test]
    fn the_check_agrees_with_a_naive_one(input in inputs(), changes in prop::collection::vec(changes(), 0..3)) {
        let mut answer = assign(&RangeAssignor, &input);
        changes.iter().for_each(|change| apply(change, &mut answer));
        let check = check_assignment(&input, &answer);
        prop_assert_eq!(check.is_ok(), naively_right(&input, &answer), "{:?}", check);
    }
}
