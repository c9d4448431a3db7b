//! A subscription of topics: a task that reads them and hands over frames while there is credit.

use std::future::pending;
use std::time::Duration;

use futures_util::future::BoxFuture;
use levada_api::{ErrorCode, GroupPlace, IsolationWord, Problem, ServerFrame, StreamFilter, StreamForm, StreamStart};
use levada_engine::{FetchError, Isolation, Positions, RecordFilter, TopicPart, TopicsReader};
use levada_log::RecordsError;
use levada_model::limits::{READ_BYTES_DEFAULT, READ_RECORDS_MAX};
use levada_model::{ModuleRef, Offset, PartitionIndex, TopicName};

use super::backlog::{Places, Read};
use super::outflow::Outflow;
use super::seat::{Asked, Command, Seat};
use super::socket::Outgoing;
use super::start;
use crate::read::{filter, refusal};

/// Stored bytes of one read of records; the first record comes whatever its size. Behind the newest records a read goes to
/// another thread and back, which costs more than reading 64 KiB, and batches larger than this are read once for each
/// piece of them.
const CHUNK_BYTES: usize = 256 << 10;

/// Stored bytes of one read. Batches come whole, so that reading them in small pieces would read them again and again.
pub(super) fn chunk_bytes(form: StreamForm) -> usize {
    match form {
        StreamForm::Json => CHUNK_BYTES,
        StreamForm::Batches => READ_BYTES_DEFAULT,
    }
}

/// A reader that reads, and what it has read.
type Reading = BoxFuture<'static, (TopicsReader, Result<Vec<TopicPart>, FetchError>)>;

/// A subscription of topics.
pub(super) struct Subscription {
    reader: Reader,
    /// Where the client stands.
    places: Vec<Positions>,
    /// Where it stands behind everything that was read, and how far that is from the ends.
    behind: Vec<Positions>,
    lag: u64,
    out: Outflow,
    form: StreamForm,
    /// Offsets left to send at which reading goes on: the next read is under way while half of the last one is sent.
    refill_at: u64,
    /// Whether to read once without credit: the first thing to tell may be that something is gone.
    looks: bool,
    /// Over what the filter has failed, to be told behind what was read before.
    failed: Option<Problem>,
}

/// The reader, at rest or reading.
enum Reader {
    /// At rest; none only for the moment in which it begins to read.
    Idle(Option<Box<TopicsReader>>),
    Reading(Reading),
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
        let reader = match &asked.filter {
            Some(filter) => reader.filtered(open_filter(asked, filter).await?).patient(),
            None => reader,
        };
        let (places, is_whole, lag) = (reader.positions(), reader.is_whole(), reader.lag());
        let subscribed = ServerFrame::Subscribed {
            id: asked.id.clone(),
            positions: told(&topics, &places),
            resumed: is_whole && start::names_a_place(begin),
            cursor: places.cursor(),
            member: None,
        };
        let mut out = Outflow::new(asked.id.clone(), asked.form, &subscribed);
        topics.into_iter().for_each(|topic| out.backlog().add_topic(topic));
        let (behind, form, reader) = (places.clone(), asked.form, Reader::Idle(Some(Box::new(reader))));
        let mut this = Self { reader, places, behind, lag, out, form, refill_at: 0, looks: !is_whole, failed: None };
        this.note_end();
        Ok(this)
    }

    /// Serves until the end; what is to be said last, if there is still somebody to say it to.
    pub(super) async fn serve(mut self, seat: &mut Seat) -> Option<Vec<Outgoing>> {
        loop {
            if let Some(problem) = self.failed.take_if(|_| self.out.is_empty()) {
                return Some(self.out.fail(problem));
            }
            self.read_on();
            let has_frame = self.out.has_frame();
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
                (reader, read) = self.reader.read() => match read {
                    Ok(parts) => self.take(reader, parts),
                    Err(error @ FetchError::Filter { .. }) => {
                        self.failed = Some(refusal::fetch(&error));
                        self.reader = Reader::Idle(Some(Box::new(reader)));
                    }
                    Err(error) => return Some(self.out.fail(refusal::fetch(&error))),
                },
            }
        }
    }

    /// Begins to read if more is wanted, and nothing is being read.
    fn read_on(&mut self) {
        // Ahead of what is being sent only if more is known to be there.
        let is_ahead = self.lag > 0 && self.out.backlog().left() <= self.refill_at;
        let is_wanted =
            self.failed.is_none() && (self.looks || self.out.is_thirsty() || (self.out.is_open() && is_ahead));
        if let Reader::Idle(reader) = &mut self.reader
            && is_wanted
        {
            self.looks = false;
            let mut reader = reader.take().expect("it is put back when it has read");
            // What is not at the end looks first whether it is: it may be all but for holes.
            let wait = if self.out.is_caught_up() { Duration::MAX } else { Duration::ZERO };
            let bytes = chunk_bytes(self.form);
            self.reader = Reader::Reading(Box::pin(async move {
                let read = reader.next(READ_RECORDS_MAX, bytes, wait).await;
                (*reader, read)
            }));
        }
    }

    fn take(&mut self, mut reader: TopicsReader, parts: Vec<TopicPart>) {
        if self.form == StreamForm::Batches {
            for TopicPart { topic, fetched } in &parts {
                if let Some(last) = fetched.batches.last() {
                    reader.pass(*topic, fetched.partition, last.header().next_offset());
                }
            }
        }
        // The reader also knows of partitions that gave nothing yet, and has passed over holes.
        (self.behind, self.lag) = (reader.positions(), reader.lag());
        self.reader = Reader::Idle(Some(Box::new(reader)));
        self.out.push(parts.into_iter().map(|TopicPart { topic, fetched }| Read { topic, fetched }).collect());
        self.refill_at = self.out.backlog().left() / 2;
        self.note_end();
    }

    fn advance(&mut self) -> Result<(), RecordsError> {
        self.out.advance(&mut self.places, self.lag)?;
        self.note_end();
        Ok(())
    }

    /// Says that everything was delivered, once each time it was.
    fn note_end(&mut self) {
        if self.out.is_empty() {
            self.places.clone_from(&self.behind);
            if self.lag == 0 {
                self.out.note_end(&self.places);
            }
        }
    }

    fn refuse_commit(&mut self) {
        let detail = "the subscription is not a group's, so there is nothing to commit to";
        self.out.refuse(Problem::new(ErrorCode::InvalidField, detail).at("/id", detail));
    }
}

impl Reader {
    /// What was read; never while it rests. May be dropped and called again.
    async fn read(&mut self) -> (TopicsReader, Result<Vec<TopicPart>, FetchError>) {
        match self {
            Self::Reading(reading) => reading.await,
            Self::Idle(_) => pending().await,
        }
    }
}

impl Places for Vec<Positions> {
    fn moved(&mut self, topic: usize, partition: PartitionIndex, next: Offset) {
        crate::read::moved(&mut self[topic], partition, next);
    }

    fn cursor(&self) -> String {
        start::encode(self)
    }
}

async fn open_filter(asked: &Asked, wanted: &StreamFilter) -> Result<RecordFilter, Problem> {
    let module = ModuleRef::in_setting(&wanted.module).ok_or_else(|| {
        let detail = format!("{} is taken", filter::FILTER_RULE);
        Problem::new(ErrorCode::InvalidField, format!("/filter: {detail}")).at("/filter", detail)
    })?;
    let opened = filter::open(&asked.engine, &asked.who, &module, wanted.config.as_deref()).await;
    opened.map_err(|problem| {
        let place = if problem.code == ErrorCode::InvalidModuleConfig { "/filter_config" } else { "/filter" };
        let detail = problem.detail.clone();
        problem.at(place, detail)
    })
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
