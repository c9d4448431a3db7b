//! The check of an assignor's answer.

use levada_model::{MemberId, PartitionIndex};
use thiserror::Error;

use super::board::Board;
use super::{Assignment, AssignorInput, AssignorMember, TopicPartition};

/// What is wrong with an assignor's answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssignmentError {
    /// Not one list a member: members that do not exist, or forgotten ones.
    #[error("{got} lists for {expected} members")]
    Members {
        /// Members given.
        expected: usize,
        /// Lists answered.
        got: usize,
    },
    /// A topic or partition that was not in the input.
    #[error("member {member} was given {}, which does not exist", show(partition))]
    Unknown {
        /// Whom it was given to.
        member: MemberId,
        /// What was given.
        partition: TopicPartition,
    },
    /// A topic that was not in the input, from whoever names topics by their places there.
    #[error("member {member} was given partitions of topic {place} of {topics}")]
    UnknownTopic {
        /// Whom they were given to.
        member: MemberId,
        /// What was named.
        place: u32,
        /// How many topics there are.
        topics: usize,
    },
    /// A partition of a topic that the member does not subscribe to.
    #[error("member {member} was given {}, whose topic it does not subscribe to", show(partition))]
    NotSubscribed {
        /// Whom it was given to.
        member: MemberId,
        /// What was given.
        partition: TopicPartition,
    },
    /// A partition given twice.
    #[error("{} was given to member {first} and to member {second}", show(partition))]
    Twice {
        /// What was given.
        partition: TopicPartition,
        /// Whom it was given to first.
        first: MemberId,
        /// Whom it was given to again; may be the same.
        second: MemberId,
    },
    /// A partition that somebody subscribes to and nobody was given.
    #[error("{} was given to nobody", show(partition))]
    Missing {
        /// What is missing.
        partition: TopicPartition,
    },
}

/// Reads and checks an assignor's answer that names each partition by its topic's place in the input and its number: a list
/// for each member.
///
/// # Errors
/// As [`check_assignment`], and at a place that no topic has.
pub fn read_assignment(
    input: &AssignorInput,
    answer: impl ExactSizeIterator<Item = impl IntoIterator<Item = (u32, u32)>>,
) -> Result<Assignment, AssignmentError> {
    if answer.len() != input.members.len() {
        return Err(AssignmentError::Members { expected: input.members.len(), got: answer.len() });
    }
    let mut assignment = Assignment::with_capacity(answer.len());
    for (AssignorMember { member_id, .. }, list) in input.members.iter().zip(answer) {
        let partition = |(place, partition): (u32, u32)| match input.topics.get(place as usize) {
            Some(topic) => Ok(TopicPartition { topic: topic.topic, partition: PartitionIndex(partition) }),
            None => {
                let (member, topics) = (member_id.clone(), input.topics.len());
                Err(AssignmentError::UnknownTopic { member, place, topics })
            }
        };
        assignment.push(list.into_iter().map(partition).collect::<Result<_, _>>()?);
    }
    check_assignment(input, &assignment)?;
    Ok(assignment)
}

/// Checks an assignor's answer: every subscribed partition exactly once, each with a member that subscribes to it, and
/// nothing else.
///
/// # Errors
/// What is wrong with it first, in the order of the answer; what is missing comes last.
pub fn check_assignment(input: &AssignorInput, assignment: &Assignment) -> Result<(), AssignmentError> {
    if assignment.len() != input.members.len() {
        return Err(AssignmentError::Members { expected: input.members.len(), got: assignment.len() });
    }
    let board = Board::new(input);
    let name = |member: usize| input.members[member].member_id.clone();
    let mut owners = vec![None; board.partitions()];
    for (member, given) in assignment.iter().enumerate() {
        for partition in given.iter().copied() {
            let Some(place) = board.place(&partition) else {
                return Err(AssignmentError::Unknown { member: name(member), partition });
            };
            if !board.subscribes(member, board.topic_of(place)) {
                return Err(AssignmentError::NotSubscribed { member: name(member), partition });
            }
            if let Some(first) = owners[place].replace(member) {
                return Err(AssignmentError::Twice { partition, first: name(first), second: name(member) });
            }
        }
    }
    let missing = |place: &usize| owners[*place].is_none() && !board.subscribers(board.topic_of(*place)).is_empty();
    match (0..board.partitions()).find(missing) {
        Some(place) => Err(AssignmentError::Missing { partition: board.partition(place) }),
        None => Ok(()),
    }
}

fn show(partition: &TopicPartition) -> String {
    format!("partition {} of topic {}", partition.partition, partition.topic)
}
