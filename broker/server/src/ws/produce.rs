//! Produces of a socket: begun one after the other, answered in the same order, many on their way.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use levada_api::{AcksWord, FrameId, Problem, Produce, ServerFrame, parse_record_list};
use levada_engine::{Acks, Engine, Once, ProduceRecord, ProduceRequest, Work, compute};
use levada_model::{Principal, TopicName};

use crate::produce::{placements, refusal};

/// A produce that is with the engine, or was refused.
pub(super) type Landing = BoxFuture<'static, Landed>;

/// An answer, and how many bytes were counted for it.
pub(super) struct Landed {
    pub(super) answer: ServerFrame,
    pub(super) bytes: usize,
}

/// Bytes of one record's place in an answer, about: a partition, an offset and a time.
const PLACE_BYTES: usize = 64;

/// Hands records to the engine. Also tells the bytes that count for it until it is answered: its frame's, and its
/// answer's, which is the larger of the two where records are tiny.
pub(super) async fn begin(engine: &Engine, who: &Principal, produce: Produce, frame_bytes: usize) -> (Landing, usize) {
    let Produce { id, topic, acks, records } = produce;
    let (accepted, count) = match begin_records(engine, who, &topic, acks, records).await {
        Ok(accepted) => accepted,
        Err(problem) => {
            let landed = Landed { answer: refused(id, problem), bytes: frame_bytes };
            return (Box::pin(std::future::ready(landed)), frame_bytes);
        }
    };
    let bytes = frame_bytes + count * PLACE_BYTES;
    let landing = Box::pin(async move {
        let answer = match placements(&accepted.produced().await) {
            Ok(records) => ServerFrame::Produced { id, records },
            Err(problem) => refused(id, problem),
        };
        Landed { answer, bytes }
    });
    (landing, bytes)
}

async fn begin_records(
    engine: &Engine,
    who: &Principal,
    topic: &str,
    acks: AcksWord,
    records: Bytes,
) -> Result<(levada_engine::Accepted, usize), Problem> {
    let topic =
        TopicName::new(topic).map_err(|error| crate::refusal::topic_name(&error).at("/topic", error.to_string()))?;
    let size_bytes = records.len();
    let parsed = compute(Work::Parse, size_bytes, move || parse_record_list(&records)).await;
    let parsed = parsed.map_err(refusal::body)?;
    let count = parsed.len();
    let records = parsed.into_iter().map(|sent| ProduceRecord {
        record: sent.record,
        timestamp: sent.timestamp,
        partition: sent.partition,
    });
    let acks = match acks {
        AcksWord::All => Acks::All,
        AcksWord::Leader => Acks::Leader,
        AcksWord::None => Acks::None,
    };
    let request = ProduceRequest { records: records.collect(), acks, once: Once::No, ..ProduceRequest::default() };
    let accepted = engine.begin_produce(who, &topic, request).await;
    accepted.map(|it| (it, count)).map_err(|error| refusal::produce(error, refusal::in_records))
}

fn refused(id: FrameId, problem: Problem) -> ServerFrame {
    ServerFrame::Error { id: Some(id), problem: Box::new(problem) }
}
