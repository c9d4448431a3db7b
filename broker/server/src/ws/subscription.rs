//! A subscription without a group: a task that reads topics and hands over frames while there is credit.

use std::sync::Arc;

use levada_api::{
    Credit, ErrorCode, FrameId, IsolationWord, Problem, ServerFrame, StreamPlace, StreamStart, Subscribe,
};
use levada_engine::{Engine, Isolation, Positions};
use levada_log::RecordsError;
use levada_model::Principal;
use levada_model::limits::READ_RECORDS_MAX;
use tokio::sync::mpsc;

use super::allowance::Allowance;
use super::backlog::{Backlog, Places};
use super::socket::Outgoing;
use super::source::Source;
use crate::metrics::Running;
use crate::read::{cursor, refusal};

/// Stored bytes of one read; the first batch comes whatever its size.
const CHUNK_BYTES: usize = 64 << 10;
/// Commands that may wait for one subscription.
pub(super) const COMMANDS_MAX: usize = 16;

/// What a session tells a subscription. Dropping the sender ends it without another word.
#[derive(Debug)]
pub(super) enum Command {
    /// More may be sent.
    Credit(Credit),
    /// What was delivered up to this cursor is done.
    Commit(String),
    /// The client wants no more.
    End,
}

/// What a subscription hands over at a time.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) id: FrameId,
    pub(super) messages: Vec<Outgoing>,
    /// Whether the subscription is over.
    pub(super) is_last: bool,
}

/// A subscription's place at its session.
pub(super) struct Seat {
    pub(super) id: FrameId,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) outbox: mpsc::Sender<Delivery>,
    /// Counts it.
    pub(super) _running: Running,
}

impl Seat {
    /// Hands the last frames over.
    pub(super) async fn leave(self, messages: Vec<Outgoing>) {
        let last = Delivery { id: self.id, messages, is_last: true };
        // A session that is gone has nobody to tell.
        let _ = self.outbox.send(last).await;
    }
}

/// Serves a subscription until it ends.
pub(super) async fn serve(engine: Engine, who: Arc<Principal>, wish: Subscribe, mut seat: Seat) {
    let last = match Subscription::open(&engine, &who, &wish).await {
        Ok(subscription) => subscription.serve(&mut seat).await,
        Err(problem) => Some(vec![refused(&wish.id, problem)]),
    };
    if let Some(frames) = last {
        seat.leave(frames).await;
    }
}

struct Subscription {
    source: Source,
    /// Where the client stands.
    places: Vec<Positions>,
    backlog: Backlog,
    allowance: Allowance,
    /// Frames that need no credit.
    ready: Vec<Outgoing>,
    /// Whether the client was told that it has everything.
    is_caught_up: bool,
    /// Whether to read once without credit: the first thing to tell may be that something is gone.
    looks: bool,
    id: FrameId,
}

impl Subscription {
    async fn open(engine: &Engine, who: &Principal, wish: &Subscribe) -> Result<Self, Problem> {
        let isolation = match wish.isolation {
            IsolationWord::ReadCommitted => Isolation::ReadCommitted,
            IsolationWord::ReadUncommitted => Isolation::ReadUncommitted,
        };
        let source = Source::open(engine, who, wish, isolation).await?;
        let (topics, places, is_whole) = (source.topics(), source.positions(), source.is_whole());
        let place =
            |(topic, positions): (_, &Positions)| {
                let topic: &levada_model::TopicName = topic;
                let topic = topic.as_str().to_owned();
                let place = move |(partition, next): &(levada_model::PartitionIndex, levada_model::Offset)| {
                    StreamPlace { topic: topic.clone(), partition: partition.0, offset: next.0 }
                };
                positions.next.iter().map(place).collect::<Vec<_>>()
            };
        let subscribed = ServerFrame::Subscribed {
            id: wish.id.clone(),
            positions: topics.iter().zip(&places).flat_map(place).collect(),
            resumed: is_whole && names_a_place(&wish.start),
            cursor: places.cursor(),
        };
        let mut this = Self {
            backlog: Backlog::new(wish.id.clone(), topics, wish.form),
            source,
            places,
            allowance: Allowance::default(),
            ready: vec![subscribed.to_json().into()],
            is_caught_up: false,
            looks: !is_whole,
            id: wish.id.clone(),
        };
        this.note_end();
        Ok(this)
    }

    /// Serves until the end; what is to be said last, if there is still somebody to say it to.
    async fn serve(mut self, seat: &mut Seat) -> Option<Vec<Outgoing>> {
        loop {
            let has_frame = !self.ready.is_empty() || self.has_sendable();
            let reads = self.backlog.is_empty() && (self.looks || self.allowance.is_open());
            tokio::select! {
                biased;
                command = seat.commands.recv() => match command? {
                    Command::Credit(credit) => self.allowance.add(credit),
                    Command::Commit(_) => self.refuse_commit(),
                    Command::End => {
                        let last = ServerFrame::Unsubscribed { id: self.id.clone() };
                        return Some(self.last(last.to_json().into()));
                    }
                },
                permit = seat.outbox.reserve(), if has_frame => {
                    let permit = permit.ok()?;
                    match self.take_frames() {
                        Ok(messages) => permit.send(Delivery { id: self.id.clone(), messages, is_last: false }),
                        Err(error) => return Some(self.failed(refusal::records(&error))),
                    }
                }
                read = self.source.next(READ_RECORDS_MAX, CHUNK_BYTES, self.is_caught_up), if reads => match read {
                    Ok(reads) => {
                        self.looks = false;
                        self.is_caught_up &= reads.is_empty();
                        self.backlog.push(reads);
                        self.note_end();
                    }
                    Err(error) => return Some(self.failed(refusal::fetch(&error))),
                },
            }
        }
    }

    fn has_sendable(&mut self) -> bool {
        !self.backlog.is_empty() && (self.allowance.is_open() || self.backlog.begins_with_gap())
    }

    /// What is ready, and the next frame of the backlog where one may be sent.
    fn take_frames(&mut self) -> Result<Vec<Outgoing>, RecordsError> {
        if let Some(frame) = self.backlog.next(&mut self.allowance, &mut self.places, self.source.lag())? {
            self.ready.push(frame);
        }
        self.note_end();
        Ok(std::mem::take(&mut self.ready))
    }

    /// Says that everything was delivered, once each time it was.
    fn note_end(&mut self) {
        if !self.backlog.is_empty() {
            return;
        }
        // The reader also knows of partitions that gave nothing yet, and has passed over holes.
        self.places = self.source.positions();
        if !self.is_caught_up && self.source.lag() == 0 {
            self.is_caught_up = true;
            let frame = ServerFrame::CaughtUp { id: self.id.clone(), cursor: self.places.cursor() };
            self.ready.push(frame.to_json().into());
        }
    }

    fn refuse_commit(&mut self) {
        let detail = "the subscription is not a group's, so there is nothing to commit to";
        self.ready.push(refused(&self.id, Problem::new(ErrorCode::InvalidField, detail).at("/id", detail)));
    }

    fn failed(self, problem: Problem) -> Vec<Outgoing> {
        let refused = refused(&self.id, problem);
        self.last(refused)
    }

    fn last(mut self, frame: Outgoing) -> Vec<Outgoing> {
        self.ready.push(frame);
        self.ready
    }
}

fn refused(id: &FrameId, problem: Problem) -> Outgoing {
    ServerFrame::Error { id: Some(id.clone()), problem: Box::new(problem) }.to_json().into()
}

/// Whether the client said exactly where it wants to go on.
fn names_a_place(start: &StreamStart) -> bool {
    match start {
        StreamStart::Default => false,
        StreamStart::At(_) | StreamStart::Cursor(_) | StreamStart::Positions(_) => true,
        StreamStart::From(text) => cursor::decode_several(text).is_some(),
    }
}
