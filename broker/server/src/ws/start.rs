//! Where a subscription of topics begins, and its cursor: of one topic the same as everywhere, of several their own.

use levada_api::{ErrorCode, GroupPlace, Problem, StreamStart, echo};
use levada_engine::{From, Positions, TopicsStart};
use levada_model::{Offset, PartitionIndex, TopicName};

use crate::cursor::{decode_topic, decode_topics, encode_topic, encode_topics};
use crate::read::start;

/// The topics of a subscription.
///
/// # Errors
/// The first name that breaks the rule, with its place.
pub(super) fn topics(names: &[String]) -> Result<Vec<TopicName>, Problem> {
    let topic = |(at, name): (usize, &String)| {
        let name = TopicName::new(name);
        name.map_err(|error| crate::refusal::topic_name(&error).at(format!("/topics/{at}"), error.to_string()))
    };
    names.iter().enumerate().map(topic).collect()
}

/// Where readers of these topics begin.
///
/// # Errors
/// What is wrong with it.
pub(super) fn topics_start(start: &StreamStart, topics: &[TopicName]) -> Result<TopicsStart, Problem> {
    Ok(match start {
        StreamStart::Default => TopicsStart::From(From::Latest),
        StreamStart::At(offset) => TopicsStart::From(From::Offset(Offset(*offset))),
        StreamStart::From(text) => match start::word(text) {
            Some(word) => TopicsStart::From(word),
            None => TopicsStart::Positions(decode(text).ok_or_else(|| no_start("from", text))?),
        },
        StreamStart::Cursor(text) => TopicsStart::Positions(decode(text).ok_or_else(|| no_start("cursor", text))?),
        StreamStart::Positions(places) => TopicsStart::Places(by_name(places, topics)?),
    })
}

/// Whether the client said exactly where it wants to go on.
pub(super) fn names_a_place(start: &StreamStart) -> bool {
    match start {
        StreamStart::Default => false,
        StreamStart::At(_) | StreamStart::Cursor(_) | StreamStart::Positions(_) => true,
        StreamStart::From(text) => start::word(text).is_none(),
    }
}

/// The cursor of positions in these topics.
pub(super) fn encode(topics: &[Positions]) -> String {
    match topics {
        [only] => encode_topic(only),
        several => encode_topics(several),
    }
}

fn decode(text: &str) -> Option<Vec<Positions>> {
    decode_topic(text).map(|only| vec![only]).or_else(|| decode_topics(text))
}

fn by_name(places: &[GroupPlace], topics: &[TopicName]) -> Result<Vec<(TopicName, PartitionIndex, Offset)>, Problem> {
    let mut named: Vec<(TopicName, PartitionIndex, Offset)> = Vec::with_capacity(places.len());
    for (at, place) in places.iter().enumerate() {
        let refused = |field: &str, detail: &str| {
            let pointer = format!("/positions/{at}/{field}");
            Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}")).at(pointer, detail)
        };
        let topic = topics.iter().find(|topic| topic.as_str() == place.topic);
        let topic = topic.ok_or_else(|| refused("topic", "the subscription has no such topic"))?;
        let partition = PartitionIndex(place.partition);
        if named.iter().any(|(other, index, _)| other == topic && *index == partition) {
            return Err(refused("partition", "the partition is named twice"));
        }
        named.push((topic.clone(), partition, Offset(place.offset)));
    }
    Ok(named)
}

fn no_start(name: &str, text: &str) -> Problem {
    let rule = if name == "from" {
        "an offset, earliest, latest, time:MS, tail:N or a cursor of this broker, unchanged"
    } else {
        "a cursor of this broker, unchanged"
    };
    let detail = format!("{name} takes {rule}; {:?} is not", echo(text));
    Problem::new(ErrorCode::InvalidCursor, &*detail).at(format!("/{name}"), detail)
}
