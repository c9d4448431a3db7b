//! Trials of assignors: the members and topics that are given, as an assignor is asked with them, and its answer in their
//! words.

use std::collections::HashMap;

use levada_extension::{
    AssignorInput, AssignorMember, AssignorPartition, AssignorTopic, ModuleConfigError, ModuleFault, ModuleVersion,
    TopicPartition, check_assignment,
};
use levada_model::{PartitionIndex, TopicId, TopicName, limits};
use uuid::Uuid;

use super::terms::{DryRunMember, DryRunTopic, ModuleError};

/// The partitions of each member, in the order in which they were given.
type Shares = Vec<Vec<(TopicName, PartitionIndex)>>;

/// What an assignor is asked with.
pub(super) struct GroupTrial {
    input: AssignorInput,
    /// Where each member of the input was given.
    places: Vec<usize>,
    names: HashMap<TopicId, TopicName>,
}

impl GroupTrial {
    /// Members and topics as an assignor sees them.
    ///
    /// # Errors
    /// When they are too many, named twice, or members have topics that are not there.
    pub(super) fn new(members: &[DryRunMember], topics: &[DryRunTopic]) -> Result<Self, ModuleError> {
        let refuse = |detail: String| Err(ModuleError::DryRun(detail));
        if !(1..=limits::DRY_RUN_MEMBERS_MAX).contains(&members.len()) {
            return refuse(format!("a trial has 1 to {} members", limits::DRY_RUN_MEMBERS_MAX));
        }
        let count: u64 = topics.iter().map(|topic| u64::from(topic.partitions)).sum();
        if topics.len() > limits::GROUP_TOPICS_MAX || count > limits::DRY_RUN_PARTITIONS_MAX {
            let (topics, partitions) = (limits::GROUP_TOPICS_MAX, limits::DRY_RUN_PARTITIONS_MAX);
            return refuse(format!("a trial has at most {topics} topics, and {partitions} partitions of all of them"));
        }
        // Ids by place, so that the same trial is the same.
        let id = |place: usize| TopicId(Uuid::from_u128(place as u128 + 1));
        let ids: HashMap<_, _> = topics.iter().enumerate().map(|(place, topic)| (&topic.topic, id(place))).collect();
        let places: HashMap<_, _> = members.iter().map(|member| &member.member_id).zip(0..).collect();
        if ids.len() < topics.len() || places.len() < members.len() {
            return refuse("a member or topic is named twice".to_owned());
        }
        let find = |name: &TopicName| {
            let id = ids.get(name).copied();
            id.ok_or_else(|| ModuleError::DryRun(format!("topic {name} of a member is not among the topics")))
        };
        let member = |given: &DryRunMember| {
            let subscribed = match &given.topics {
                Some(topics) => topics.iter().map(find).collect::<Result<_, _>>()?,
                None => (0..topics.len()).map(id).collect(),
            };
            let owned = given
                .owned
                .iter()
                .map(|(name, index)| find(name).map(|topic| TopicPartition { topic, partition: *index }));
            let owned = owned.collect::<Result<_, ModuleError>>()?;
            let (member_id, instance_id) = (given.member_id.clone(), given.instance_id.clone());
            Ok(AssignorMember { member_id, instance_id, subscribed, owned })
        };
        let topic = |(place, given): (usize, &DryRunTopic)| {
            let partition = |index| {
                let lag = given.lags.get(index as usize).copied();
                AssignorPartition { partition: PartitionIndex(index), lag }
            };
            let partitions = (0..given.partitions).map(partition).collect();
            AssignorTopic { topic: id(place), name: given.topic.clone(), partitions }
        };
        let input = AssignorInput::new(
            members.iter().map(member).collect::<Result<_, ModuleError>>()?,
            topics.iter().enumerate().map(topic).collect(),
        );
        let places = input.members.iter().map(|member| places[&member.member_id]).collect();
        let names = ids.into_iter().map(|(name, id)| (id, name.clone())).collect();
        Ok(Self { input, places, names })
    }

    /// Asks a version, and checks its answer as a group's coordinator does. Runs on a thread of the host.
    pub(super) fn ask(
        &self,
        version: &dyn ModuleVersion,
        config: &str,
    ) -> Result<Result<Shares, ModuleFault>, ModuleConfigError> {
        let assignor = version.assignor("module", config)?;
        let failed = |reason: String| ModuleFault::Failed { reason };
        let answer = assignor.assign(&self.input).map_err(|fault| failed(fault.reason)).and_then(|assignment| {
            check_assignment(&self.input, &assignment).map_err(|error| failed(self.named(error.to_string())))?;
            Ok(assignment)
        });
        Ok(answer.map(|assignment| {
            let mut shares = vec![Vec::new(); assignment.len()];
            for (place, partitions) in self.places.iter().zip(assignment) {
                let named = |at: TopicPartition| (self.names[&at.topic].clone(), at.partition);
                shares[*place] = partitions.into_iter().map(named).collect();
                shares[*place].sort();
            }
            shares
        }))
    }

    /// The text with the names of topics instead of their ids, which nobody gave.
    fn named(&self, text: String) -> String {
        self.names.iter().fold(text, |text, (id, name)| text.replace(&id.to_string(), name.as_str()))
    }
}
