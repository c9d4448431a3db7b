//! Lists of places in a request: partitions with what is said of each.

use std::collections::HashSet;

use levada_api::{ErrorCode, GroupPlace, Problem, echo};
use levada_model::limits::GROUP_OFFSETS_MAX;
use levada_model::{Offset, PartitionIndex, TopicName};

/// A place of a request, as the engine takes it.
pub(crate) type Place<O> = (TopicName, PartitionIndex, O);

/// Partitions, each named once in `list`, with what is said of each.
///
/// # Errors
/// More than [`GROUP_OFFSETS_MAX`]; or all names that are none, and else all partitions that come again, each at its place.
pub(crate) fn read_partitions<'a, O>(
    list: &str,
    wanted: impl ExactSizeIterator<Item = (&'a str, u32, O)>,
) -> Result<Vec<Place<O>>, Problem> {
    if wanted.len() > GROUP_OFFSETS_MAX {
        let detail = format!("{list} names at most {GROUP_OFFSETS_MAX} partitions; {} are too many", wanted.len());
        return Err(Problem::new(ErrorCode::InvalidField, detail.clone()).at(format!("/{list}"), detail));
    }
    let again = |index: usize, topic: &str, partition| {
        let detail = format!("partition {partition} of {} is named twice", echo(topic));
        (format!("/{list}/{index}/partition"), detail)
    };
    let mut named = HashSet::new();
    read(list, wanted, |index, topic, partition, _| {
        (!named.insert((topic, partition))).then(|| again(index, topic, partition))
    })
}

/// The same of records, each named once.
///
/// # Errors
/// As [`read_partitions`].
pub(super) fn read_records(list: &str, wanted: &[GroupPlace]) -> Result<Vec<Place<Offset>>, Problem> {
    let mut named = HashSet::new();
    read(list, offsets(wanted), |index, topic, partition, offset: &Offset| {
        let is_new = named.insert((topic, partition, *offset));
        (!is_new).then(|| (format!("/{list}/{index}"), format!("offset {offset} is named twice")))
    })
}

/// The places as they stand in a request.
pub(crate) fn offsets(places: &[GroupPlace]) -> impl ExactSizeIterator<Item = (&str, u32, Offset)> {
    places.iter().map(|place| (place.topic.as_str(), place.partition, Offset(place.offset)))
}

fn read<'a, O>(
    list: &str,
    wanted: impl Iterator<Item = (&'a str, u32, O)>,
    mut repeats: impl FnMut(usize, &'a str, u32, &O) -> Option<(String, String)>,
) -> Result<Vec<Place<O>>, Problem> {
    let (mut places, mut wrong, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (topic, partition, offset)) in wanted.enumerate() {
        repeated.extend(repeats(index, topic, partition, &offset));
        match TopicName::new(topic) {
            Ok(topic) => places.push((topic, PartitionIndex(partition), offset)),
            Err(error) => wrong.push((format!("/{list}/{index}/topic"), error.to_string())),
        }
    }
    if !wrong.is_empty() {
        let problem = Problem::new(ErrorCode::InvalidOffset, "some of the topics cannot be");
        return Err(problem.at_each(wrong.into_iter()));
    }
    if let Some((_, first)) = repeated.first() {
        return Err(Problem::new(ErrorCode::InvalidField, first.clone()).at_each(repeated.into_iter()));
    }
    Ok(places)
}
