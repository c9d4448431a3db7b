//! The members and topics of a trial of an assignor, in the engine's words.

use std::collections::HashSet;

use levada_api::{DryRunMember, DryRunModule, DryRunTopic, ErrorCode, GroupPartition, Problem};
use levada_engine::DryRunInput;
use levada_model::limits::{DRY_RUN_MEMBERS_MAX, GROUP_TOPICS_MAX};
use levada_model::{InstanceId, MemberId, PartitionIndex, TopicName};

/// The group of a trial, or the first field that is wrong.
pub(super) fn group(wanted: &DryRunModule) -> Result<DryRunInput, Problem> {
    let of_records = [
        ("/records", wanted.records.is_some()),
        ("/topic", wanted.topic.is_some()),
        ("/from", wanted.from.is_some()),
        ("/max_records", wanted.max_records.is_some()),
        ("/partition_count", wanted.partition_count.is_some()),
    ];
    if let Some((field, _)) = of_records.into_iter().find(|(_, is_there)| *is_there) {
        return Err(wrong(field, "an assignor is tried on members and topics"));
    }
    let (Some(members), Some(topics)) = (&wanted.members, &wanted.topics) else {
        return Err(wrong("", "an assignor is tried on members and topics, and both are needed"));
    };
    if !(1..=DRY_RUN_MEMBERS_MAX).contains(&members.len()) {
        return Err(wrong("/members", &format!("a trial has 1 to {DRY_RUN_MEMBERS_MAX} members")));
    }
    if topics.len() > GROUP_TOPICS_MAX {
        return Err(wrong("/topics", &format!("a trial has at most {GROUP_TOPICS_MAX} topics")));
    }
    let (mut names, mut ids) = (HashSet::new(), HashSet::new());
    let topic = |(place, given): (usize, &DryRunTopic)| {
        let at = format!("/topics/{place}/topic");
        let topic = TopicName::new(&given.topic).map_err(|error| wrong(&at, &error.to_string()))?;
        if !names.insert(topic.clone()) {
            return Err(wrong(&at, "the topic is named twice"));
        }
        Ok(levada_engine::DryRunTopic { topic, partitions: given.partitions, lags: given.lags.clone() })
    };
    let topics = topics.iter().enumerate().map(topic).collect::<Result<_, Problem>>()?;
    let member = |(place, given): (usize, &DryRunMember)| {
        let member = member(place, given, &names)?;
        if !ids.insert(member.member_id.clone()) {
            return Err(wrong(&format!("/members/{place}/member_id"), "the member is named twice"));
        }
        Ok(member)
    };
    let members = members.iter().enumerate().map(member).collect::<Result<_, Problem>>()?;
    Ok(DryRunInput::Group { members, topics })
}

fn member(
    place: usize,
    given: &DryRunMember,
    names: &HashSet<TopicName>,
) -> Result<levada_engine::DryRunMember, Problem> {
    let at = |field: &str| format!("/members/{place}/{field}");
    let known = |at: String, name: &str| {
        let name = TopicName::new(name).ok().filter(|name| names.contains(name));
        name.ok_or_else(|| wrong(&at, "it is not among the topics of the trial"))
    };
    let member_id = MemberId::new(&given.member_id).map_err(|error| wrong(&at("member_id"), &error.to_string()))?;
    let instance_id = given.instance_id.as_deref().map(InstanceId::new).transpose();
    let reads = |topics: &Vec<String>| {
        let topics = topics.iter().enumerate();
        topics.map(|(place, name)| known(at(&format!("topics/{place}")), name)).collect::<Result<_, Problem>>()
    };
    let owned = |(place, owned): (usize, &GroupPartition)| {
        Ok((known(at(&format!("owned/{place}/topic")), &owned.topic)?, PartitionIndex(owned.partition)))
    };
    Ok(levada_engine::DryRunMember {
        member_id,
        instance_id: instance_id.map_err(|error| wrong(&at("instance_id"), &error.to_string()))?,
        topics: given.topics.as_ref().map(reads).transpose()?,
        owned: given.owned.iter().enumerate().map(owned).collect::<Result<_, Problem>>()?,
    })
}

fn wrong(pointer: &str, detail: &str) -> Problem {
    Problem::new(ErrorCode::InvalidField, detail).at(pointer, detail)
}
