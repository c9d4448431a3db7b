//! A topic as an endless event stream (`text/event-stream`, WHATWG HTML §9.2), with resume.
//!
//! The stream is pulled: the next chunk is read when the socket has taken the last one, so a reader that stalls costs
//! its socket's buffers and one chunk, and is never cut for being slow. It ends when the reader goes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use levada_api::media::EVENT_STREAM;
use levada_api::{Problem, Rendering};
use levada_engine::{FetchError, Positions, TopicReader};
use levada_model::{Offset, PartitionIndex};
use tokio::time::Instant;

use super::part::{Front, Part};
use super::refusal;
use super::rendering::{PIECE_BYTES, finished, new_piece, write_record};
use crate::cursor::encode_topic;
use crate::streamed::streamed;

/// Most records of one chunk.
const CHUNK_RECORDS_MAX: usize = 500;
/// Stored bytes of one chunk; the first batch comes whatever its size.
const CHUNK_BYTES: usize = 64 << 10;
/// What a browser waits before it connects again.
const RETRY_MS: u32 = 1_000;

/// The endless answer.
pub(super) fn answer(reader: TopicReader, rendering: Rendering, heartbeat: Duration) -> Response {
    let feed = Feed {
        cursor: reader.positions(),
        reader: reader.patient(),
        rendering,
        heartbeat,
        next_heartbeat: Instant::now() + heartbeat,
        parts: VecDeque::new(),
        state: State::New,
    };
    let events = stream::unfold(feed, |mut feed| async move {
        let events = feed.step().await?;
        Some((Ok::<_, Infallible>(events), feed))
    });
    streamed(Body::from_stream(events), EVENT_STREAM)
}

enum State {
    /// Nothing was written yet.
    New,
    /// On and on.
    Going,
    /// The error was told.
    Over,
}

struct Feed {
    reader: TopicReader,
    /// Behind everything that was written.
    cursor: Positions,
    rendering: Rendering,
    heartbeat: Duration,
    next_heartbeat: Instant,
    /// What was read and is not written yet.
    parts: VecDeque<Part>,
    state: State,
}

impl Feed {
    /// The next events; none after an error.
    async fn step(&mut self) -> Option<Bytes> {
        let mut out = new_piece();
        match self.state {
            State::Over => return None,
            // An id without data reaches the reader's memory and no listener (§9.2.6): who is cut before the first
            // record resumes from here all the same.
            State::New => {
                self.state = State::Going;
                out.extend_from_slice(format!("retry: {RETRY_MS}\n").as_bytes());
                self.end_event(&mut out);
                return Some(finished(out));
            }
            State::Going => {}
        }
        if self.parts.is_empty()
            && let Err(error) = self.read_on().await
        {
            self.fail(&mut out, &refusal::fetch(&error));
            return Some(finished(out));
        }
        if let Err(error) = self.write(&mut out) {
            self.fail(&mut out, &refusal::records(&error));
        }
        if Instant::now() >= self.next_heartbeat {
            self.next_heartbeat = Instant::now() + self.heartbeat;
            out.extend_from_slice(b"event: heartbeat\ndata: {}\n");
            self.end_event(&mut out);
        }
        Some(finished(out))
    }

    /// Reads the next chunk; comes back empty only when a heartbeat is due.
    async fn read_on(&mut self) -> Result<(), FetchError> {
        loop {
            let wait = self.next_heartbeat.saturating_duration_since(Instant::now());
            let parts = self.reader.next(CHUNK_RECORDS_MAX, CHUNK_BYTES, wait).await?;
            self.parts = parts.into_iter().map(Part::new).collect();
            if !self.parts.is_empty() || Instant::now() >= self.next_heartbeat {
                return Ok(());
            }
        }
    }

    /// Writes what was read until the piece is full.
    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), levada_log::RecordsError> {
        while let Some(mut part) = self.parts.pop_front() {
            let is_done = self.write_part(&mut part, out)?;
            if !is_done {
                self.parts.push_front(part);
                return Ok(());
            }
        }
        // The reader also knows of partitions that gave nothing yet.
        self.cursor = self.reader.positions();
        Ok(())
    }

    /// Writes one partition's events; false where the piece was full before.
    fn write_part(&mut self, part: &mut Part, out: &mut Vec<u8>) -> Result<bool, levada_log::RecordsError> {
        let partition = part.partition;
        loop {
            match part.front()? {
                Front::End => {
                    let end = part.pass();
                    self.moved(partition, end);
                    return Ok(true);
                }
                Front::Gap(gap) => {
                    out.extend_from_slice(b"event: gap\ndata: ");
                    serde_json::to_writer(&mut *out, gap).expect("a gap is plain data");
                }
                Front::Record(record) => {
                    out.extend_from_slice(b"event: record\ndata: ");
                    write_record(out, None, partition, record, self.rendering);
                }
            }
            out.push(b'\n');
            let next = part.pass();
            self.moved(partition, next);
            self.end_event(out);
            if out.len() >= PIECE_BYTES {
                return Ok(false);
            }
        }
    }

    fn moved(&mut self, partition: PartitionIndex, next: Offset) {
        moved(&mut self.cursor, partition, next);
    }

    fn end_event(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(encode_topic(&self.cursor).as_bytes());
        out.extend_from_slice(b"\n\n");
    }

    /// The last event.
    fn fail(&mut self, out: &mut Vec<u8>, problem: &Problem) {
        self.state = State::Over;
        out.extend_from_slice(b"event: error\ndata: ");
        serde_json::to_writer(&mut *out, problem).expect("a problem is plain data");
        out.extend_from_slice(b"\n\n");
    }
}

/// Moves one partition's position.
pub(crate) fn moved(positions: &mut Positions, partition: PartitionIndex, next: Offset) {
    match positions.next.binary_search_by_key(&partition, |(partition, _)| *partition) {
        Ok(at) => positions.next[at].1 = next,
        Err(at) => positions.next.insert(at, (partition, next)),
    }
}
