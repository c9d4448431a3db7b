//! Batches that come built: parsed in place, checked whole, stored as they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::BytesMut;
use levada_coordinator::TransactionHandle;
use levada_log::{BatchBuf, BatchHeader, CompressionError, RecordsError, SequenceCheck};
use levada_model::{Compression, Timestamp, TimestampType, TopicConfig, limits};

use super::checks::{check_partition, check_record, check_replicas};
use super::transaction::{self, Refused};
use super::{Acks, BatchesRequest, Produced, landings, placed};
use crate::ProduceError;
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::heavy::{Work, compute};
use crate::partition::{Landings, NewAppend};
use crate::producer_ids::ProducerIds;

/// What a record costs in a batch besides key, value and headers, at most.
const RECORD_OVERHEAD_BYTES_MAX: usize = 40 + limits::RECORD_HEADERS_MAX * 10;

/// Checks all and stores nothing; answers how many records it is.
pub(super) async fn check_request(
    core: &Arc<Core>,
    state: &Arc<TopicState>,
    request: &BatchesRequest,
) -> Result<usize, ProduceError> {
    check_place(state, request)?;
    let Checked { timestamps, .. } = check(core, state, request.bytes.clone(), request.transaction).await?;
    if let Some(transaction) = request.transaction {
        transaction::check_open(core, transaction).await?;
    }
    Ok(timestamps.iter().map(Vec::len).sum())
}

/// Checks all and hands it to the partition's owner.
pub(super) async fn produce(
    core: &Arc<Core>,
    topic: &Topic,
    request: BatchesRequest,
) -> Result<Produced, ProduceError> {
    let state = &topic.state_full();
    check_place(state, &request)?;
    let partition = state.partition(request.partition).expect("it was checked to be active").clone();
    let Checked { batches, timestamps, keyless } = check(core, state, request.bytes, request.transaction).await?;
    let begun = match request.transaction {
        Some(transaction) => {
            Some(transaction::begin(core, topic, transaction, BTreeSet::from([request.partition])).await?)
        }
        None => None,
    };
    let expected_offset = request.expected_offset;
    let append = NewAppend { batches, check: SequenceCheck::Producer, expected_offset, keyless };
    let mut landings = match partition.push(append) {
        Err(fault) => vec![Err(Arc::new(fault)); timestamps.len()],
        Ok(_) if request.acks == Acks::None => Vec::new(),
        Ok(answer) => landings(answer).await,
    };
    let mut refused = Refused::new(begun);
    for landed in &mut landings {
        if let Err(fault) = landed {
            *fault = refused.in_words(fault.clone()).await;
        }
    }
    let duplicate = !landings.is_empty() && landings.iter().all(|landed| landed.as_ref().is_ok_and(|l| l.duplicate));
    let mut records = Vec::with_capacity(timestamps.iter().map(Vec::len).sum());
    for (batch, times) in timestamps.into_iter().enumerate() {
        let landed = answer_of(&landings, batch);
        let place = |(i, given)| landed.clone().map(|landed| placed(request.partition, landed, i, Ok(given)));
        records.extend((0..).zip(times).map(place));
    }
    Ok(Produced { records, duplicate })
}

fn check_place(state: &TopicState, request: &BatchesRequest) -> Result<(), ProduceError> {
    check_replicas(state, request.acks)?;
    if request.transaction.is_some() {
        transaction::check_acks(request.acks)?;
    }
    if request.bytes.is_empty() {
        return Err(ProduceError::Empty);
    }
    check_partition(state, request.partition).map_err(|fault| ProduceError::Records(vec![(0, fault)]))
}

/// The owner's answer to one batch; none if nobody waited for it.
fn answer_of(landings: &Landings, batch: usize) -> Result<Option<crate::partition::Landed>, Arc<crate::AppendFault>> {
    // An owner that panicked answers once for all.
    landings.get(batch).or(landings.last()).map_or(Ok(None), |landed| landed.clone().map(Some))
}

/// Batches that may be stored, and the times of their records.
#[derive(Default)]
struct Checked {
    batches: Vec<BatchBuf>,
    timestamps: Vec<Vec<Timestamp>>,
    /// Whether a record has no key.
    keyless: bool,
}

async fn check(
    core: &Arc<Core>,
    state: &Arc<TopicState>,
    bytes: BytesMut,
    transaction: Option<TransactionHandle>,
) -> Result<Checked, ProduceError> {
    let packed = BatchHeader::parse(&bytes).is_ok_and(|header| header.compression() != Compression::None);
    let work = if packed { Work::Unpack } else { Work::Check };
    let now = core.directory.now();
    let (core, state) = (core.clone(), state.clone());
    compute(work, bytes.len(), move || check_all(&core.producer_ids, &state.config, bytes, transaction, now)).await
}

fn check_all(
    producer_ids: &ProducerIds,
    config: &TopicConfig,
    mut bytes: BytesMut,
    transaction: Option<TransactionHandle>,
    now: Timestamp,
) -> Result<Checked, ProduceError> {
    let mut checked = Checked::default();
    let mut records_left = limits::REQUEST_RECORDS_MAX;
    while !bytes.is_empty() {
        let index = checked.batches.len();
        let wrong = |detail: String| ProduceError::Batch { index, detail };
        let batch = BatchBuf::parse(&mut bytes).map_err(|error| wrong(error.to_string()))?;
        check_transaction(batch.header(), transaction).map_err(wrong)?;
        check_header(config, batch.header()).map_err(wrong)?;
        if transaction.is_none() {
            check_producer(producer_ids, batch.header()).map_err(wrong)?;
        }
        // Before anything is unpacked; that the head's word is right is seen then.
        let count = usize::try_from(batch.header().record_count).unwrap_or(0);
        records_left = records_left.checked_sub(count).ok_or(ProduceError::TooManyRecords)?;
        let CheckedBatch { times, keyless } =
            check_batch(config, &batch, now).map_err(|error| wrong(in_words(&error)))?;
        if config.cleanup.compact
            && let Some(record) = keyless
        {
            return Err(ProduceError::NoKey { batch: index, record });
        }
        checked.keyless |= keyless.is_some();
        checked.batches.push(batch);
        checked.timestamps.push(times);
    }
    Ok(checked)
}

fn check_header(config: &TopicConfig, header: &BatchHeader) -> Result<(), String> {
    if header.is_control() {
        return Err("control batches are the broker's own".to_owned());
    }
    if header.timestamp_type() == TimestampType::LogAppendTime && config.timestamp_type == TimestampType::CreateTime {
        return Err("it says LogAppendTime, which is the broker's to say, and the topic keeps CreateTime".to_owned());
    }
    Ok(())
}

/// Whether a batch that is of no transaction has a producer that may write without one. One that is has the producer of
/// its transaction, which the coordinator knows.
fn check_producer(producer_ids: &ProducerIds, header: &BatchHeader) -> Result<(), String> {
    match header.producer_id {
        Some(id) if !producer_ids.was_given(id) => Err(ProduceError::UnknownProducer(id).to_string()),
        _ => Ok(()),
    }
}

/// Whether a batch is of the transaction that is named, or of none where none is.
fn check_transaction(header: &BatchHeader, transaction: Option<TransactionHandle>) -> Result<(), String> {
    let Some(TransactionHandle { producer_id, producer_epoch, .. }) = transaction else {
        return if header.is_transactional() {
            Err("a transactional batch needs a transaction".to_owned())
        } else {
            Ok(())
        };
    };
    if !header.is_transactional() {
        return Err("a transaction takes transactional batches alone".to_owned());
    }
    match header.producer_id {
        Some(id) if id == producer_id && header.producer_epoch == producer_epoch => Ok(()),
        _ => Err(format!("the transaction's batches have producer id {producer_id} and epoch {producer_epoch}")),
    }
}

fn in_words(error: &RecordsError) -> String {
    match error {
        RecordsError::Compression(CompressionError::TooLarge { limit_bytes: limits::UNPACKED_BYTES_MAX.., .. }) => {
            format!("{error} (UNPACKED_BYTES_MAX, or max.message.bytes where that is more); send smaller batches")
        }
        _ => error.to_string(),
    }
}

/// The times of a batch's records, and the place of the first that has no key.
struct CheckedBatch {
    times: Vec<Timestamp>,
    keyless: Option<u32>,
}

/// Checks every record.
fn check_batch(config: &TopicConfig, batch: &BatchBuf, now: Timestamp) -> Result<CheckedBatch, RecordsError> {
    // What a batch of this many records of the largest size unpacks to; a bomb is stopped there. But no reader of a single
    // record shall have to unpack more than the limit, whatever their number.
    let record_bytes_max = config.max_message_bytes + RECORD_OVERHEAD_BYTES_MAX;
    let batch_bytes_max = limits::UNPACKED_BYTES_MAX.max(record_bytes_max);
    let count = usize::try_from(batch.header().record_count).unwrap_or(usize::MAX);
    let unpacked_bytes_max = record_bytes_max.saturating_mul(count).min(batch_bytes_max);
    let (mut times, mut keyless) = (Vec::new(), None);
    batch.check_records(unpacked_bytes_max, |record| {
        times.push(record.timestamp);
        if !record.has_key {
            keyless.get_or_insert(record.index);
        }
        let fault = check_record(config, record.size_bytes, record.header_count, record.timestamp, now);
        fault.map_err(|fault| RecordsError::Malformed { index: record.index, detail: fault.to_string() })
    })?;
    // Lookups by time and retention go by the head's word.
    let declared = batch.header().max_timestamp;
    match times.iter().max() {
        Some(largest) if *largest != declared && batch.header().timestamp_type() == TimestampType::CreateTime => {
            let detail = format!("the head says that {declared} is the largest timestamp; it is {largest}");
            Err(RecordsError::Malformed { index: 0, detail })
        }
        _ => Ok(CheckedBatch { times, keyless }),
    }
}
