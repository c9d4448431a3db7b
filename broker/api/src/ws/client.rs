//! Frames that a client sends, read strictly: one pass finds the members, and each is read by its own rule.

mod frame;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use levada_model::limits::{JSON_INTEGER_MAX, WS_SUBSCRIPTION_TOPICS_MAX};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use frame::{BadFrame, ClientFrame, Credit, Produce, StreamFilter, StreamForm, StreamOf, StreamStart, Subscribe};

use super::FrameId;
use crate::error::echo;
use crate::record_query::IsolationWord;
use crate::strict::{self, Object, Whole, pointer_token, without_place};
use crate::{ErrorCode, GroupPlace, JoinGroup, Problem};

/// Reads a frame.
///
/// # Errors
/// 400 `invalid-json` where it is no JSON, 422 `invalid-field` with the pointer where it is another.
///
/// # Panics
/// If `frame` is not UTF-8, which the protocol promises of text frames.
pub fn read_frame(frame: &Bytes) -> Result<ClientFrame, BadFrame> {
    let text = std::str::from_utf8(frame).expect("text frames are UTF-8");
    let read = Members::read(text).and_then(|mut members| {
        let read = members.frame(frame)?;
        members.finish()?;
        Ok(read)
    });
    read.map_err(|problem| BadFrame { id: lenient_id(text), problem })
}

/// Names of members that some frame has.
const NAMES: [&str; 21] = [
    "assignor",
    "assignor_config",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "max_poll_interval_ms",
    "instance_id",
    "type",
    "id",
    "topics",
    "group",
    "from",
    "cursor",
    "positions",
    "isolation",
    "format",
    "filter",
    "filter_config",
    "records",
    "bytes",
    "topic",
    "acks",
];
const TYPES: &str = "subscribe, credit, commit, unsubscribe, produce, ping";

/// Names of those with which a member joins a group, besides its topics.
const JOIN_NAMES: [&str; 7] = [
    "from",
    "assignor",
    "assignor_config",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "max_poll_interval_ms",
    "instance_id",
];

/// The members of a frame that nobody has taken yet.
struct Members<'f> {
    left: Vec<(Cow<'f, str>, &'f RawValue)>,
    kind: &'static str,
}

impl<'f> Members<'f> {
    fn read(text: &'f str) -> Result<Self, Problem> {
        let mut unknown = None;
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = MembersSeed { refused: &mut unknown }.deserialize(&mut reader);
        match read.and_then(|left| reader.end().map(|()| left)) {
            Ok(left) => Ok(Self { left, kind: "" }),
            Err(error) => Err(explain(text, unknown, &error)),
        }
    }

    fn frame(&mut self, frame: &Bytes) -> Result<ClientFrame, Problem> {
        let kind: Cow<'_, str> = self.need("type")?;
        Ok(match &*kind {
            "subscribe" => {
                self.kind = "subscribe";
                ClientFrame::Subscribe(Box::new(self.subscribe()?))
            }
            "credit" => {
                self.kind = "credit";
                self.credit()?
            }
            "commit" => {
                self.kind = "commit";
                ClientFrame::Commit { id: self.need("id")?, cursor: self.need("cursor")? }
            }
            "unsubscribe" => {
                self.kind = "unsubscribe";
                ClientFrame::Unsubscribe { id: self.need("id")? }
            }
            "produce" => {
                self.kind = "produce";
                ClientFrame::Produce(self.produce(frame)?)
            }
            "ping" => {
                self.kind = "ping";
                ClientFrame::Ping { id: self.take("id")? }
            }
            other => return Err(refused("type", format!("there is no frame {:?}; there are {TYPES}", echo(other)))),
        })
    }

    fn subscribe(&mut self) -> Result<Subscribe, Problem> {
        let id = self.need("id")?;
        let group: Option<String> = self.take("group")?;
        let filter: Option<String> = self.take("filter")?;
        let config = self.raw("filter_config").map(|raw| raw.get().to_owned());
        if config.is_some() && filter.is_none() {
            return Err(refused("filter_config", "there is no filter that it could be for"));
        }
        let isolation: IsolationWord = self.take("isolation")?.unwrap_or_default();
        let form = self.take("format")?.unwrap_or_default();
        if filter.is_some() && group.is_some() {
            return Err(refused("filter", "a group's members read all that is in their partitions"));
        }
        if filter.is_some() && form == StreamForm::Batches {
            return Err(refused("filter", "stored batches come as they are; a filter answers with records"));
        }
        let filter = filter.map(|module| StreamFilter { module, config });
        let of = match group {
            Some(_) if isolation != IsolationWord::ReadCommitted => {
                return Err(refused("isolation", "a group's members read what is committed"));
            }
            Some(group) => self.member(group)?,
            None => {
                let topics: Option<Vec<String>> = self.take("topics")?;
                let topics = topics.ok_or_else(|| whole("one of topics and group is needed"))?;
                check_topics(&topics)?;
                StreamOf::Topics { topics, start: self.start()? }
            }
        };
        Ok(Subscribe { id, of, isolation, form, filter })
    }

    /// A member joins with the fields of [`JoinGroup`], but that `start` is called `from` here.
    fn member(&mut self, group: String) -> Result<StreamOf, Problem> {
        let mut json = "{".to_owned();
        let mut put = |name: &str, value: &str| json.push_str(&format!("\"{name}\":{value},"));
        let topics = self.raw("topics");
        put("topics", topics.map_or("[]", RawValue::get));
        for name in JOIN_NAMES {
            if let Some(value) = self.raw(name) {
                put(if name == "from" { "start" } else { name }, value.get());
            }
        }
        json.pop();
        json.push('}');
        let join = strict::from_json::<JoinGroup>(json.as_bytes()).map_err(|mut problem| {
            let place = problem.errors.first_mut().filter(|place| place.pointer == "/start");
            if let Some(place) = place {
                place.pointer = "/from".to_owned();
                problem.detail = format!("/from: {}", place.detail);
            }
            problem
        })?;
        if topics.is_some() {
            check_topics(&join.topics)?;
        }
        Ok(StreamOf::Group { group, join: Box::new(join), cursor: self.take("cursor")? })
    }

    fn start(&mut self) -> Result<StreamStart, Problem> {
        let from: Option<From> = self.take("from")?;
        let cursor: Option<String> = self.take("cursor")?;
        let positions: Option<Vec<Object<GroupPlace>>> = self.take("positions")?;
        Ok(match (from, cursor, positions) {
            (None, None, None) => StreamStart::Default,
            (Some(From::Offset(offset)), None, None) => StreamStart::At(offset),
            (Some(From::Word(word)), None, None) => StreamStart::From(word),
            (None, Some(cursor), None) => StreamStart::Cursor(cursor),
            (None, None, Some(positions)) => {
                StreamStart::Positions(positions.into_iter().map(|Object(place)| place).collect())
            }
            (from, ..) => {
                let second = if from.is_none() { "positions" } else { "from" };
                return Err(refused(second, "only one of from, cursor and positions"));
            }
        })
    }

    fn credit(&mut self) -> Result<ClientFrame, Problem> {
        let id = self.need("id")?;
        let records = self.take::<Whole<u64>>("records")?.map(|Whole(n)| n);
        let bytes = self.take::<Whole<u64>>("bytes")?.map(|Whole(n)| n);
        if records.is_none() && bytes.is_none() {
            return Err(whole("one of records and bytes is needed"));
        }
        Ok(ClientFrame::Credit(id, Credit { records, bytes }))
    }

    fn produce(&mut self, frame: &Bytes) -> Result<Produce, Problem> {
        let id = self.need("id")?;
        let topic = self.need("topic")?;
        let acks = self.take("acks")?.unwrap_or_default();
        let records = self.raw("records").ok_or_else(|| missing("records"))?;
        Ok(Produce { id, topic, acks, records: frame.slice_ref(records.get().as_bytes()) })
    }

    fn raw(&mut self, name: &str) -> Option<&'f RawValue> {
        let at = self.left.iter().position(|(other, _)| other == name)?;
        Some(self.left.swap_remove(at).1)
    }

    fn take<T: Deserialize<'f>>(&mut self, name: &str) -> Result<Option<T>, Problem> {
        self.raw(name).map(|raw| strict::member(name, raw.get())).transpose()
    }

    fn need<T: Deserialize<'f>>(&mut self, name: &str) -> Result<T, Problem> {
        self.take(name)?.ok_or_else(|| missing(name))
    }

    fn finish(self) -> Result<(), Problem> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(refused(name, format!("a frame {} has no such field", self.kind))),
        }
    }
}

fn check_topics(topics: &[String]) -> Result<(), Problem> {
    if !(1..=WS_SUBSCRIPTION_TOPICS_MAX).contains(&topics.len()) {
        return Err(refused("topics", format!("a subscription has 1 to {WS_SUBSCRIPTION_TOPICS_MAX} topics")));
    }
    let repeated = (1..topics.len()).find(|at| topics[..*at].contains(&topics[*at]));
    repeated.map_or(Ok(()), |at| Err(refused(&format!("topics/{at}"), "the topic is there twice")))
}

fn missing(name: &str) -> Problem {
    whole(&format!("the field {name} is missing"))
}

/// A frame that is wrong as a whole.
fn whole(detail: &str) -> Problem {
    Problem::new(ErrorCode::InvalidField, detail).at("", detail)
}

/// A member (named by a pointer without its first slash) that is not taken.
fn refused(name: &str, detail: impl Into<String>) -> Problem {
    let detail = detail.into();
    Problem::new(ErrorCode::InvalidField, format!("/{name}: {detail}")).at(format!("/{name}"), detail)
}

/// Malformed JSON comes first, also where it stands behind something that is not taken.
fn explain(text: &str, unknown: Option<String>, error: &serde_json::Error) -> Problem {
    if let Err(syntax) = serde_json::from_str::<IgnoredAny>(text) {
        return Problem::new(ErrorCode::InvalidJson, format!("the frame is not JSON: {syntax}"));
    }
    let detail = without_place(&error.to_string());
    match unknown {
        Some(name) => refused(&pointer_token(&name), detail),
        None => whole(&detail),
    }
}

/// The `id` of a frame that is refused for something else, if it can be told.
fn lenient_id(text: &str) -> Option<FrameId> {
    struct IdSeed;
    impl<'de> Visitor<'de> for IdSeed {
        type Value = Option<FrameId>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut id = None;
            while let Some(name) = map.next_key::<Cow<'_, str>>()? {
                if name == "id" {
                    id = serde_json::from_str(map.next_value::<&RawValue>()?.get()).ok();
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(id)
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_map(IdSeed).ok().flatten()
}

/// Finds the members of a frame; leaves the name of one that is refused.
struct MembersSeed<'r> {
    refused: &'r mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for MembersSeed<'_> {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MembersSeed<'_> {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the field type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Self::Value = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            let fault = if !NAMES.contains(&&*name) {
                Some("no frame has such a field")
            } else if members.iter().any(|(other, _)| *other == name) {
                Some("the field is there twice")
            } else {
                None
            };
            if let Some(fault) = fault {
                *self.refused = Some(echo(&name).into_owned());
                return Err(A::Error::custom(fault));
            }
            members.push((name, map.next_value()?));
        }
        Ok(members)
    }
}

/// A name, borrowed from the frame unless it has escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

/// `from`: an offset, or a word or cursor.
enum From {
    Offset(u64),
    Word(String),
}

impl<'de> Deserialize<'de> for From {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FromVisitor;
        impl Visitor<'_> for FromVisitor {
            type Value = From;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(
                    f,
                    "an integer from 0 to {JSON_INTEGER_MAX}, \"earliest\", \"latest\", \"time:MS\", \"tail:N\" or a cursor"
                )
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<From, E> {
                let refused = || E::invalid_value(Unexpected::Unsigned(n), &self);
                if n > JSON_INTEGER_MAX { Err(refused()) } else { Ok(From::Offset(n)) }
            }
            fn visit_str<E>(self, text: &str) -> Result<From, E> {
                Ok(From::Word(text.to_owned()))
            }
        }
        deserializer.deserialize_any(FromVisitor)
    }
}

#[cfg(test)]
mod tests;
