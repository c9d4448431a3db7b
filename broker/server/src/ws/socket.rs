//! The socket itself: messages in and out, a bounded amount at a time, and the close with its reason.
//!
//! What goes out is cut into frames of [`FRAME_BYTES`], so that a large message fills no buffer, lets pings pass and
//! shows whether the peer takes anything. Not here: what is said.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, Stream};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use crate::read::PIECE_BYTES;

/// Bytes that are read at a time, and kept for an idle socket.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Largest frame that is sent: a piece of records and the one that filled it, mostly.
const FRAME_BYTES: usize = PIECE_BYTES + PIECE_BYTES / 4;
/// How long a close waits for the peer to go, once it has taken the reason, and how many bytes it reads on meanwhile:
/// closing a connection with unread bytes would take the reason away from the peer.
const LINGERING: (Duration, usize) = (Duration::from_secs(2), 64 << 20);

/// A message to send.
#[derive(Clone, Debug)]
pub(super) enum Outgoing {
    /// JSON.
    Text(Bytes),
    /// A header and record batches.
    Binary(Bytes),
}

impl From<Vec<u8>> for Outgoing {
    fn from(json: Vec<u8>) -> Self {
        Self::Text(json.into())
    }
}

/// What happens on a socket.
pub(super) enum Event {
    /// The peer has taken all that was put.
    Taken,
    /// A text message.
    Text(Bytes),
    /// Something else that shows that the peer lives.
    Alive,
    /// The peer closed, or went.
    Gone,
    /// The peer breaks the protocol.
    Broken(Close),
}

/// Why a socket is closed by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Close {
    /// RFC 6455 §7.4.
    pub(super) code: u16,
    /// At most 123 bytes.
    pub(super) reason: &'static str,
}

/// A message that is being sent.
struct Sending {
    rest: Bytes,
    opcode: OpCode,
}

/// A WebSocket.
pub(super) struct Socket {
    inner: WebSocketStream<TokioIo<Upgraded>>,
    sending: Option<Sending>,
    /// Bytes put since the peer has last taken all.
    pending_bytes: usize,
    /// When the peer has last taken something, or there was nothing to take.
    taken_at: Instant,
}

impl Socket {
    pub(super) async fn new(upgraded: Upgraded, message_bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(FRAME_BYTES)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let inner = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        Self { inner, sending: None, pending_bytes: 0, taken_at: Instant::now() }
    }

    /// Whether another message may be put.
    pub(super) fn has_room(&self) -> bool {
        self.sending.is_none() && self.pending_bytes < PIECE_BYTES
    }

    /// Whether everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.pending_bytes == 0
    }

    /// How long the peer has taken nothing though there is something.
    pub(super) fn stalled(&self) -> Duration {
        if self.is_empty() { Duration::ZERO } else { self.taken_at.elapsed() }
    }

    /// Puts a message; it goes out while [`event`](Self::event) is waited for.
    ///
    /// # Panics
    /// If there is no room.
    pub(super) fn put(&mut self, message: Outgoing) {
        assert!(self.has_room(), "whoever puts has looked");
        let (rest, data) = match message {
            Outgoing::Text(text) => (text, Data::Text),
            Outgoing::Binary(bytes) => (bytes, Data::Binary),
        };
        self.sending = Some(Sending { rest, opcode: OpCode::Data(data) });
        self.put_frame();
    }

    /// Puts a ping.
    pub(super) fn ping(&mut self) {
        self.put_raw(Message::Ping(Bytes::new()), 2);
    }

    /// Waits for something to happen; reads only if `reads`. May be dropped and called again at any time.
    pub(super) async fn event(&mut self, reads: bool) -> Event {
        poll_fn(|cx| self.poll_event(cx, reads)).await
    }

    /// Says why, gives the peer `patience` to take that, and a moment to go.
    pub(super) async fn close(mut self, close: Close, patience: Duration) {
        self.sending = None;
        let frame = CloseFrame { code: CloseCode::from(close.code), reason: Utf8Bytes::from_static(close.reason) };
        self.put_raw(Message::Close(Some(frame)), close.reason.len());
        let taken = timeout(patience, poll_fn(|cx| Pin::new(&mut self.inner).poll_flush(cx))).await;
        if !matches!(taken, Ok(Ok(()))) {
            return;
        }
        let (time, bytes) = LINGERING;
        let _ = timeout(time, linger(self.inner.get_mut(), bytes)).await;
    }

    /// Puts the next frame of what is being sent.
    fn put_frame(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        let frame = sending.rest.split_to(sending.rest.len().min(FRAME_BYTES));
        let (opcode, is_last) = (sending.opcode, sending.rest.is_empty());
        sending.opcode = OpCode::Data(Data::Continue);
        if is_last {
            self.sending = None;
        }
        let bytes = frame.len().max(1);
        self.put_raw(Message::Frame(Frame::message(frame, opcode, is_last)), bytes);
    }

    fn put_raw(&mut self, message: Message, bytes: usize) {
        if self.is_empty() {
            self.taken_at = Instant::now();
        }
        self.pending_bytes += bytes;
        // An error is the next event as well.
        let _ = Pin::new(&mut self.inner).start_send(message);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>, reads: bool) -> Poll<Event> {
        while self.pending_bytes > 0 {
            match Pin::new(&mut self.inner).poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.pending_bytes = 0;
                    self.taken_at = Instant::now();
                    if self.sending.is_none() {
                        return Poll::Ready(Event::Taken);
                    }
                    self.put_frame();
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Event::Gone),
                Poll::Pending => break,
            }
        }
        if !reads {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_next(cx).map(|message| match message {
            Some(Ok(Message::Text(text))) => Event::Text(text.into()),
            Some(Ok(Message::Binary(_))) => Event::Broken(Close { code: 1003, reason: "frames of a client are text" }),
            Some(Ok(Message::Close(_))) | None => Event::Gone,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Event::Alive,
            Some(Err(error)) => broken(&error).map_or(Event::Gone, Event::Broken),
        })
    }
}

/// The close that an error of the protocol asks for; none where the connection is gone.
fn broken(error: &Error) -> Option<Close> {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => {
            Some(Close { code: 1009, reason: "the message is larger than --max-body-bytes" })
        }
        Error::Utf8(_) => Some(Close { code: 1007, reason: "a text message is not UTF-8" }),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(Close { code: 1002, reason: "that is not the WebSocket protocol" }),
        _ => None,
    }
}

/// Says that nothing more comes, and reads until the peer says so too.
async fn linger(io: &mut TokioIo<Upgraded>, mut bytes_max: usize) {
    let mut buffer = [0; 4 << 10];
    let _ = poll_fn(|cx| Pin::new(&mut *io).poll_shutdown(cx)).await;
    loop {
        let mut read = ReadBuf::new(&mut buffer);
        let done = poll_fn(|cx| Pin::new(&mut *io).poll_read(cx, &mut read)).await;
        let count = read.filled().len();
        if done.is_err() || count == 0 || count > bytes_max {
            return;
        }
        bytes_max -= count;
    }
}
