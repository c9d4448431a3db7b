//! What a socket's one task does: reads frames, answers them, writes, and looks whether the peer is still there.
//!
//! What it holds is bounded: reading pauses while too much of what was read is not answered, or too many answers wait to
//! be taken.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use levada_api::{BadFrame, ClientFrame, ErrorCode, FrameId, Problem, ServerFrame, Subscribe, WsLimits, read_frame};
use levada_engine::{Engine, Work, compute};
use levada_model::limits::{
    WS_ANSWER_BYTES_MAX, WS_ERRORS_IN_A_ROW_MAX, WS_INFLIGHT_BYTES_MAX, WS_INFLIGHT_PRODUCES_MAX, WS_SUBSCRIPTIONS_MAX,
};
use levada_model::{NodeId, Principal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::produce::{self, Landed, Landing};
use super::seat::{self, COMMANDS_MAX, Command, Delivery, Seat};
use super::socket::{Close, Event, Outgoing, Socket};

use crate::AppState;
use crate::connection::Phase;
use crate::state::WsTimes;

const SERVER: &str = concat!("levada/", env!("CARGO_PKG_VERSION"));
/// This node, until there are several.
const NODE: NodeId = NodeId(1);
/// Pings without a sign of life after which a peer is given up.
const PINGS_MISSED_MAX: u32 = 2;
/// How often times are looked at, as a part of the shortest of them.
const LOOKS: u32 = 4;
/// How long the peer gets to take the reason of a close that is no slow reader's.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

const SLOW: Close = Close { code: 4008, reason: "the socket took nothing for --ws-slow-reader-timeout-ms" };
const TOO_MANY_ERRORS: Close = Close { code: 1008, reason: "100 frames in a row were refused" };
const GOING_AWAY: Close = Close { code: 1001, reason: "the server is shutting down" };

/// Why a session ends.
enum End {
    /// The peer is gone.
    Gone,
    /// We close.
    Close(Close),
}

/// A socket with everything that belongs to it.
pub(super) struct Session {
    socket: Socket,
    state: AppState,
    engine: Engine,
    who: Arc<Principal>,
    /// Who the client says that it is.
    client: Arc<str>,
    limits: WsLimits,
    times: WsTimes,
    subscriptions: HashMap<FrameId, mpsc::Sender<Command>>,
    outbox: mpsc::Sender<Delivery>,
    deliveries: mpsc::Receiver<Delivery>,
    /// A command that its subscription has no room for; nothing is read meanwhile.
    held: Option<(mpsc::Sender<Command>, Command)>,
    landings: FuturesOrdered<Landing>,
    landing_bytes: usize,
    answers: VecDeque<Bytes>,
    answer_bytes: usize,
    errors_in_a_row: u32,
    pings: Pings,
}

impl Session {
    pub(super) fn new(socket: Socket, state: &AppState, engine: Engine, who: Principal, client: String) -> Self {
        let (outbox, deliveries) = mpsc::channel(1);
        Self {
            socket,
            state: state.clone(),
            engine,
            who: Arc::new(who),
            client: client.into(),
            limits: super::limits(state),
            times: state.ws(),
            subscriptions: HashMap::new(),
            outbox,
            deliveries,
            held: None,
            landings: FuturesOrdered::new(),
            landing_bytes: 0,
            answers: VecDeque::new(),
            answer_bytes: 0,
            errors_in_a_row: 0,
            pings: Pings::new(state.ws().ping_interval),
        }
    }

    /// Serves the socket to its end.
    pub(super) async fn run(mut self, phase: watch::Receiver<Phase>) {
        let limits = self.limits.clone();
        self.answer(&ServerFrame::Welcome { server: SERVER, node: NODE.0, limits });
        let mut aborting = phase.clone();
        let end = tokio::select! {
            end = self.serve(phase) => end,
            () = until(&mut aborting, |phase| phase == Phase::Aborting) => return,
        };
        self.subscriptions.clear();
        if let End::Close(close) = end {
            tracing::debug!(close.code, close.reason, "a WebSocket is closed");
            let patience = if close == SLOW { self.times.slow_reader_timeout } else { CLOSE_PATIENCE };
            tokio::select! {
                () = self.socket.close(close, patience) => {}
                () = until(&mut aborting, |phase| phase == Phase::Aborting) => {}
            }
        }
    }

    async fn serve(&mut self, mut phase: watch::Receiver<Phase>) -> End {
        let mut draining = pin!(until(&mut phase, |phase| phase != Phase::Serving));
        let mut is_draining = false;
        let shortest = self.times.ping_interval.min(self.times.slow_reader_timeout);
        let mut look = interval((shortest / LOOKS).max(Duration::from_millis(1)));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.put_answers();
            if is_draining && self.is_done() {
                return End::Close(GOING_AWAY);
            }
            let reads = !is_draining && self.has_room();
            let takes = self.socket.has_room() && self.answers.is_empty();
            tokio::select! {
                event = self.socket.event(reads) => match self.on_event(event).await {
                    Some(end) => return end,
                    None => {}
                },
                Some(landed) = self.landings.next() => self.on_landed(landed),
                Some(delivery) = self.deliveries.recv(), if takes => self.on_delivery(delivery),
                () = pass_on(&mut self.held), if self.held.is_some() => {}
                _ = look.tick() => if let Some(end) = self.look(reads) {
                    return end;
                },
                () = &mut draining, if !is_draining => {
                    is_draining = true;
                    self.subscriptions.clear();
                    self.answer(&ServerFrame::Goaway { reason: GOING_AWAY.reason });
                }
            }
        }
    }

    /// Whether more may be read.
    fn has_room(&self) -> bool {
        self.held.is_none()
            && self.landings.len() < WS_INFLIGHT_PRODUCES_MAX
            && self.landing_bytes < WS_INFLIGHT_BYTES_MAX
            && self.answer_bytes < WS_ANSWER_BYTES_MAX
    }

    /// Whether everything is answered and taken.
    fn is_done(&self) -> bool {
        self.landings.is_empty() && self.answers.is_empty() && self.socket.is_empty()
    }

    fn put_answers(&mut self) {
        while self.socket.has_room()
            && let Some(answer) = self.answers.pop_front()
        {
            self.answer_bytes -= answer.len();
            self.socket.put(Outgoing::Text(answer));
        }
    }

    fn answer(&mut self, frame: &ServerFrame) {
        let json = Bytes::from(frame.to_json());
        self.answer_bytes += json.len();
        self.answers.push_back(json);
    }

    fn refuse(&mut self, id: Option<FrameId>, problem: Problem) {
        self.answer(&ServerFrame::Error { id, problem: Box::new(problem) });
    }

    async fn on_event(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Taken => None,
            Event::Alive => {
                self.pings.heard();
                None
            }
            Event::Text(text) => {
                self.pings.heard();
                self.on_text(text).await
            }
            Event::Gone => Some(End::Gone),
            Event::Broken(close) => Some(End::Close(close)),
        }
    }

    fn on_landed(&mut self, landed: Landed) {
        self.landing_bytes -= landed.frame_bytes;
        self.answer(&landed.answer);
    }

    fn on_delivery(&mut self, delivery: Delivery) {
        if delivery.is_last {
            self.subscriptions.remove(&delivery.id);
        }
        let mut messages = delivery.messages.into_iter();
        if let Some(first) = messages.next() {
            self.socket.put(first);
        }
        for message in messages {
            // What follows the first frame of a delivery is short.
            let (Outgoing::Text(bytes) | Outgoing::Binary(bytes)) = &message;
            if self.socket.has_room() {
                self.socket.put(message);
            } else {
                self.answer_bytes += bytes.len();
                self.answers.push_back(bytes.clone());
            }
        }
    }

    /// Looks at the times.
    fn look(&mut self, reads: bool) -> Option<End> {
        if self.socket.stalled() >= self.times.slow_reader_timeout {
            tracing::info!("a WebSocket's peer reads too slowly; its subscriptions end");
            return Some(End::Close(SLOW));
        }
        // A peer that is not read from, or that our ping has not reached yet, is not judged by its silence.
        if !reads || !self.socket.is_empty() {
            self.pings.heard();
        }
        match self.pings.look() {
            Ping::NotYet => None,
            Ping::Due if self.socket.has_room() => {
                self.socket.ping();
                None
            }
            Ping::Due => None,
            Ping::GiveUp => {
                tracing::info!("a WebSocket's peer answers no pings; it is dropped");
                Some(End::Gone)
            }
        }
    }

    async fn on_text(&mut self, text: Bytes) -> Option<End> {
        let size_bytes = text.len();
        let frame = compute(Work::Check, size_bytes, move || read_frame(&text)).await;
        match frame {
            Ok(frame) => {
                self.errors_in_a_row = 0;
                self.on_frame(frame, size_bytes).await;
                None
            }
            Err(BadFrame { id, problem }) => {
                self.refuse(id, problem);
                self.errors_in_a_row += 1;
                (self.errors_in_a_row >= WS_ERRORS_IN_A_ROW_MAX).then_some(End::Close(TOO_MANY_ERRORS))
            }
        }
    }

    async fn on_frame(&mut self, frame: ClientFrame, size_bytes: usize) {
        match frame {
            ClientFrame::Ping { id } => self.answer(&ServerFrame::Pong { id }),
            ClientFrame::Produce(produce) => {
                let landing = produce::begin(&self.engine, &self.who, produce, size_bytes).await;
                self.landing_bytes += size_bytes;
                self.landings.push_back(landing);
            }
            ClientFrame::Subscribe(wish) => self.subscribe(*wish),
            ClientFrame::Credit(id, credit) => self.command(id, Command::Credit(credit)),
            ClientFrame::Commit { id, cursor } => self.command(id, Command::Commit(cursor)),
            ClientFrame::Unsubscribe { id } => self.command(id, Command::End),
        }
    }

    fn subscribe(&mut self, wish: Subscribe) {
        let id = wish.id.clone();
        if self.subscriptions.contains_key(&id) {
            let detail = format!("there is a subscription {id} already; unsubscribe it, or choose another id");
            return self.refuse(Some(id), Problem::new(ErrorCode::SubscriptionExists, detail));
        }
        if self.subscriptions.len() >= WS_SUBSCRIPTIONS_MAX {
            let detail = format!("a socket has at most {WS_SUBSCRIPTIONS_MAX} subscriptions");
            return self.refuse(Some(id), Problem::new(ErrorCode::TooManySubscriptions, detail));
        }
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let seat = Seat {
            id: id.clone(),
            commands: receiver,
            outbox: self.outbox.clone(),
            _running: self.state.metrics().subscription(),
        };
        let (who, client) = (Arc::clone(&self.who), Arc::clone(&self.client));
        tokio::spawn(seat::serve(self.engine.clone(), who, client, wish, seat));
        self.subscriptions.insert(id, commands);
    }

    fn command(&mut self, id: FrameId, command: Command) {
        let Some(commands) = self.subscriptions.get(&id) else {
            let detail = format!("there is no subscription {id}");
            return self.refuse(Some(id), Problem::new(ErrorCode::UnknownSubscription, detail));
        };
        match commands.try_send(command) {
            // One that has just ended says so itself.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(command)) => self.held = Some((commands.clone(), command)),
        }
    }
}

/// Waits for room and passes the command on that is held.
async fn pass_on(held: &mut Option<(mpsc::Sender<Command>, Command)>) {
    let Some((commands, _)) = held else { return };
    let commands = commands.clone();
    let permit = commands.reserve().await;
    let (_, command) = held.take().expect("nobody else takes it");
    if let Ok(permit) = permit {
        permit.send(command);
    }
}

/// Returns when the server's end is so far, or the server gone.
async fn until(phase: &mut watch::Receiver<Phase>, is_so_far: impl Fn(Phase) -> bool) {
    let _ = phase.wait_for(|phase| is_so_far(*phase)).await;
}

/// When to ping, and when to give up.
struct Pings {
    interval: Duration,
    next: Instant,
    missed: u32,
}

enum Ping {
    NotYet,
    Due,
    GiveUp,
}

impl Pings {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() + interval, missed: 0 }
    }

    /// The peer lives.
    fn heard(&mut self) {
        self.missed = 0;
    }

    fn look(&mut self) -> Ping {
        let now = Instant::now();
        if now < self.next {
            return Ping::NotYet;
        }
        if self.missed >= PINGS_MISSED_MAX {
            return Ping::GiveUp;
        }
        self.missed += 1;
        self.next = now + self.interval;
        Ping::Due
    }
}
