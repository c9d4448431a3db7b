//! Answers made of records, written piece by piece: a reader that stalls holds up one piece, not the whole.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::{Frame, SizeHint};
use levada_api::media::{JSON, NDJSON, RECORD_BATCH};
use levada_api::{
    Aborted, FormatWord, Gap, GapCause, GroupGap, IsolationWord, Problem, RecordOut, Rendering, ValueForm,
};
use levada_engine::{Fetched, FetchedRecords, GroupPart, Isolation};
use levada_log::{AbortedTransaction, Damage, RecordRef, RecordsError};
use levada_model::limits::READ_ABORTED_MAX;
use levada_model::{Offset, PartitionIndex, TopicName};
use serde::Serialize;

use super::refusal;
use crate::extract::Params;

/// Bytes after which a piece of an answer is full. An answer that fits into one has a Content-Length.
pub(crate) const PIECE_BYTES: usize = 32 << 10;
/// Room for the record that fills the piece; a larger one makes the piece grow.
const PIECE_SLACK_BYTES: usize = 8 << 10;

/// Names the aborted transactions of a read.
const ABORTED: HeaderName = HeaderName::from_static("levada-aborted-transactions");

/// Reads `format=`.
pub(crate) fn format(params: &mut Params) -> Result<ValueForm, Problem> {
    Ok(match params.value("format", FormatWord::read)? {
        None => ValueForm::Auto,
        Some(FormatWord::Text) => ValueForm::Text,
        Some(FormatWord::Base64) => ValueForm::Base64,
    })
}

/// Reads `isolation=`.
pub(super) fn isolation(params: &mut Params) -> Result<Isolation, Problem> {
    Ok(match params.value("isolation", IsolationWord::read)?.unwrap_or_default() {
        IsolationWord::ReadCommitted => Isolation::ReadCommitted,
        IsolationWord::ReadUncommitted => Isolation::ReadUncommitted,
    })
}

/// A buffer for a piece, which does not grow (and so does not double) for records of common sizes.
pub(crate) fn new_piece() -> Vec<u8> {
    Vec::with_capacity(PIECE_BYTES + PIECE_SLACK_BYTES)
}

/// A piece that may wait long for its reader, without the room that it did not need.
pub(super) fn finished(piece: Vec<u8>) -> Bytes {
    Bytes::from(piece.into_boxed_slice())
}

/// Writes one record of `partition`, with its topic where the answer holds records of several.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    topic: Option<&TopicName>,
    partition: PartitionIndex,
    record: &RecordRef,
    rendering: Rendering,
) {
    let place = RecordOut {
        topic,
        partition,
        offset: record.offset,
        timestamp: record.timestamp,
        timestamp_type: record.timestamp_type,
        record: &record.record,
    };
    place.write_json(rendering, out);
}

/// Records as lines.
pub(super) fn ndjson(mut fetched: Fetched, form: ValueForm) -> Result<Response, Problem> {
    let marks = marks_as_headers(&fetched, fetched.next_offset);
    let reads = VecDeque::from([Read::of(None, &mut fetched)]);
    let lines = Pieces { around: Around::Lines, reads, form, is_first: true };
    let mut response = body_of(lines, Vec::new(), Vec::new())?;
    response.headers_mut().extend(marks);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    Ok(response)
}

/// Records as the list in a JSON object, whose other members are `rest` (`"name":value,…`).
pub(super) fn json(mut reads: Vec<Fetched>, form: ValueForm, rest: &str) -> Result<Response, Problem> {
    let gaps: Vec<Gap> = reads.iter().flat_map(gaps).collect();
    list(reads.iter_mut().map(|read| Read::of(None, read)).collect(), &gaps, form, rest)
}

/// The same of several topics: each record names its own.
pub(crate) fn group_json(mut parts: Vec<GroupPart>, form: ValueForm, rest: &str) -> Result<Response, Problem> {
    let of_topic = |topic: &TopicName, gap: Gap| GroupGap {
        topic: topic.to_string(),
        partition: gap.partition,
        from: gap.from,
        to: gap.to,
        cause: gap.cause,
    };
    let gaps: Vec<GroupGap> =
        parts.iter().flat_map(|part| gaps(&part.fetched).map(|gap| of_topic(&part.topic, gap))).collect();
    let reads = parts.iter_mut().map(|part| Read::of(Some(part.topic.clone()), &mut part.fetched)).collect();
    list(reads, &gaps, form, rest)
}

fn list(reads: VecDeque<Read>, gaps: &[impl Serialize], form: ValueForm, rest: &str) -> Result<Response, Problem> {
    let gaps = if gaps.is_empty() {
        String::new()
    } else {
        format!("\"gaps\":{},", serde_json::to_string(&gaps).expect("gaps are plain data"))
    };
    let list = Pieces { around: Around::List, reads, form, is_first: true };
    let mut response = body_of(list, b"{\"records\":[".to_vec(), format!("],{gaps}{rest}}}").into_bytes())?;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    Ok(response)
}

/// Stored batches as they are, without a copy. All of their records count, so the next offset is behind the last.
pub(super) fn batches(fetched: Fetched) -> Response {
    let behind = fetched.batches.last().map(|batch| batch.header().next_offset());
    let marks =
        marks_as_headers(&fetched, behind.map_or(fetched.next_offset, |behind| behind.max(fetched.next_offset)));
    let frames: VecDeque<Bytes> = fetched.batches.iter().map(|batch| batch.bytes().clone()).collect();
    let mut response =
        Body::new(Frames { left: frames.iter().map(|frame| frame.len() as u64).sum(), frames }).into_response();
    response.headers_mut().extend(marks);
    response.headers_mut().extend(aborted(&fetched).map(|list| (ABORTED, list)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(RECORD_BATCH));
    response
}

/// The aborted transactions in what was read, as far as a head can hold them; none where there are none.
fn aborted(fetched: &Fetched) -> Option<HeaderValue> {
    let told = |aborted: &AbortedTransaction| Aborted {
        producer_id: aborted.producer_id.0,
        first_offset: aborted.first_offset.0,
        last_offset: aborted.last_offset.0,
    };
    let list: Vec<_> = fetched.aborted.iter().take(READ_ABORTED_MAX).map(told).collect();
    let text = serde_json::to_string(&list).expect("numbers are plain data");
    (!list.is_empty()).then(|| HeaderValue::try_from(text).expect("JSON of numbers is ASCII"))
}

/// What cannot be read any more on the way of a read.
pub(crate) fn gaps(fetched: &Fetched) -> impl Iterator<Item = Gap> + '_ {
    fetched.gaps.iter().map(|lost| gap(fetched, *lost))
}

fn gap(fetched: &Fetched, lost: Damage) -> Gap {
    let cause = if lost.to <= fetched.log_start_offset { GapCause::Removed } else { GapCause::Damaged };
    Gap { partition: fetched.partition.0, from: lost.from.0, to: lost.to.0, cause }
}

/// The marks of a read as headers, for the forms whose body has no place for them.
fn marks_as_headers(fetched: &Fetched, next_offset: Offset) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, offset) in [
        ("levada-next-offset", next_offset),
        ("levada-high-watermark", fetched.high_watermark),
        ("levada-last-stable-offset", fetched.last_stable_offset),
        ("levada-log-start-offset", fetched.log_start_offset),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from(offset.0));
    }
    let gaps: Vec<Gap> = gaps(fetched).collect();
    if !gaps.is_empty() {
        let text = serde_json::to_string(&gaps).expect("gaps are plain data");
        headers.insert("levada-gaps", HeaderValue::try_from(text).expect("JSON of numbers and words is ASCII"));
    }
    headers
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// A line break behind each record.
    Lines,
    /// A comma between two records.
    List,
}

/// A read of one partition, on its way into text.
struct Read {
    /// Where the answer holds records of several topics.
    topic: Option<TopicName>,
    partition: PartitionIndex,
    records: FetchedRecords,
}

impl Read {
    fn of(topic: Option<TopicName>, fetched: &mut Fetched) -> Self {
        Self { topic, partition: fetched.partition, records: fetched.take_records() }
    }
}

/// Reads turned into text, a piece at a time.
struct Pieces {
    around: Around,
    reads: VecDeque<Read>,
    form: ValueForm,
    is_first: bool,
}

impl Pieces {
    /// Writes on until the piece is full; false at the end.
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<bool, RecordsError> {
        let rendering = Rendering { form: self.form, one_line: self.around == Around::Lines };
        while let Some(Read { topic, partition, records }) = self.reads.front_mut() {
            for record in records {
                if self.around == Around::List && !std::mem::take(&mut self.is_first) {
                    out.push(b',');
                }
                write_record(out, topic.as_ref(), *partition, &record?, rendering);
                if self.around == Around::Lines {
                    out.push(b'\n');
                }
                if out.len() >= PIECE_BYTES {
                    return Ok(true);
                }
            }
            self.reads.pop_front();
        }
        Ok(false)
    }
}

/// The first piece is written before the answer begins, so that what cannot be taken apart is a problem where it can be.
fn body_of(mut pieces: Pieces, mut first: Vec<u8>, end: Vec<u8>) -> Result<Response, Problem> {
    if !pieces.fill(&mut first).map_err(|error| refusal::records(&error))? {
        first.extend_from_slice(&end);
        return Ok(Body::from(first).into_response());
    }
    let on = stream::unfold(Some((pieces, first, end)), |left| async move {
        let (mut pieces, piece, end) = left?;
        // The piece that was written last goes out; the next one is written when this one is gone.
        if !piece.is_empty() {
            return Some((Ok(finished(piece)), Some((pieces, Vec::new(), end))));
        }
        let mut piece = new_piece();
        match pieces.fill(&mut piece) {
            Ok(true) => Some((Ok(finished(piece)), Some((pieces, Vec::new(), end)))),
            Ok(false) => {
                piece.extend_from_slice(&end);
                Some((Ok(finished(piece)), None))
            }
            // Cutting the connection is the one way left to say that the answer is not whole.
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(Body::from_stream(on).into_response())
}

/// A body of shared bytes whose length is known.
struct Frames {
    frames: VecDeque<Bytes>,
    left: u64,
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.frames.pop_front();
        self.left -= next.as_ref().map_or(0, |frame| frame.len() as u64);
        Poll::Ready(next.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
