//! A subscription of topics: a task that reads them and hands over frames while there is credit.

use std::time::Duration;

use levada_api::{ErrorCode, GroupPlace, IsolationWord, Problem, ServerFrame, StreamForm, StreamStart};
use levada_engine::{FetchError, Isolation, Positions, TopicPart, TopicsReader};
use levada_log::RecordsError;
use levada_model::TopicName;
use levada_model::limits::{READ_BYTES_DEFAULT, READ_RECORDS_MAX};

use super::backlog::{Places, Read};
use super::outflow::Outflow;
use super::seat::{Asked, Command, Seat};
use super::socket::Outgoing;
use super::start;
use crate::read::refusal;

/// Stored bytes of one read of records; the first record comes whatever its size.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Stored bytes of one read. Batches come whole, so that reading them in small pieces would read them again and again.
pub(super) fn chunk_bytes(form: StreamForm) -> usize {
    match form {
        StreamForm::Json => CHUNK_BYTES,
        StreamForm::Batches => READ_BYTES_DEFAULT,
    }
}

/// A subscription of topics.
pub(super) struct Subscription {
    reader: TopicsReader,
    /// Where the client stands.
    places: Vec<Positions>,
    out: Outflow,
    form: StreamForm,
    /// Whether to read once without credit: the first thing to tell may be that something is gone.
    looks: bool,
}

impl Subscription {
    /// Opens a reader where the subscription begins.
    ///
    /// # Errors
    /// What is wrong with the topics or the start.
    pub(super) async fn open(asked: &Asked, names: &[String], begin: &StreamStart) -> Result<Self, Problem> {
        let isolation = match asked.isolation {
            IsolationWord::ReadCommitted => Isolation::ReadCommitted,
            IsolationWord::ReadUncommitted => Isolation::ReadUncommitted,
        };
        let topics = start::topics(names)?;
        let begins = start::topics_start(begin, &topics)?;
        let reader = asked.engine.topics_reader(&asked.who, &topics, begins, isolation).await;
        let reader = reader.map_err(|error| unreadable(&error, &topics))?;
        let (places, is_whole) = (reader.positions(), reader.is_whole());
        let subscribed = ServerFrame::Subscribed {
            id: asked.id.clone(),
            positions: told(&topics, &places),
            resumed: is_whole && start::names_a_place(begin),
            cursor: places.cursor(),
            member: None,
        };
        let mut out = Outflow::new(asked.id.clone(), asked.form, &subscribed);
        topics.into_iter().for_each(|topic| out.backlog().add_topic(topic));
        let mut this = Self { reader, places, out, form: asked.form, looks: !is_whole };
        this.note_end();
        Ok(this)
    }

    /// Serves until the end; what is to be said last, if there is still somebody to say it to.
    pub(super) async fn serve(mut self, seat: &mut Seat) -> Option<Vec<Outgoing>> {
        loop {
            let has_frame = self.out.has_frame();
            let reads = self.out.is_thirsty() || (self.looks && self.out.is_empty());
            // What is not at the end looks first whether it is: it may be all but for holes.
            let wait = if self.out.is_caught_up() { Duration::MAX } else { Duration::ZERO };
            tokio::select! {
                biased;
                command = seat.commands.recv() => match command? {
                    Command::Credit(credit) => self.out.grant(credit),
                    Command::Commit(_) => self.refuse_commit(),
                    Command::End => {
                        let last = ServerFrame::Unsubscribed { id: self.out.id().clone() };
                        return Some(self.out.end(&last));
                    }
                },
                permit = seat.outbox.reserve(), if has_frame => {
                    let permit = permit.ok()?;
                    if let Err(error) = self.advance() {
                        return Some(self.out.fail(refusal::records(&error)));
                    }
                    permit.send(seat.delivery(self.out.take()));
                }
                read = self.reader.next(READ_RECORDS_MAX, chunk_bytes(self.form), wait), if reads => match read {
                    Ok(parts) => self.push(parts),
                    Err(error) => return Some(self.out.fail(refusal::fetch(&error))),
                },
            }
        }
    }

    fn push(&mut self, parts: Vec<TopicPart>) {
        self.looks = false;
        if self.form == StreamForm::Batches {
            for TopicPart { topic, fetched } in &parts {
                if let Some(last) = fetched.batches.last() {
                    self.reader.pass(*topic, fetched.partition, last.header().next_offset());
                }
            }
        }
        self.out.push(parts.into_iter().map(|TopicPart { topic, fetched }| Read { topic, fetched }).collect());
        self.note_end();
    }

    fn advance(&mut self) -> Result<(), RecordsError> {
        self.out.advance(&mut self.places, self.reader.lag())?;
        self.note_end();
        Ok(())
    }

    /// Says that everything was delivered, once each time it was.
    fn note_end(&mut self) {
        if !self.out.is_empty() {
            return;
        }
        // The reader also knows of partitions that gave nothing yet, and has passed over holes.
        self.places = self.reader.positions();
        if self.reader.lag() == 0 {
            self.out.note_end(&self.places);
        }
    }

    fn refuse_commit(&mut self) {
        let detail = "the subscription is not a group's, so there is nothing to commit to";
        self.out.refuse(Problem::new(ErrorCode::InvalidField, detail).at("/id", detail));
    }
}

impl Places for Vec<Positions> {
    fn moved(&mut self, topic: usize, partition: levada_model::PartitionIndex, next: levada_model::Offset) {
        crate::read::moved(&mut self[topic], partition, next);
    }

    fn cursor(&self) -> String {
        start::encode(self)
    }
}

fn told(topics: &[TopicName], positions: &[Positions]) -> Vec<GroupPlace> {
    let mut places = Vec::new();
    for (topic, Positions { next, .. }) in topics.iter().zip(positions) {
        places.extend(next.iter().map(|(partition, offset)| GroupPlace {
            topic: topic.to_string(),
            partition: partition.0,
            offset: offset.0,
        }));
    }
    places
}

/// The refusal of a reader, with the topic's place where it is about one.
fn unreadable(error: &FetchError, topics: &[TopicName]) -> Problem {
    let problem = refusal::fetch(error);
    match error {
        FetchError::NotFound(name) => {
            let at = topics.iter().position(|topic| topic == name).unwrap_or_default();
            problem.at(format!("/topics/{at}"), error.to_string())
        }
        _ => problem,
    }
}
