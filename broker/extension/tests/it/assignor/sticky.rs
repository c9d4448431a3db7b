//! The sticky assignors: even shares, and few moves.

use std::collections::HashMap;

use levada_extension::{Assignment, AssignorInput, CooperativeStickyAssignor, StickyAssignor, TopicPartition};
use proptest::prelude::*;

use super::generated::{equal_inputs, inputs, name};
use super::{assign, counts, kept, member, owning, partitions, topic};

fn sticky(input: &AssignorInput) -> Assignment {
    let answer = assign(&StickyAssignor, input);
    assert_eq!(answer, assign(&CooperativeStickyAssignor, input), "both names share alike");
    answer
}

/// The seed's exercise.
#[test]
fn four_partitions_go_two_and_two_then_two_one_one_then_one_is_idle() {
    let mut members = vec![member("a", "t", ""), member("b", "t", "")];
    let mut answer = sticky(&AssignorInput::new(members.clone(), vec![topic("t", 4)]));
    assert_eq!(counts(&answer), [2, 2]);
    for (joins, expected) in [("c", vec![2, 1, 1]), ("d", vec![1, 1, 1, 1]), ("e", vec![1, 1, 1, 1, 0])] {
        members = owning(&members, &answer);
        members.push(member(joins, "t", ""));
        let input = AssignorInput::new(members.clone(), vec![topic("t", 4)]);
        answer = sticky(&input);
        assert_eq!(counts(&answer), expected);
        assert_eq!(kept(&input, &answer), 4 - answer.last().expect("who joined").len(), "only what it gets moves");
    }
}

/// Case PC-16: A keeps what only it claims, the disputed partition counts as nobody's.
#[test]
fn a_disputed_partition_is_nobodys() {
    let members = vec![member("A", "t", "t-0 t-1"), member("B", "t", "t-1"), member("C", "t", "")];
    let answer = sticky(&AssignorInput::new(members, vec![topic("t", 3)]));
    assert_eq!(answer, [partitions("t-0"), partitions("t-1"), partitions("t-2")]);

    // Were A's claim taken, t-1 would stay with A, which then has room for it.
    let members = vec![member("A", "t", "t-1"), member("B", "t", "t-1 t-2"), member("C", "t", "t-0")];
    let answer = sticky(&AssignorInput::new(members, vec![topic("t", 3)]));
    assert_eq!(answer, [partitions("t-1"), partitions("t-2"), partitions("t-0")]);
    let members = vec![member("A", "t", "t-0 t-1"), member("B", "t", "t-1 t-2"), member("C", "t", "")];
    let answer = sticky(&AssignorInput::new(members, vec![topic("t", 3)]));
    assert_eq!(answer, [partitions("t-0"), partitions("t-2"), partitions("t-1")]);
}

/// The example of KIP-54: with the round-robin assignor four of eight partitions would move.
#[test]
fn when_a_member_leaves_only_its_partitions_move() {
    let all = "t0 t1 t2 t3";
    let members = vec![member("c0", all, "t0-0 t1-1 t3-0"), member("c2", all, "t1-0 t2-1")];
    let topics = ["t0", "t1", "t2", "t3"].map(|name| topic(name, 2)).to_vec();
    let answer = sticky(&AssignorInput::new(members, topics));
    assert_eq!(answer, [partitions("t0-0 t1-1 t2-0 t3-0"), partitions("t0-1 t1-0 t2-1 t3-1")]);
}

/// A could hand on to B only, B to C only: single moves would leave 2, 1 and 0.
#[test]
fn shares_are_evened_out_over_a_chain_of_members() {
    let members = vec![member("A", "t", "t-0 t-1"), member("B", "t u", "u-0"), member("C", "u", "")];
    let answer = sticky(&AssignorInput::new(members, vec![topic("t", 2), topic("u", 1)]));
    assert_eq!(counts(&answer), [1, 1, 1]);
}

#[test]
fn a_change_of_subscription_takes_what_is_no_longer_subscribed() {
    let members = vec![member("A", "u", "t-0 u-0"), member("B", "t u", "t-1 u-1")];
    let answer = sticky(&AssignorInput::new(members, vec![topic("t", 2), topic("u", 2)]));
    assert_eq!(answer, [partitions("u-0 u-1"), partitions("t-0 t-1")]);
}

/// Who claims what, without contradictions, as far as the claimant subscribes to it.
fn claims(input: &AssignorInput) -> HashMap<TopicPartition, usize> {
    let mut claimants: HashMap<TopicPartition, Vec<usize>> = HashMap::new();
    for (i, member) in input.members.iter().enumerate() {
        for partition in &member.owned {
            let list = claimants.entry(*partition).or_default();
            if !list.contains(&i) {
                list.push(i);
            }
        }
    }
    let exists = |partition: &TopicPartition| {
        let mut topics = input.topics.iter().filter(|topic| topic.topic == partition.topic);
        topics.any(|topic| topic.partitions.iter().any(|known| known.partition == partition.partition))
    };
    let subscribes = |partition: &TopicPartition, i: usize| input.members[i].subscribed.contains(&partition.topic);
    let sole = claimants.into_iter().filter(|(_, list)| list.len() == 1).map(|(partition, list)| (partition, list[0]));
    sole.filter(|(partition, i)| exists(partition) && subscribes(partition, *i)).collect()
}

/// Credible claims that an answer keeps.
fn credibly_kept(input: &AssignorInput, answer: &Assignment) -> usize {
    claims(input).into_iter().filter(|(partition, i)| answer[*i].contains(partition)).count()
}

/// Of all right answers, the best: least sum of squared counts (which is what even means), then most kept.
fn best(input: &AssignorInput) -> (usize, usize) {
    fn search(choices: &[(Vec<usize>, Option<usize>)], counts: &mut [usize], kept: usize, best: &mut (usize, usize)) {
        let Some(((members, claimant), rest)) = choices.split_first() else {
            let squares: usize = counts.iter().map(|count| count * count).sum();
            if squares < best.0 || (squares == best.0 && kept > best.1) {
                *best = (squares, kept);
            }
            return;
        };
        for member in members {
            counts[*member] += 1;
            search(rest, counts, kept + usize::from(*claimant == Some(*member)), best);
            counts[*member] -= 1;
        }
    }
    let claims = claims(input);
    let mut choices = Vec::new();
    for topic in &input.topics {
        let subscribes = |i: &usize| input.members[*i].subscribed.contains(&topic.topic);
        let members: Vec<usize> = (0..input.members.len()).filter(subscribes).collect();
        let partitions = topic.partitions.iter().map(|known| known.partition).filter(|_| !members.is_empty());
        choices.extend(partitions.map(|partition| {
            (members.clone(), claims.get(&TopicPartition { topic: topic.topic, partition }).copied())
        }));
    }
    let mut best = (usize::MAX, 0);
    search(&choices, &mut vec![0; input.members.len()], 0, &mut best);
    best
}

fn squares(answer: &Assignment) -> usize {
    answer.iter().map(|given| given.len() * given.len()).sum()
}

/// So few that all answers can be tried.
fn small(input: &AssignorInput) -> bool {
    let partitions: u32 = input.topics.iter().map(|topic| u32::try_from(topic.partitions.len()).expect("few")).sum();
    input.members.len().max(1).pow(partitions) <= 70_000
}

proptest! {
    #[test]
    fn shares_are_as_even_as_subscriptions_allow(input in inputs().prop_filter("small", small)) {
        prop_assert_eq!(squares(&sticky(&input)), best(&input).0);
    }

    #[test]
    fn equal_subscribers_keep_as_much_as_even_shares_allow(input in equal_inputs(4).prop_filter("small", small)) {
        let answer = sticky(&input);
        prop_assert_eq!((squares(&answer), credibly_kept(&input, &answer)), best(&input));
    }

    #[test]
    fn equal_subscribers_differ_by_one_at_most(input in equal_inputs(40)) {
        let counts = counts(&sticky(&input));
        let least = counts.iter().min().copied().unwrap_or(0);
        prop_assert!(counts.iter().all(|count| *count <= least + 1), "{:?}", counts);
    }

    #[test]
    fn nothing_moves_without_a_reason(input in inputs()) {
        let answer = sticky(&input);
        let again = AssignorInput { members: owning(&input.members, &answer), ..input.clone() };
        prop_assert_eq!(sticky(&again), answer);
    }

    #[test]
    fn a_join_moves_only_what_the_new_member_gets(input in equal_inputs(40), place in 0..41_usize) {
        let answer = sticky(&input);
        let mut members = owning(&input.members, &answer);
        let place = place.min(members.len());
        members.insert(place, member("new", "t0 t1 t2 t3", ""));
        let input = AssignorInput { members, topics: input.topics };
        let after = sticky(&input);
        prop_assert_eq!(kept(&input, &after) + after[place].len(), counts(&after).iter().sum::<usize>());
    }

    #[test]
    fn a_leave_moves_only_what_the_member_had(input in equal_inputs(40), place in any::<prop::sample::Index>()) {
        prop_assume!(input.members.len() > 1);
        let answer = sticky(&input);
        let mut members = owning(&input.members, &answer);
        let gone = members.remove(place.index(members.len()));
        let input = AssignorInput { members, topics: input.topics };
        let after = sticky(&input);
        prop_assert_eq!(kept(&input, &after) + gone.owned.len(), counts(&after).iter().sum::<usize>());
    }

    #[test]
    fn whoever_lost_a_partition_has_no_less_than_who_got_it(input in inputs()) {
        let answer = sticky(&input);
        for (partition, claimant) in claims(&input) {
            let holder = answer.iter().position(|given| given.contains(&partition)).expect("given to somebody");
            prop_assert!(holder == claimant || answer[claimant].len() >= answer[holder].len(), "{:?}", partition);
        }
    }

    #[test]
    fn members_with_other_subscriptions_join_and_then_nothing_moves(input in inputs(), joins in 1..4_usize) {
        let answer = sticky(&input);
        let mut members = owning(&input.members, &answer);
        members.extend((100..100 + joins).map(|i| member(name(i).as_str(), "t0 t2", "")));
        let input = AssignorInput::new(members, input.topics);
        let answer = sticky(&input);
        let again = AssignorInput { members: owning(&input.members, &answer), ..input.clone() };
        prop_assert_eq!(sticky(&again), answer);
    }
}
