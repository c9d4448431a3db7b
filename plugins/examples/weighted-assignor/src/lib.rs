//! Gives members shares of the partitions by weight: a machine of 16 cores takes four times what one of 4 takes. What a
//! member owns it keeps as far as its share allows, so that little moves.

use std::cmp::Ordering;
use std::collections::HashMap;

use levada_plugin::{Assignor, AssignorInput, Fault, Fields, Module, TopicPartition};
use serde::Deserialize;

/// The assignor, and its config.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightedAssignor {
    /// The weights of members, by their instance id.
    #[serde(default)]
    weights: HashMap<String, u32>,
    /// The weight of all others.
    #[serde(default = "one")]
    default_weight: u32,
}

fn one() -> u32 {
    1
}

impl Module for WeightedAssignor {
    type Config = Self;
    const FIELDS: Fields = Fields::empty();
    const CONFIG_SCHEMA: Option<&'static str> = Some(include_str!("../config.schema.json"));

    fn new(config: Self) -> Result<Self, String> {
        let weightless = config.default_weight == 0 || config.weights.values().any(|weight| *weight == 0);
        if weightless { Err("a weight is at least 1".to_owned()) } else { Ok(config) }
    }
}

impl Assignor for WeightedAssignor {
    fn assign(&self, input: &AssignorInput) -> Result<Vec<Vec<TopicPartition>>, Fault> {
        let mut lists = vec![Vec::new(); input.members.len()];
        for topic in 0..u32::try_from(input.topics.len()).expect("places of topics are u32") {
            self.share_out(input, topic, &mut lists);
        }
        Ok(lists)
    }
}

impl WeightedAssignor {
    fn share_out(&self, input: &AssignorInput, topic: u32, lists: &mut [Vec<TopicPartition>]) {
        let partitions = &input.topics[topic as usize].partitions;
        let partitions: Vec<_> =
            partitions.iter().map(|of| TopicPartition { topic, partition: of.partition }).collect();
        let mut readers = self.readers(input, topic, lists);
        if readers.is_empty() {
            return;
        }
        for _ in &partitions {
            readers.iter_mut().min_by(|one, other| one.first(other)).expect("there are readers").share += 1;
        }
        let mut give = |reader: &mut Reader, partition| {
            reader.share -= 1;
            lists[reader.member].push(partition);
        };
        let mut moved = Vec::new();
        for partition in partitions {
            let owns =
                |reader: &&mut Reader| reader.share > 0 && input.members[reader.member].owned.contains(&partition);
            match readers.iter_mut().find(owns) {
                Some(owner) => give(owner, partition),
                None => moved.push(partition),
            }
        }
        for partition in moved {
            let taker = readers.iter_mut().find(|reader| reader.share > 0);
            give(taker.expect("the shares add up to the partitions"), partition);
        }
    }

    /// The members that read a topic, with what they have of the topics before.
    fn readers(&self, input: &AssignorInput, topic: u32, lists: &[Vec<TopicPartition>]) -> Vec<Reader> {
        let members = input.members.iter().enumerate().filter(|(_, member)| member.subscribed.contains(&topic));
        let reader = |(member, of): (usize, &levada_plugin::Member)| Reader {
            member,
            weight: *of.instance_id.as_ref().and_then(|id| self.weights.get(id)).unwrap_or(&self.default_weight),
            before: lists[member].len(),
            owned: of.owned.iter().filter(|owned| owned.topic == topic).count(),
            share: 0,
        };
        members.map(reader).collect()
    }
}

/// A member that reads the topic that is being shared out.
struct Reader {
    member: usize,
    weight: u32,
    /// How many partitions of other topics it has got.
    before: usize,
    /// How many of this topic it says it owns.
    owned: usize,
    /// How many of this topic it is to get.
    share: usize,
}

impl Reader {
    /// Which of two readers gets one more: the one that has less for its weight with it, or else the one that would keep what
    /// it owns.
    fn first(&self, other: &Self) -> Ordering {
        let one = (self.before + self.share + 1) as u128 * u128::from(other.weight);
        let another = (other.before + other.share + 1) as u128 * u128::from(self.weight);
        let moves = |reader: &Self| reader.share >= reader.owned;
        one.cmp(&another).then(moves(self).cmp(&moves(other)))
    }
}

levada_plugin::export!(WeightedAssignor: assignor);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::{assign, module};
    use levada_plugin::{AssignorInput, Member, Partition, Topic, TopicPartition};

    use super::WeightedAssignor;

    fn member(id: &str, subscribed: &[u32]) -> Member {
        Member {
            member_id: format!("member-{id}"),
            instance_id: Some(id.to_owned()),
            subscribed: subscribed.to_vec(),
            owned: vec![],
        }
    }

    fn topic(name: &str, partitions: u32) -> Topic {
        let partitions = (0..partitions).map(|partition| Partition { partition, lag: None }).collect();
        Topic { topic_id: format!("id of {name}"), name: name.to_owned(), partitions }
    }

    fn counts(lists: &[Vec<TopicPartition>]) -> Vec<usize> {
        lists.iter().map(Vec::len).collect()
    }

    /// What the members own after they got this.
    fn owning(mut input: AssignorInput, lists: Vec<Vec<TopicPartition>>) -> AssignorInput {
        input.members.iter_mut().zip(lists).for_each(|(member, list)| member.owned = list);
        input
    }

    fn weighted(config: &str) -> WeightedAssignor {
        module(config).expect("a config")
    }

    #[test]
    fn shares_follow_the_weights() {
        let weighted = weighted(r#"{"weights":{"big":4,"middle":2}}"#);
        let members = vec![member("big", &[0]), member("middle", &[0]), member("small", &[0])];
        let input = AssignorInput { members, topics: vec![topic("orders", 14)] };
        assert_eq!(counts(&assign(&weighted, &input)), [8, 4, 2]);
    }

    #[test]
    fn without_weights_shares_are_even_over_all_topics() {
        let members = vec![member("a", &[0, 1, 2]), member("b", &[0, 1, 2])];
        let topics = vec![topic("x", 1), topic("y", 1), topic("z", 2)];
        assert_eq!(counts(&assign(&weighted("{}"), &AssignorInput { members, topics })), [2, 2]);
    }

    #[test]
    fn only_readers_of_a_topic_get_its_partitions() {
        let members = vec![member("a", &[0]), member("b", &[1]), member("c", &[]), member("d", &[0, 1])];
        let topics = vec![topic("x", 5), topic("y", 3), topic("nobody's", 2)];
        assert_eq!(counts(&assign(&weighted("{}"), &AssignorInput { members, topics })), [3, 3, 0, 2]);
    }

    #[test]
    fn nothing_moves_while_nothing_changes() {
        let weighted = weighted(r#"{"weights":{"big":3}}"#);
        let members = vec![member("a", &[0, 1]), member("big", &[0, 1]), member("c", &[0])];
        let input = AssignorInput { members, topics: vec![topic("x", 7), topic("y", 5)] };
        let first = assign(&weighted, &input);
        assert_eq!(assign(&weighted, &owning(input, first.clone())), first);
    }

    #[test]
    fn the_odd_partition_stays_where_it_is() {
        let mut members = vec![member("a", &[0]), member("b", &[0])];
        let given = |partitions: &[u32]| -> Vec<_> {
            partitions.iter().map(|partition| TopicPartition { topic: 0, partition: *partition }).collect()
        };
        (members[0].owned, members[1].owned) = (given(&[1]), given(&[0, 2]));
        let input = AssignorInput { members, topics: vec![topic("x", 3)] };
        assert_eq!(assign(&weighted("{}"), &input), [given(&[1]), given(&[0, 2])]);
    }

    #[test]
    fn a_newcomer_gets_its_share_and_the_others_keep_the_rest() {
        let weighted = weighted("{}");
        let two = AssignorInput { members: vec![member("a", &[0]), member("b", &[0])], topics: vec![topic("x", 6)] };
        let first = assign(&weighted, &two);
        let mut three = owning(two, first.clone());
        three.members.insert(0, member("0", &[0]));
        let second = assign(&weighted, &three);
        assert_eq!(counts(&second), [2, 2, 2]);
        for (before, after) in first.iter().zip(&second[1..]) {
            assert!(after.iter().all(|partition| before.contains(partition)), "{after:?} were its own");
        }
    }

    #[test]
    fn what_two_members_claim_goes_to_one() {
        let mut members = vec![member("a", &[0]), member("b", &[0])];
        members.iter_mut().for_each(|member| member.owned = vec![TopicPartition { topic: 0, partition: 1 }]);
        let input = AssignorInput { members, topics: vec![topic("x", 2)] };
        let given = |partition| vec![TopicPartition { topic: 0, partition }];
        assert_eq!(assign(&weighted("{}"), &input), [given(1), given(0)]);
    }

    #[test]
    fn a_weight_of_nothing_is_refused() {
        for config in [r#"{"default_weight":0}"#, r#"{"weights":{"a":0}}"#, r#"{"weight":1}"#] {
            assert!(module::<WeightedAssignor>(config).is_err(), "{config}");
        }
    }
}
