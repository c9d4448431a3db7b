//! What a subscription has to say: frames that need no credit, and records for as long as there is some.

use levada_api::{Credit, FrameId, Problem, ServerFrame, StreamForm};
use levada_log::RecordsError;

use super::allowance::Allowance;
use super::backlog::{Backlog, Places, Read};
use super::socket::Outgoing;

/// A subscription's frames on their way out.
pub(super) struct Outflow {
    id: FrameId,
    backlog: Backlog,
    allowance: Allowance,
    ready: Vec<Outgoing>,
    /// Whether the client was told that it has everything.
    is_caught_up: bool,
}

impl Outflow {
    pub(super) fn new(id: FrameId, form: StreamForm, first: &ServerFrame) -> Self {
        Self {
            backlog: Backlog::new(id.clone(), form),
            id,
            allowance: Allowance::default(),
            ready: vec![first.to_json().into()],
            is_caught_up: false,
        }
    }

    pub(super) fn id(&self) -> &FrameId {
        &self.id
    }

    pub(super) fn backlog(&mut self) -> &mut Backlog {
        &mut self.backlog
    }

    pub(super) fn grant(&mut self, credit: Credit) {
        self.allowance.add(credit);
    }

    /// Puts a frame that needs no credit.
    pub(super) fn say(&mut self, frame: &ServerFrame) {
        self.ready.push(frame.to_json().into());
    }

    /// Puts an error.
    pub(super) fn refuse(&mut self, problem: Problem) {
        self.ready.push(refused(self.id.clone(), problem));
    }

    /// Puts what was read.
    pub(super) fn push(&mut self, reads: Vec<Read>) {
        self.is_caught_up &= reads.is_empty();
        self.backlog.push(reads);
    }

    /// Whether everything that was read is sent.
    pub(super) fn is_empty(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Whether more is to be read: all is sent, and credit is left.
    pub(super) fn is_thirsty(&self) -> bool {
        self.backlog.is_empty() && self.allowance.is_open()
    }

    /// Whether the client was told that it has everything.
    pub(super) fn is_caught_up(&self) -> bool {
        self.is_caught_up
    }

    /// Whether there is something to send.
    pub(super) fn has_frame(&mut self) -> bool {
        let is_sendable = |backlog: &mut Backlog, allowance: Allowance| {
            !backlog.is_empty() && (allowance.is_open() || backlog.begins_with_gap())
        };
        !self.ready.is_empty() || is_sendable(&mut self.backlog, self.allowance)
    }

    /// Puts the next frame of what was read, where one may be sent. `lag` is that behind all that was read.
    ///
    /// # Errors
    /// Where a stored batch cannot be taken apart.
    pub(super) fn advance(&mut self, places: &mut impl Places, lag: u64) -> Result<(), RecordsError> {
        self.ready.extend(self.backlog.next(&mut self.allowance, places, lag)?);
        Ok(())
    }

    /// Says that the end is reached, if it was not said since more was read.
    pub(super) fn note_end(&mut self, places: &impl Places) {
        if !std::mem::replace(&mut self.is_caught_up, true) {
            self.say(&ServerFrame::CaughtUp { id: self.id.clone(), cursor: places.cursor() });
        }
    }

    /// Everything that is ready.
    pub(super) fn take(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.ready)
    }

    /// Everything that is ready, and the last frame.
    pub(super) fn end(mut self, last: &ServerFrame) -> Vec<Outgoing> {
        self.say(last);
        self.ready
    }

    /// Everything that is ready, and the error that ends it all.
    pub(super) fn fail(mut self, problem: Problem) -> Vec<Outgoing> {
        self.refuse(problem);
        self.ready
    }
}

/// An `error` frame.
pub(super) fn refused(id: FrameId, problem: Problem) -> Outgoing {
    ServerFrame::Error { id: Some(id), problem: Box::new(problem) }.to_json().into()
}
