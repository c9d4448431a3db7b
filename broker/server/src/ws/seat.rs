//! What a subscription and its session know of each other: commands one way, deliveries the other.

use std::sync::Arc;

use levada_api::{Credit, FrameId, IsolationWord, StreamFilter, StreamForm, StreamOf, Subscribe};
use levada_engine::Engine;
use levada_model::Principal;
use tokio::sync::mpsc;

use super::member::Member;
use super::outflow::refused;
use super::socket::Outgoing;
use super::subscription::Subscription;
use crate::metrics::Running;

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
    pub(super) fn delivery(&self, messages: Vec<Outgoing>) -> Delivery {
        Delivery { id: self.id.clone(), messages, is_last: false }
    }
}

/// What every kind of subscription is asked.
pub(super) struct Asked {
    pub(super) engine: Engine,
    pub(super) who: Arc<Principal>,
    /// Who the client says that it is.
    pub(super) client: Arc<str>,
    pub(super) id: FrameId,
    pub(super) isolation: IsolationWord,
    pub(super) form: StreamForm,
    pub(super) filter: Option<StreamFilter>,
}

/// Serves a subscription until it ends.
pub(super) async fn serve(engine: Engine, who: Arc<Principal>, client: Arc<str>, wish: Subscribe, mut seat: Seat) {
    let Subscribe { id, of, isolation, form, filter } = wish;
    let asked = Asked { engine, who, client, id, isolation, form, filter };
    let last = match of {
        StreamOf::Topics { topics, start } => match Subscription::open(&asked, &topics, &start).await {
            Ok(subscription) => subscription.serve(&mut seat).await,
            Err(problem) => Some(vec![refused(asked.id, problem)]),
        },
        StreamOf::Group { group, join, cursor } => match Member::join(&asked, &group, *join, cursor).await {
            Ok(member) => member.serve(&mut seat).await,
            Err(problem) => Some(vec![refused(asked.id, problem)]),
        },
    };
    if let Some(messages) = last {
        // A session that is gone has nobody to tell.
        let _ = seat.outbox.send(Delivery { id: seat.id, messages, is_last: true }).await;
    }
}
