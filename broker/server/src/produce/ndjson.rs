//! `application/x-ndjson`: a record a line, a stream of any length, answered line by line while it comes.
//!
//! One loop does both directions: it gathers the lines that are at hand, stores them, writes their results, and only
//! then reads on. So a sender is slowed by the disk and by its own reading, and a stream costs one unfinished line, one
//! batch and its results, however long it is. What a vanished client had sent whole and the engine had taken is stored.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use levada_api::media::NDJSON;
use levada_api::{ErrorCode, LineAnswer, Problem, RecordIn, ResultsWord, parse_record};
use levada_engine::{Acks, Once, Placed, ProduceError, ProduceRecord, ProduceRequest, Produced};
use levada_model::PartitionIndex;

use super::lines::{Line, LineCutter};
use super::trace::Trace;
use super::wishes::{self, Query};
use super::{Target, refusal};
use crate::AppState;
use crate::extract::BodyStream;
use crate::refusal::Refusal;
use crate::streamed::streamed;

/// Most lines of one batch.
const BATCH_LINES_MAX: usize = 1_000;
/// Bytes of lines after which a batch is full.
const BATCH_BYTES: usize = 1 << 20;

const FOR_ONE_BODY: &str = "with NDJSON: a stream is stored in many appends";

pub(super) async fn produce(
    target: Target,
    state: &AppState,
    query: Query,
    request: Request,
) -> Result<Response, Refusal> {
    Query::refuse("partition", query.partition.is_some(), "a produce of NDJSON, whose records name theirs,")?;
    let headers = request.headers();
    let names = [
        wishes::IDEMPOTENCY_KEY,
        wishes::PRODUCER_ID,
        wishes::PRODUCER_EPOCH,
        wishes::PRODUCER_SEQUENCE,
        wishes::EXPECTED_OFFSET,
    ];
    wishes::refuse(headers, &names, FOR_ONE_BODY)?;
    let transaction = wishes::transaction(headers, query.acks)?;
    let trace = Trace::of(headers);
    let line_bytes_max = state.limits().bytes_max;
    let upload = Upload {
        target,
        acks: query.acks,
        results: query.results.unwrap_or_default(),
        once: transaction.map_or(Once::No, |transaction| Once::Transaction { transaction, sequence: None }),
        trace,
        app: state.clone(),
        body: BodyStream::from_request(request, state).await?,
        cutter: LineCutter::new(line_bytes_max),
        line_bytes_max,
        keyless_to: None,
        accepted: 0,
        refused: 0,
        state: State::Reading,
    };
    let lines = stream::unfold(upload, |mut upload| async move {
        let lines = upload.step().await?;
        Some((Ok::<_, std::convert::Infallible>(lines), upload))
    });
    Ok(streamed(Body::from_stream(lines), NDJSON))
}

enum State {
    /// More may come.
    Reading,
    /// The body ended; where it broke off, why.
    Ended(Option<Box<Problem>>),
    /// The last line was written.
    Told,
}

/// A line as it was sent, or why it cannot be stored.
struct Sent {
    line: u64,
    record: Result<RecordIn, Problem>,
}

struct Upload {
    target: Target,
    acks: Acks,
    results: ResultsWord,
    once: Once,
    trace: Trace,
    app: AppState,
    body: BodyStream,
    cutter: LineCutter,
    line_bytes_max: usize,
    /// Where the first keyless record went; the others of the request follow it.
    keyless_to: Option<PartitionIndex>,
    accepted: u64,
    refused: u64,
    state: State,
}

impl Upload {
    /// The next lines of the answer; none after the last.
    async fn step(&mut self) -> Option<Bytes> {
        loop {
            let sent = self.gather().await;
            if sent.is_empty() {
                return self.last_line();
            }
            let answers = self.store(sent).await;
            if !answers.is_empty() {
                return Some(answers.into());
            }
        }
    }

    /// The lines that are at hand: at least one, unless the body is at its end.
    async fn gather(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut bytes = 0;
        loop {
            while let Some(line) = self.cutter.next_line() {
                bytes += line.text.as_ref().map_or(0, Bytes::len);
                sent.push(self.read(line));
                if sent.len() == BATCH_LINES_MAX || bytes >= BATCH_BYTES {
                    return sent;
                }
            }
            if !matches!(self.state, State::Reading) {
                return sent;
            }
            let piece = if sent.is_empty() {
                tokio::select! {
                    biased;
                    piece = self.body.next() => piece,
                    // Whatever came later would not be stored.
                    () = self.app.closing() => {
                        Err(Problem::new(ErrorCode::ShuttingDown, "the broker is shutting down"))
                    }
                }
            } else {
                match self.body.next().now_or_never() {
                    Some(piece) => piece,
                    None => return sent,
                }
            };
            match piece {
                Ok(Some(piece)) => self.cutter.push(piece),
                Ok(None) => {
                    self.state = State::Ended(None);
                    if let Some(line) = self.cutter.last_line() {
                        sent.push(self.read(line));
                    }
                }
                // The line that was cut is dropped with the rest.
                Err(problem) => self.state = State::Ended(Some(Box::new(problem))),
            }
        }
    }

    fn read(&self, line: Line) -> Sent {
        let record = match &line.text {
            Some(text) => parse_record(text).map_err(refusal::line),
            None => Err(line_too_long(self.line_bytes_max)),
        };
        let record = record.map(|mut sent| {
            self.trace.mark(&mut sent.record);
            sent
        });
        Sent { line: line.number, record }
    }

    /// Stores what can be stored and words the answers, in order.
    async fn store(&mut self, sent: Vec<Sent>) -> Vec<u8> {
        let mut outcomes: Vec<Option<Result<Placed, Problem>>> = Vec::with_capacity(sent.len());
        let mut records = Vec::with_capacity(sent.len());
        for Sent { record, .. } in &sent {
            outcomes.push(record.as_ref().err().map(|problem| Err(problem.clone())));
            records.push(record.as_ref().ok());
        }
        let mut waiting: Vec<usize> = (0..sent.len()).filter(|at| outcomes[*at].is_none()).collect();
        while !waiting.is_empty() {
            let batch = waiting.iter().map(|at| records[*at].expect("it waits").clone());
            let record = |RecordIn { record, timestamp, partition }| ProduceRecord { record, timestamp, partition };
            let request = ProduceRequest {
                records: batch.map(record).collect(),
                acks: self.acks,
                once: self.once.clone(),
                keyless_to: self.keyless_to,
                ..ProduceRequest::default()
            };
            match self.target.engine.produce(&self.target.who, &self.target.topic, request).await {
                Ok(produced) => {
                    self.note(&mut outcomes, &waiting, produced);
                    self.follow(&records, &outcomes);
                    break;
                }
                // What is wrong is taken out, so that the others go on without it.
                Err(ProduceError::Records(faults)) => {
                    for (place, fault) in &faults {
                        outcomes[waiting[*place]] = Some(Err(refusal::line_record(fault)));
                    }
                    waiting.retain(|at| outcomes[*at].is_none());
                }
                Err(error) => {
                    let problem = refusal::produce(error, refusal::in_no_place);
                    waiting.drain(..).for_each(|at| outcomes[at] = Some(Err(problem.clone())));
                }
            }
        }
        let outcomes = outcomes.into_iter().map(|outcome| outcome.expect("every line has its outcome"));
        self.word(sent.iter().map(|sent| sent.line).zip(outcomes))
    }

    fn note(&self, outcomes: &mut [Option<Result<Placed, Problem>>], waiting: &[usize], produced: Produced) {
        for (at, record) in waiting.iter().zip(produced.records) {
            outcomes[*at] = Some(record.map_err(|fault| refusal::append(&fault)));
        }
    }

    /// Notes where the request's keyless records go.
    fn follow(&mut self, records: &[Option<&RecordIn>], outcomes: &[Option<Result<Placed, Problem>>]) {
        let chosen = |(record, outcome): (&Option<&RecordIn>, &Option<Result<Placed, Problem>>)| {
            let is_keyless = record.is_some_and(|sent| sent.record.key.is_none() && sent.partition.is_none());
            outcome.as_ref()?.as_ref().ok().filter(|_| is_keyless).map(|placed| placed.partition)
        };
        self.keyless_to = records.iter().zip(outcomes).find_map(chosen).or(self.keyless_to);
    }

    fn word(&mut self, outcomes: impl Iterator<Item = (u64, Result<Placed, Problem>)>) -> Vec<u8> {
        let mut out = Vec::new();
        for (line, outcome) in outcomes {
            let answer = match outcome {
                Ok(placed) => {
                    self.accepted += 1;
                    let offset = placed.offset.map(|offset| offset.0);
                    LineAnswer::Stored { line, partition: placed.partition.0, offset }
                }
                Err(problem) => {
                    self.refused += 1;
                    // Nothing that comes later will be stored either, and the shutdown waits for nobody's last line.
                    if problem.code == ErrorCode::ShuttingDown && matches!(self.state, State::Reading) {
                        self.state = State::Ended(Some(Box::new(problem.clone())));
                    }
                    LineAnswer::Refused { line, problem: Box::new(problem) }
                }
            };
            let is_told = match self.results {
                ResultsWord::All => true,
                ResultsWord::Refused => matches!(answer, LineAnswer::Refused { .. }),
                ResultsWord::None => false,
            };
            if is_told {
                write_line(&mut out, &answer);
            }
        }
        out
    }

    fn last_line(&mut self) -> Option<Bytes> {
        let State::Ended(problem) = std::mem::replace(&mut self.state, State::Told) else { return None };
        let (accepted, refused) = (self.accepted, self.refused);
        let mut out = Vec::new();
        write_line(&mut out, &LineAnswer::Done { done: problem.is_none(), accepted, refused, problem });
        Some(out.into())
    }
}

fn write_line(out: &mut Vec<u8>, answer: &LineAnswer) {
    serde_json::to_writer(&mut *out, answer).expect("an answer is plain data");
    out.push(b'\n');
}

fn line_too_long(line_bytes_max: usize) -> Problem {
    let detail = format!("the line has more than {line_bytes_max} bytes; the setting is --max-body-bytes");
    Problem::new(ErrorCode::BodyTooLarge, detail).limited("--max-body-bytes", line_bytes_max as u64)
}
