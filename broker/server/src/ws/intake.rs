//! What all sockets together hold of messages that have not ended, and how long each takes to.
//!
//! The protocol's reader puts a message together in memory, so a message that is begun and never ended would stay there for
//! as long as its socket. Not here: the largest message (the reader's own limit).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What a message may have come in with whatever the others hold: most frames of clients are smaller.
pub(super) const FREE_BYTES: usize = 64 << 10;
/// Bytes of the protocol around what a ping or pong of a client carries: two, and the mask.
const CONTROL_HEAD_BYTES: usize = 6;

/// A budget of all sockets.
#[derive(Clone, Debug)]
pub(crate) struct Intake(Arc<Total>);

#[derive(Debug)]
struct Total {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Intake {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Total { bytes: AtomicUsize::new(0), bytes_max }))
    }

    /// A socket's part in it.
    pub(super) fn join(&self) -> UnderWay {
        UnderWay { all: self.clone(), bytes: 0, since: None }
    }
}

/// What has come of one socket's message under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    all: Intake,
    bytes: usize,
    /// When its first byte came, or the peer was last excused.
    since: Option<Instant>,
}

impl UnderWay {
    /// Counts what was read; whether it may stay.
    pub(super) fn add(&mut self, bytes: usize, now: Instant) -> bool {
        if bytes == 0 {
            return true;
        }
        if self.bytes == 0 {
            self.since = Some(now);
        }
        self.bytes += bytes;
        let total = self.all.0.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes <= FREE_BYTES || total <= self.all.0.bytes_max
    }

    /// A ping or pong with so many bytes was part of what was read; it is gone.
    pub(super) fn had_control(&mut self, payload_bytes: usize) {
        self.take(self.bytes.min(payload_bytes + CONTROL_HEAD_BYTES));
    }

    /// The message has ended.
    pub(super) fn end(&mut self) {
        self.take(self.bytes);
    }

    /// Nothing was read, which is not the peer's doing: its time begins anew.
    pub(super) fn pardon(&mut self, now: Instant) {
        self.since = self.since.map(|_| now);
    }

    /// How long the message has taken so far.
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now - since)
    }

    fn take(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.since = self.since.filter(|_| self.bytes > 0);
        self.all.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.end();
    }
}

/// A connection that counts what is read from it.
#[derive(Debug)]
pub(super) struct Counted<T> {
    inner: T,
    read_bytes: usize,
}

impl<T> Counted<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, read_bytes: 0 }
    }

    /// Bytes that were read since this was last asked.
    pub(super) fn take_read(&mut self) -> usize {
        std::mem::take(&mut self.read_bytes)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.read_bytes += buf.filled().len() - before;
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_shared_and_given_back_and_small_messages_always_pass() {
        let (intake, now) = (Intake::new(3 * FREE_BYTES), Instant::now());
        let (mut one, mut two, mut three) = (intake.join(), intake.join(), intake.join());
        assert!(one.add(2 * FREE_BYTES, now) && two.add(FREE_BYTES, now));
        assert!(three.add(FREE_BYTES, now), "it is small");
        assert!(!three.add(1, now), "it is not any more, and the budget is spent");
        drop(three);
        assert!(!two.add(1, now));
        one.end();
        assert!(two.add(FREE_BYTES, now));
        drop((one, two));
        assert_eq!(intake.0.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_message_ages_from_its_first_byte_while_it_is_read() {
        let mut message = Intake::new(FREE_BYTES).join();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        assert_eq!(message.age(start + second), Duration::ZERO, "none was begun");
        message.add(10, start);
        message.add(10, start + second);
        assert_eq!(message.age(start + 2 * second), 2 * second);
        message.pardon(start + 3 * second);
        assert_eq!(message.age(start + 4 * second), second);
        message.end();
        assert_eq!(message.age(start + 9 * second), Duration::ZERO);
        // A peer that only pings has no message under way.
        message.add(4 + CONTROL_HEAD_BYTES, start);
        message.had_control(4);
        assert_eq!(message.age(start + 9 * second), Duration::ZERO);
    }
}
