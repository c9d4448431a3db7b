//! Where a subscription without a group reads: all partitions of its topics, from positions of its own.

use std::time::Duration;

use futures_util::future::select_all;
use levada_api::{ErrorCode, Problem, StreamPlace, StreamStart, Subscribe};
use levada_engine::{Engine, FetchError, From, Isolation, Positions, TopicReader, TopicStart};
use levada_model::{Offset, PartitionIndex, Principal, TopicName};

use super::backlog::Read;
use crate::read::{cursor, refusal, start};

/// A reader a topic, in turn.
pub(super) struct Source {
    readers: Vec<TopicReader>,
    /// Whose turn it is.
    turn: usize,
}

impl Source {
    /// Opens readers where the subscription begins.
    ///
    /// # Errors
    /// What is wrong with its topics or its start.
    pub(super) async fn open(
        engine: &Engine,
        who: &Principal,
        wish: &Subscribe,
        isolation: Isolation,
    ) -> Result<Self, Problem> {
        let names = wish.topics.iter().enumerate().map(|(at, name)| {
            TopicName::new(name)
                .map_err(|error| crate::refusal::topic_name(&error).at(format!("/topics/{at}"), error.to_string()))
        });
        let names: Vec<TopicName> = names.collect::<Result<_, _>>()?;
        let mut start = Start::read(&wish.start, &names)?;
        let mut readers = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            let opened = start.open(engine, who, name, isolation).await;
            readers
                .push(opened.map_err(|error| refusal::fetch(&error).at(format!("/topics/{at}"), error.to_string()))?);
        }
        start.finish()?;
        Ok(Self { readers, turn: 0 })
    }

    /// The topics, by the numbers that [`Read::topic`] has.
    pub(super) fn topics(&self) -> Vec<TopicName> {
        self.readers.iter().map(|reader| reader.topic().clone()).collect()
    }

    /// Where it stands, topic by topic.
    pub(super) fn positions(&self) -> Vec<Positions> {
        self.readers.iter().map(TopicReader::positions).collect()
    }

    /// Offsets between the positions and the ends.
    pub(super) fn lag(&self) -> u64 {
        self.readers.iter().map(TopicReader::lag).sum()
    }

    /// Whether nothing behind the positions is gone yet.
    pub(super) fn is_whole(&self) -> bool {
        self.readers.iter().all(TopicReader::is_whole)
    }

    /// Reads on; with `waits` comes back only with something. May be dropped at any time without skipping anything.
    ///
    /// # Errors
    /// Those of the topic that cannot be read.
    pub(super) async fn next(
        &mut self,
        records_max: usize,
        bytes_max: usize,
        waits: bool,
    ) -> Result<Vec<Read>, FetchError> {
        let wait = if waits { Duration::MAX } else { Duration::ZERO };
        let of_topic = |topic: usize| move |fetched| Read { topic, fetched };
        if let [only] = &mut self.readers[..] {
            return Ok(only.next(records_max, bytes_max, wait).await?.parts.into_iter().map(of_topic(0)).collect());
        }
        let count = self.readers.len();
        let mut readers: Vec<_> = self.readers.iter_mut().enumerate().collect();
        readers.rotate_left(self.turn);
        if !waits {
            for (topic, reader) in readers {
                let parts = reader.next(records_max, bytes_max, wait).await?.parts;
                if !parts.is_empty() {
                    self.turn = (topic + 1) % count;
                    return Ok(parts.into_iter().map(of_topic(topic)).collect());
                }
            }
            return Ok(Vec::new());
        }
        let steps = readers
            .into_iter()
            .map(|(topic, reader)| Box::pin(async move { (topic, reader.next(records_max, bytes_max, wait).await) }));
        let ((topic, chunk), ..) = select_all(steps).await;
        self.turn = (topic + 1) % count;
        Ok(chunk?.parts.into_iter().map(of_topic(topic)).collect())
    }
}

/// Where readers begin.
enum Start {
    /// The same place everywhere.
    Same(From),
    /// Where a cursor says; its topics, as they are taken.
    Cursor(Vec<Positions>),
    /// Where positions in words say.
    Places(Vec<(TopicName, Vec<(PartitionIndex, Offset)>)>),
}

impl Start {
    fn read(start: &StreamStart, topics: &[TopicName]) -> Result<Self, Problem> {
        Ok(match start {
            StreamStart::Default => Self::Same(From::Latest),
            StreamStart::At(offset) => Self::Same(From::Offset(Offset(*offset))),
            StreamStart::From(text) => match start::word(text) {
                Some(word) => Self::Same(word),
                None => Self::Cursor(cursor::decode_several(text).ok_or_else(|| no_start("from", text))?),
            },
            StreamStart::Cursor(text) => {
                Self::Cursor(cursor::decode_several(text).ok_or_else(|| no_start("cursor", text))?)
            }
            StreamStart::Positions(places) => Self::Places(by_topic(places, topics)?),
        })
    }

    async fn open(
        &mut self,
        engine: &Engine,
        who: &Principal,
        topic: &TopicName,
        isolation: Isolation,
    ) -> Result<TopicReader, FetchError> {
        let open = |start| engine.topic_reader(who, topic, start, isolation);
        match self {
            Self::Same(from) => open(TopicStart::From(*from)).await,
            // A cursor does not say names, so it takes a reader to know which of its topics this one is.
            Self::Cursor(left) => {
                let reader = open(TopicStart::From(From::Earliest)).await?;
                let id = reader.positions().topic_id;
                match left.iter().position(|positions| positions.topic_id == id) {
                    Some(at) => open(TopicStart::Positions(left.swap_remove(at))).await,
                    None => Ok(reader),
                }
            }
            Self::Places(places) => {
                let reader = open(TopicStart::From(From::Earliest)).await?;
                let topic_id = reader.positions().topic_id;
                match places.iter_mut().find(|(name, _)| name == topic) {
                    Some((_, next)) => {
                        open(TopicStart::Positions(Positions { topic_id, next: std::mem::take(next) })).await
                    }
                    None => Ok(reader),
                }
            }
        }
    }

    /// Refuses a cursor with topics that nobody took.
    fn finish(&self) -> Result<(), Problem> {
        match self {
            Self::Cursor(left) if !left.is_empty() => {
                let detail = "the cursor is of other topics than these, or of one that was deleted";
                Err(Problem::new(ErrorCode::CursorGone, detail))
            }
            _ => Ok(()),
        }
    }
}

fn by_topic(
    places: &[StreamPlace],
    topics: &[TopicName],
) -> Result<Vec<(TopicName, Vec<(PartitionIndex, Offset)>)>, Problem> {
    let mut found: Vec<_> = topics.iter().map(|name| (name.clone(), Vec::new())).collect();
    for (at, place) in places.iter().enumerate() {
        let refused = |name: &str, detail: &str| {
            let pointer = format!("/positions/{at}/{name}");
            Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}")).at(pointer, detail)
        };
        let topic = found.iter_mut().find(|(name, _)| name.as_str() == place.topic);
        let (_, next) = topic.ok_or_else(|| refused("topic", "the subscription has no such topic"))?;
        match next.binary_search_by_key(&PartitionIndex(place.partition), |(partition, _)| *partition) {
            Ok(_) => return Err(refused("partition", "the partition is there twice")),
            Err(to) => next.insert(to, (PartitionIndex(place.partition), Offset(place.offset))),
        }
    }
    Ok(found)
}

fn no_start(name: &str, text: &str) -> Problem {
    let rule = if name == "from" {
        "an offset, earliest, latest, time:MS, tail:N or a cursor of this broker, unchanged"
    } else {
        "a cursor of this broker, unchanged"
    };
    let detail = format!("{name} takes {rule}; {:?} is not", levada_api::echo(text));
    Problem::new(ErrorCode::InvalidCursor, &*detail).at(format!("/{name}"), detail)
}
