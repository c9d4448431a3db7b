//! A module as assignor. Topics cross as places in the list of topics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use levada_extension::{
    Assignment, Assignor, AssignorFault, AssignorInput, AssignorMember, AssignorTopic, Moment, TopicPartition,
    read_assignment,
};
use levada_model::limits::{MODULE_ASSIGN_MS_MAX, MODULE_CALL_BYTES_MAX};
use levada_model::{Timestamp, TopicId};

use super::{Call, Extension};
use crate::contract::{AssignInput, AssignMember, AssignPartition, AssignTopic, AssignedPartition};

struct ModuleAssignor {
    extension: Extension,
    name: String,
}

pub(super) fn assignor(extension: Extension, name: &str) -> Arc<dyn Assignor> {
    Arc::new(ModuleAssignor { extension, name: name.to_owned() })
}

impl Assignor for ModuleAssignor {
    fn name(&self) -> &str {
        &self.name
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        let assigned = self.assigned(input);
        if assigned.is_err() {
            self.extension.version.template.journal.fell_back();
        }
        assigned
    }
}

impl ModuleAssignor {
    fn assigned(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        let partitions: usize = input.topics.iter().map(|topic| topic.partitions.len()).sum();
        let given = given(input);
        if size_bytes(&given) > MODULE_CALL_BYTES_MAX {
            return Err(fault("the group is larger than a call may be"));
        }
        // Equal inputs have equal answers, so the time and the seed are the same for all.
        let moment = Moment { time: Timestamp(0), seed: 0 };
        let cpu = Duration::from_millis(MODULE_ASSIGN_MS_MAX);
        let call = Call { moment, records: partitions as u64, cpu };
        let (answer,) = self
            .extension
            .ask(call, move |store, exports| {
                let assign = exports.assign.as_ref().expect("found in every instance alike");
                assign.call(store, (given,))
            })
            .map_err(fault)?;
        let answer = answer.map_err(|said| fault(levada_extension::ModuleFault::from(said)))?;
        let places = |list: Vec<AssignedPartition>| list.into_iter().map(|given| (given.topic, given.partition));
        read_assignment(input, answer.into_iter().map(places)).map_err(|error| {
            self.extension.version.template.journal.refused_answer();
            fault(error)
        })
    }
}

fn given(input: &AssignorInput) -> AssignInput {
    let places: HashMap<TopicId, u32> = (0..).zip(&input.topics).map(|(place, topic)| (topic.topic, place)).collect();
    AssignInput {
        members: input.members.iter().map(|member| given_member(member, &places)).collect(),
        topics: input.topics.iter().map(given_topic).collect(),
    }
}

/// A member, with those topics alone that the input lists.
fn given_member(member: &AssignorMember, places: &HashMap<TopicId, u32>) -> AssignMember {
    let place = |topic: &TopicId| places.get(topic).copied();
    let owned = |owned: &TopicPartition| {
        place(&owned.topic).map(|topic| AssignedPartition { topic, partition: owned.partition.0 })
    };
    AssignMember {
        member_id: member.member_id.as_str().to_owned(),
        instance_id: member.instance_id.as_ref().map(|id| id.as_str().to_owned()),
        subscribed: member.subscribed.iter().filter_map(place).collect(),
        owned: member.owned.iter().filter_map(owned).collect(),
    }
}

fn given_topic(topic: &AssignorTopic) -> AssignTopic {
    let partitions = topic.partitions.iter();
    AssignTopic {
        topic_id: topic.topic.to_string(),
        name: topic.name.as_str().to_owned(),
        partitions: partitions.map(|known| AssignPartition { partition: known.partition.0, lag: known.lag }).collect(),
    }
}

/// About what the input takes of the guest's memory.
fn size_bytes(input: &AssignInput) -> usize {
    let member = |member: &AssignMember| {
        let texts = member.member_id.len() + member.instance_id.as_ref().map_or(0, String::len);
        64 + texts + 4 * member.subscribed.len() + 8 * member.owned.len()
    };
    let topic = |topic: &AssignTopic| 32 + topic.topic_id.len() + topic.name.len() + 24 * topic.partitions.len();
    input.members.iter().map(member).sum::<usize>() + input.topics.iter().map(topic).sum::<usize>()
}

fn fault(reason: impl ToString) -> AssignorFault {
    AssignorFault { reason: reason.to_string() }
}
