//! Deals the partitions of each topic out to its readers, one after the other.

use levada_plugin::{Assignor, AssignorInput, Fault, Fields, Module, NoConfig, TopicPartition};

/// The module.
pub struct MyAssignor;

impl Module for MyAssignor {
    // A type of your own that implements `Deserialize`, where there is a config.
    type Config = NoConfig;
    const FIELDS: Fields = Fields::empty();

    fn new(_: NoConfig) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Assignor for MyAssignor {
    fn assign(&self, input: &AssignorInput) -> Result<Vec<Vec<TopicPartition>>, Fault> {
        let mut lists = vec![Vec::new(); input.members.len()];
        for (topic, described) in (0..).zip(&input.topics) {
            let reads = |member: &usize| input.members[*member].subscribed.contains(&topic);
            let readers: Vec<usize> = (0..lists.len()).filter(reads).collect();
            for (partition, reader) in described.partitions.iter().zip(readers.iter().cycle()) {
                lists[*reader].push(TopicPartition { topic, partition: partition.partition });
            }
        }
        Ok(lists)
    }
}

levada_plugin::export!(MyAssignor: assignor);

#[cfg(test)]
mod tests {
    use levada_plugin::testing::assign;
    use levada_plugin::{AssignorInput, Member, Partition, Topic};

    use super::MyAssignor;

    #[test]
    fn shares_are_even() {
        let member =
            |id: &str| Member { member_id: id.to_owned(), instance_id: None, subscribed: vec![0], owned: vec![] };
        let partitions = (0..5).map(|partition| Partition { partition, lag: None }).collect();
        let topic = Topic { topic_id: "id".to_owned(), name: "orders".to_owned(), partitions };
        let input = AssignorInput { members: vec![member("a"), member("b")], topics: vec![topic] };
        let lists = assign(&MyAssignor, &input);
        assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
    }
}
