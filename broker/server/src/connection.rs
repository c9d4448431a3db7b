//! Connections: accepted up to a bound, watched while they are silent, drained at the end.
//!
//! Time-outs of a request's head and of idle connections are kept here and not by hyper, whose one timer for both would
//! close an idle connection as soon as a slow head.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::ServeOptions;
use crate::front::Front;
use crate::gate::LocalAddress;

/// hyper keeps this many headers on the stack; more cost an allocation a request.
const HEADERS_ON_STACK: usize = 100;
/// Headers and bytes that hyper lets through beyond our limits, so that the refusal can be a problem.
const HEAD_SLACK_FACTOR: usize = 4;
/// Most bytes that hyper reads ahead, unless the head may be larger. It also takes so many of an answer, and the piece
/// that brings it there, before the socket has: this is what a reader that stalls costs here.
const BUFFER_BYTES: usize = 128 << 10;
/// Most time and bytes for reading on what a refused request still sends, so that its client gets to read the answer.
const LINGERING: (Duration, usize) = (Duration::from_secs(2), 64 << 20);
/// Pause after the system could not give a connection, for want of file descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How far the server's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not at all.
    Serving,
    /// Running requests are finished, nothing new is taken.
    Draining,
    /// Whatever still runs is cut.
    Aborting,
}

/// What every connection needs.
pub(crate) struct Acceptor {
    pub(crate) front: Front,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) connections: prometheus_client::metrics::gauge::Gauge,
    http: http1::Builder,
    header_timeout: Duration,
    idle_timeout: Duration,
}

impl Acceptor {
    pub(crate) fn new(
        options: &ServeOptions,
        front: Front,
        phase: watch::Receiver<Phase>,
        permits: Arc<Semaphore>,
        connections: prometheus_client::metrics::gauge::Gauge,
    ) -> Self {
        let http = http(options);
        let (header_timeout, idle_timeout) = (options.header_timeout, options.idle_timeout);
        Self { front, phase, permits, connections, http, header_timeout, idle_timeout }
    }

    /// Accepts until the server drains. While all permits are out, further connections wait in the system's queue.
    pub(crate) async fn run(self, listener: TcpListener) {
        let this = Arc::new(self);
        let mut phase = this.phase.clone();
        loop {
            let accepted = async {
                let permit = Arc::clone(&this.permits).acquire_owned().await.expect("the semaphore is never closed");
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let this = Arc::clone(&this);
                    tokio::spawn(async move { this.serve(stream, permit).await });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    #[expect(clippy::disallowed_methods, reason = "a pause is meant: nothing tells when it will work")]
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        self.connections.inc();
        let held = Arc::new(Held { _permit: permit, connections: self.connections.clone() });
        if let Err(error) = self.serve_http(stream, held).await {
            tracing::debug!(%error, "a connection broke");
        }
    }

    async fn serve_http(
        &self,
        stream: TcpStream,
        held: Arc<Held>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        stream.set_nodelay(true)?;
        let line = Line { local: LocalAddress(stream.local_addr()?), held, phase: self.phase.clone() };
        let activity = Arc::new(Activity::new());
        let io = TokioIo::new(Watched { stream, activity: Arc::clone(&activity) });
        let service = service_fn(|request| answer(&self.front, request, &line, Busy::begin(&activity)));
        let mut connection = pin!(self.http.serve_connection(io, service).with_upgrades());
        let mut phase = self.phase.clone();
        let mut draining = false;
        let mut look = interval((self.header_timeout.min(self.idle_timeout) / 2).max(Duration::from_millis(1)));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = connection.as_mut() => return Ok(done?),
                _ = phase.wait_for(|phase| *phase == Phase::Aborting) => return Ok(()),
                _ = self.phase_is_draining(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = look.tick() => if activity.is_late(self.header_timeout, self.idle_timeout) {
                    return Ok(());
                }
            }
        }
    }

    async fn phase_is_draining(&self) {
        let mut phase = self.phase.clone();
        // A sender that is gone means the same.
        let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    }
}

/// A connection's place among those that are allowed, and in their number, for as long as its socket is used.
pub(crate) struct Held {
    _permit: OwnedSemaphorePermit,
    connections: prometheus_client::metrics::gauge::Gauge,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connections.dec();
    }
}

/// What whoever takes a connection over from HTTP needs to know of it. Found in the requests that ask for that.
#[derive(Clone)]
pub(crate) struct Line {
    local: LocalAddress,
    /// To be held until the socket is closed.
    pub(crate) held: Arc<Held>,
    /// How far the server's end is.
    pub(crate) phase: watch::Receiver<Phase>,
}

fn http(options: &ServeOptions) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(None);
    let head_bytes_max = options.max_header_bytes.saturating_mul(HEAD_SLACK_FACTOR);
    http.max_header_size(head_bytes_max).max_buf_size(head_bytes_max.max(BUFFER_BYTES));
    if options.max_headers >= HEADERS_ON_STACK {
        http.max_headers(options.max_headers.saturating_mul(HEAD_SLACK_FACTOR));
    }
    http
}

async fn answer(
    front: &Front,
    request: Request<Incoming>,
    line: &Line,
    busy: Busy,
) -> Result<hyper::Response<Answer>, Infallible> {
    let asks_first = request.headers().contains_key(header::EXPECT);
    let mut request = request.map(|body| Body::new(Lingering { body: Some(body), asks_first }));
    if request.headers().contains_key(header::UPGRADE) {
        request.extensions_mut().insert(line.clone());
    }
    request.extensions_mut().insert(line.local);
    let response = front.answer(request).await;
    Ok(response.map(|body| Answer { body, _busy: busy }))
}

/// What a connection is doing, and since when.
struct Activity {
    opened: Instant,
    doing: AtomicU8,
    since_ms: AtomicU64,
}

/// Between two requests.
const IDLE: u8 = 0;
/// A request's head is on its way (also at first: who connects shall say something).
const HEAD: u8 = 1;
/// A request is being answered.
const BUSY: u8 = 2;

impl Activity {
    fn new() -> Self {
        Self { opened: Instant::now(), doing: AtomicU8::new(HEAD), since_ms: AtomicU64::new(0) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).expect("no connection lasts so long")
    }

    fn set(&self, doing: u8) {
        self.since_ms.store(self.now_ms(), Ordering::Relaxed);
        self.doing.store(doing, Ordering::Relaxed);
    }

    fn bytes_came(&self) {
        if self.doing.load(Ordering::Relaxed) == IDLE {
            self.set(HEAD);
        }
    }

    fn bytes_went(&self) {
        if self.doing.load(Ordering::Relaxed) == IDLE {
            self.set(IDLE);
        }
    }

    fn is_late(&self, header_timeout: Duration, idle_timeout: Duration) -> bool {
        let limit = match self.doing.load(Ordering::Relaxed) {
            IDLE => idle_timeout,
            HEAD => header_timeout,
            _ => return false,
        };
        u128::from(self.now_ms().saturating_sub(self.since_ms.load(Ordering::Relaxed))) >= limit.as_millis()
    }
}

/// A request is being answered as long as this lives.
struct Busy(Arc<Activity>);

impl Busy {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.set(BUSY);
        Self(Arc::clone(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(IDLE);
    }
}

/// A stream that tells when bytes come and go.
struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.activity.bytes_came();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, data));
        self.activity.bytes_went();
        Poll::Ready(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts));
        self.activity.bytes_went();
        Poll::Ready(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An answer's body, which keeps the connection busy until it is gone.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request's body; what is not read of it is read on for a while after a refusal, since closing a connection with
/// unread bytes takes the answer away from the client.
struct Lingering {
    body: Option<Incoming>,
    /// The client waits for `100 Continue`, which reading would grant.
    asks_first: bool,
}

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.asks_first = false;
        Pin::new(self.body.as_mut().expect("it is taken when dropped")).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().expect("it is taken when dropped").is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().expect("it is taken when dropped").size_hint()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let body = self.body.take().expect("dropped once");
        if body.is_end_stream() || self.asks_first {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(read_on(body));
        }
    }
}

async fn read_on(mut body: Incoming) {
    let (time, bytes) = LINGERING;
    let mut left = bytes;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let read = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(read) else { return };
            left = rest;
        }
    };
    // Late or not, the client has had its chance.
    let _ = timeout(time, reading).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::{FutureExt, stream};
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_reader_that_stalls_is_handed_one_buffer_and_no_more() {
        const PIECE: &[u8] = &[b'x'; 32 << 10];
        let handed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handed);
        let service = service_fn(move |_: Request<Incoming>| {
            let count = Arc::clone(&count);
            let endless = stream::repeat_with(move || {
                count.fetch_add(PIECE.len(), Ordering::Relaxed);
                Ok::<_, Infallible>(Bytes::from_static(PIECE))
            });
            async move { Ok::<_, Infallible>(hyper::Response::new(Body::from_stream(endless))) }
        });
        let (near, mut far) = duplex(1 << 10);
        far.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("there is room");
        let mut connection = pin!(http(&ServeOptions::default()).serve_connection(TokioIo::new(near), service));
        for _ in 0..1_000 {
            assert!(connection.as_mut().now_or_never().is_none(), "it goes on");
            tokio::task::yield_now().await;
        }
        let handed = handed.load(Ordering::Relaxed);
        assert!((PIECE.len()..=BUFFER_BYTES + PIECE.len()).contains(&handed), "{handed}");
    }
}
