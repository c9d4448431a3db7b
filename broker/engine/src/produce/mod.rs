//! Records on their way in: authorize, check, place, batch, hand to the partitions' owners, wait for the answer.

mod batches;
mod checks;
mod earlier;
mod modules;
mod terms;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_log::{AppendError, BatchBuf, BatchBuilder, NewBatch, SequenceCheck, derived_producer_id};
use levada_model::{
    Compression, Offset, Operation, PartitionIndex, Principal, ProducerEpoch, ProducerId, Resource, Sequence,
    Timestamp, TopicName, limits,
};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

pub(crate) use checks::check_replicas;
pub use terms::{
    Acks, AppendFault, BatchesRequest, Once, Placed, ProduceError, ProduceRecord, ProduceRequest, Produced, RecordFault,
};

use crate::catalog::{TO_BE_PARTITIONS, Topic, TopicState};
use crate::heavy::{Work, compute};
use crate::partition::{Landed, Landings, NewAppend, blocking};
use crate::{CreateTopic, Engine};
use checks::{check_records, one_partition};
use earlier::Earlier;
pub(crate) use modules::choose;
use transaction::{Begun, Refused};

/// Lengths and deltas of a record in a batch, at most but for huge ones: room to reserve.
const RECORD_OVERHEAD_BYTES: usize = 24;
/// Lengths of a header in a batch, likewise.
const HEADER_OVERHEAD_BYTES: usize = 6;

impl Engine {
    /// Stores records. Dropping the future takes nothing back: what a partition's owner has accepted is stored.
    ///
    /// # Errors
    /// See [`ProduceError`]; nothing was stored then. What fails later is in [`Produced::records`].
    pub async fn produce(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: ProduceRequest,
    ) -> Result<Produced, ProduceError> {
        Ok(self.begin_produce(who, topic, request).await?.produced().await)
    }

    /// Hands records to their partitions' owners without waiting for these: who begins one produce after the other has
    /// them stored in this order, partition by partition, and may have many on their way.
    ///
    /// # Errors
    /// See [`ProduceError`]; nothing was stored then.
    pub async fn begin_produce(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: ProduceRequest,
    ) -> Result<Accepted, ProduceError> {
        if let Once::Transaction { transaction, .. } = &request.once {
            transaction::authorize(&self.core, who, *transaction).await?;
        }
        self.begin_authorized(who, topic, request).await
    }

    /// Stores records of a transaction that is the broker's own, on behalf of `who`, who needs to be allowed to write the
    /// topic alone. Else as [`produce`](Self::produce).
    ///
    /// # Errors
    /// See [`ProduceError`]; nothing was stored then.
    pub(crate) async fn produce_in_own(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: ProduceRequest,
    ) -> Result<Produced, ProduceError> {
        Ok(self.begin_authorized(who, topic, request).await?.produced().await)
    }

    /// As [`produce_in_own`](Self::produce_in_own) in this very topic: one of its name that came later is another.
    ///
    /// # Errors
    /// See [`ProduceError`]; nothing was stored then.
    pub(crate) async fn produce_in_this(
        &self,
        who: &Principal,
        topic: &Arc<Topic>,
        request: ProduceRequest,
    ) -> Result<Produced, ProduceError> {
        self.core.authorize(who, Operation::Write, Resource::Topic(topic.name()))?;
        if topic.is_deleted() {
            return Err(ProduceError::NotFound(topic.name().clone()));
        }
        Ok(self.begin_in(who, topic, request).await?.produced().await)
    }

    /// Stores records as a request does that was long on its way behind all checks: only the partitions judge them, which a
    /// test has to see.
    ///
    /// # Errors
    /// [`ProduceError::NotFound`].
    #[cfg(feature = "sim")]
    pub async fn produce_unchecked(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: ProduceRequest,
    ) -> Result<Produced, ProduceError> {
        let topic = self.core.catalog.get(topic).ok_or_else(|| ProduceError::NotFound(topic.clone()))?;
        let state = topic.state_full();
        let now = self.core.directory.now();
        let none = Earlier::default();
        let (request, placements) = modules::place(&self.core, &topic, &state, request, &none, now).await?;
        let producer = producer(who, &topic, &request.once);
        Ok(send(&state, request, &placements, producer, now).answers().await)
    }

    /// As [`begin_produce`](Self::begin_produce) of one who may use the transaction, if there is one.
    async fn begin_authorized(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: ProduceRequest,
    ) -> Result<Accepted, ProduceError> {
        let topic = match self.writable(who, topic)? {
            Some(there) => there,
            None => {
                self.check(&TopicState::to_be(), &request)?;
                if let Once::Transaction { transaction, .. } = &request.once {
                    transaction::check_open(&self.core, *transaction).await?;
                }
                if let Some(fault) = mismatch(request.expected_offset) {
                    return Ok(Accepted::refused(&request, fault));
                }
                self.create_to_write(topic).await?
            }
        };
        self.begin_in(who, &topic, request).await
    }

    /// As [`begin_produce`](Self::begin_produce) of one who may write the topic, and use the transaction if there is one.
    async fn begin_in(
        &self,
        who: &Principal,
        topic: &Arc<Topic>,
        request: ProduceRequest,
    ) -> Result<Accepted, ProduceError> {
        let state = topic.state_full();
        let now = self.check(&state, &request)?;
        let producer = producer(who, topic, &request.once);
        let Ok(mut earlier) = Earlier::find(&state, producer).await else {
            let fault = Arc::new(AppendError::KeyReused.into());
            return Ok(Accepted::refused(&request, fault));
        };
        let request = earlier.name(&state, request).await;
        let (request, mut placements) = modules::place(&self.core, topic, &state, request, &earlier, now).await?;
        earlier.keep_apart(&request.records, &mut placements, state.active_count);
        let request = modules::validate(&self.core, topic, &state, request, &placements, &earlier, now).await?;
        let transaction = match &request.once {
            Once::Transaction { transaction, .. } => {
                let partitions = BTreeSet::from_iter(placements.iter().copied());
                Some(transaction::begin(&self.core, topic, *transaction, partitions).await?)
            }
            Once::No | Once::Key { .. } | Once::Producer { .. } => None,
        };
        let work = if state.config.compression == Compression::None { Work::Check } else { Work::Parse };
        let bytes = request.records.iter().map(|record| record.record.size_bytes()).sum();
        let sent = compute(work, bytes, move || send(&state, request, &placements, producer, now)).await;
        Ok(Accepted(Outcome::Sent(SentRequest { transaction, ..sent })))
    }

    /// Stores batches as they are, all of one partition in one piece. Checked whole before any is stored: CRC, counts,
    /// offsets, sizes, no control batches, none of another transaction than the request's. When a later batch's sequence
    /// is refused, the earlier ones are stored and the answer says which.
    ///
    /// # Errors
    /// See [`ProduceError`].
    pub async fn produce_batches(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: BatchesRequest,
    ) -> Result<Produced, ProduceError> {
        if let Some(transaction) = request.transaction {
            transaction::authorize(&self.core, who, transaction).await?;
        }
        let topic = match self.writable(who, topic)? {
            Some(there) => there,
            None => {
                let count = batches::check_request(&self.core, &Arc::new(TopicState::to_be()), &request).await?;
                if let Some(fault) = mismatch(request.expected_offset) {
                    return Ok(Produced { records: vec![Err(fault); count], duplicate: false });
                }
                self.create_to_write(topic).await?
            }
        };
        batches::produce(&self.core, &topic, request).await
    }

    /// Gives out a producer id with epoch 0; never the same twice.
    ///
    /// # Errors
    /// [`ProduceError::Closing`] or [`ProduceError::Fenced`] when the metadata takes no changes.
    pub async fn init_producer(&self, who: &Principal) -> Result<(ProducerId, ProducerEpoch), ProduceError> {
        self.core.authorize(who, Operation::Write, Resource::Cluster)?;
        if self.core.is_closing() {
            return Err(ProduceError::Closing);
        }
        let core = self.core.clone();
        let id = blocking(move || core.producer_ids.give(&*core.metadata)).await;
        let id = id.map_err(|error| ProduceError::Fenced(error.to_string()))?;
        Ok((id, ProducerEpoch(0)))
    }

    /// All that can be wrong with records before their partitions judge them; nothing is stored and no topic created.
    /// Answers to how many partitions they may go.
    pub(crate) fn judge_produce(
        &self,
        who: &Principal,
        topic: &TopicName,
        request: &ProduceRequest,
    ) -> Result<usize, ProduceError> {
        let there = self.writable(who, topic)?;
        let state = there.map_or_else(|| Arc::new(TopicState::to_be()), |topic| topic.state_full());
        self.check(&state, request)?;
        Ok(state.active_count as usize)
    }

    /// The topic, if `who` may write it; none if there is none and it is to be created by producing.
    fn writable(&self, who: &Principal, name: &TopicName) -> Result<Option<Arc<Topic>>, ProduceError> {
        self.core.authorize(who, Operation::Write, Resource::Topic(name))?;
        if name.is_internal() {
            return Err(ProduceError::Internal(name.clone()));
        }
        if let Some(topic) = self.core.catalog.get(name) {
            return Ok(Some(topic));
        }
        if !self.core.auto_create_topics {
            return Err(ProduceError::NotFound(name.clone()));
        }
        self.core.authorize(who, Operation::Create, Resource::Topic(name))?;
        Ok(None)
    }

    /// Creates the topic of a request that was checked against what the topic will be: one that is refused leaves none.
    async fn create_to_write(&self, name: &TopicName) -> Result<Arc<Topic>, ProduceError> {
        let new = CreateTopic { name: name.clone(), partitions: TO_BE_PARTITIONS, config: BTreeMap::new() };
        self.core.ensure_topic(new).await.map_err(ProduceError::AutoCreate)
    }

    /// All that can be wrong with the request before its partitions judge it; answers the time that it was judged at.
    fn check(&self, state: &TopicState, request: &ProduceRequest) -> Result<Timestamp, ProduceError> {
        check_replicas(state, request.acks)?;
        self.check_shape(state, request)?;
        let now = self.core.directory.now();
        let faults = check_records(state, &request.records, now);
        if faults.is_empty() { Ok(now) } else { Err(ProduceError::Records(faults)) }
    }

    /// What can be wrong with the request as a whole.
    fn check_shape(&self, state: &TopicState, request: &ProduceRequest) -> Result<(), ProduceError> {
        if request.records.is_empty() {
            return Err(ProduceError::Empty);
        }
        if request.records.len() > limits::REQUEST_RECORDS_MAX {
            return Err(ProduceError::TooManyRecords);
        }
        match &request.once {
            Once::Producer { id, .. } => {
                one_partition(&request.records, "a producer sequence")?;
                if !self.core.producer_ids.was_given(*id) {
                    return Err(ProduceError::UnknownProducer(*id));
                }
            }
            Once::Transaction { sequence, .. } => {
                transaction::check_acks(request.acks)?;
                if sequence.is_some() {
                    one_partition(&request.records, "a producer sequence")?;
                }
            }
            Once::No | Once::Key { .. } => {}
        }
        // In a topic of one partition it is clear which is meant.
        if request.expected_offset.is_some() && state.active_count > 1 {
            one_partition(&request.records, "an expected offset")?;
        }
        Ok(())
    }
}

/// The producer id, epoch and sequence of a request's batches, and how its partitions judge them.
type Producer = (Option<(ProducerId, ProducerEpoch, Sequence)>, SequenceCheck);

/// A produce that is with its partitions' owners. Dropping it takes nothing back.
pub struct Accepted(Outcome);

enum Outcome {
    Known(Produced),
    Sent(SentRequest),
}

impl Accepted {
    fn refused(request: &ProduceRequest, fault: Arc<AppendFault>) -> Self {
        Self(Outcome::Known(Produced { records: vec![Err(fault); request.records.len()], duplicate: false }))
    }

    /// Waits for the owners; not with [`Acks::None`].
    pub async fn produced(self) -> Produced {
        match self.0 {
            Outcome::Known(produced) => produced,
            Outcome::Sent(sent) => sent.answers().await,
        }
    }
}

/// An append that one partition's owner has accepted, or why not.
struct Sent {
    partition: PartitionIndex,
    /// Places of its records in the request.
    places: Vec<usize>,
    answer: Result<oneshot::Receiver<Landings>, Arc<AppendFault>>,
}

/// A request whose parts are with their owners.
struct SentRequest {
    /// The times that the producer gave, by record, and the one of those that it gave none.
    given: Vec<Option<Timestamp>>,
    now: Timestamp,
    parts: Vec<Sent>,
    acks: Acks,
    /// Of which transaction it is.
    transaction: Option<Begun>,
}

impl SentRequest {
    /// Waits for the owners; not with [`Acks::None`].
    async fn answers(self) -> Produced {
        let mut refused = Refused::new(self.transaction);
        let mut records = vec![None; self.given.len()];
        let mut duplicate = true;
        for part in self.parts {
            let landed = match part.answer {
                Err(fault) => Err(fault),
                Ok(_) if self.acks == Acks::None => Ok(None),
                Ok(answer) => landing(answer).await.map(Some),
            };
            let landed = match landed {
                Err(fault) => Err(refused.in_words(fault).await),
                Ok(landed) => Ok(landed),
            };
            duplicate &= matches!(landed, Ok(Some(Landed { duplicate: true, .. })));
            for (i, place) in part.places.into_iter().enumerate() {
                let sent_at = self.given[place].ok_or(self.now);
                records[place] = Some(landed.clone().map(|landed| placed(part.partition, landed, i as u64, sent_at)));
            }
        }
        let records = records.into_iter().map(|placed| placed.expect("every record went to a partition")).collect();
        Produced { records, duplicate }
    }
}

/// What the owner answers to an append of one batch.
pub(crate) async fn landing(answer: oneshot::Receiver<Landings>) -> Result<Landed, Arc<AppendFault>> {
    landings(answer).await.pop().expect("one answer a batch")
}

/// What the owner answers. It always does, unless it has panicked.
pub(crate) async fn landings(answer: oneshot::Receiver<Landings>) -> Landings {
    answer.await.unwrap_or_else(|_| {
        let reason = "the owner of the partition panicked".to_owned();
        vec![Err(Arc::new(AppendFault::Fenced { reason, possible: true }))]
    })
}

/// Where the `i`th record of a batch is.
/// `sent_at` is the producer's time, or else the broker's at this try: a repeat answers the time of the first one.
fn placed(partition: PartitionIndex, landed: Option<Landed>, i: u64, sent_at: Result<Timestamp, Timestamp>) -> Placed {
    let timestamp = match (landed, sent_at) {
        (Some(Landed { append_time: true, appended_at, .. }), _) => appended_at,
        (_, Ok(given)) => given,
        (Some(Landed { duplicate: true, appended_at, .. }), Err(_)) => appended_at,
        (_, Err(now)) => now,
    };
    Placed { partition, offset: landed.map(|landed| landed.base_offset.advance(i)), timestamp }
}

/// Why a topic that is not there yet cannot take an append that expects this offset.
fn mismatch(expected_offset: Option<Offset>) -> Option<Arc<AppendFault>> {
    let next_offset = Offset(0);
    let refused = expected_offset.is_some_and(|expected| expected != next_offset);
    refused.then(|| Arc::new(AppendError::OffsetMismatch { next_offset }.into()))
}

/// Who stores this once, if anyone. An `Idempotency-Key` becomes a producer id, the body's digest its epoch and sequence.
fn producer(who: &Principal, topic: &Topic, once: &Once) -> Producer {
    match once {
        Once::No => (None, SequenceCheck::Producer),
        Once::Producer { id, epoch, sequence } => (Some((*id, *epoch, *sequence)), SequenceCheck::Producer),
        Once::Transaction { transaction, sequence } => {
            let check = if sequence.is_some() { SequenceCheck::Producer } else { SequenceCheck::Assigned };
            let first = sequence.unwrap_or(Sequence(0));
            (Some((transaction.producer_id, transaction.producer_epoch, first)), check)
        }
        Once::Key { key, body_digest } => {
            (Some(keyed_producer(who, topic, key.as_bytes(), *body_digest)), SequenceCheck::Key)
        }
    }
}

/// What an idempotency key and the digest of what it stands for become.
pub(crate) fn keyed_producer(
    who: &Principal,
    topic: &Topic,
    key: &[u8],
    digest: [u8; 32],
) -> (ProducerId, ProducerEpoch, Sequence) {
    let mut hash = Sha256::new();
    for part in [who.as_str().as_bytes(), topic.id().0.as_bytes(), key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    let id = derived_producer_id(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    let [a, b, c, d, e, f, ..] = digest;
    let epoch = ProducerEpoch(i16::from_be_bytes([a & 0x7f, b]));
    let sequence = Sequence(i32::from_be_bytes([c & 0x7f, d, e, f]));
    (id, epoch, sequence)
}

/// Builds one batch a partition and hands each to its owner.
fn send(
    state: &TopicState,
    request: ProduceRequest,
    placements: &[PartitionIndex],
    (producer, check): Producer,
    now: Timestamp,
) -> SentRequest {
    let transactional = matches!(request.once, Once::Transaction { .. });
    let new = NewBatch { compression: state.config.compression, producer, transactional, ..NewBatch::default() };
    let send = |(index, places): (PartitionIndex, Vec<usize>)| {
        let batch = batch(new, &request.records, &places, now);
        let keyless = places.iter().any(|place| request.records[*place].record.key.is_none());
        let append = NewAppend { batches: vec![batch], check, expected_offset: request.expected_offset, keyless };
        let partition = state.partition(index).expect("records were placed in active partitions");
        Sent { partition: index, places, answer: partition.push(append).map_err(Arc::new) }
    };
    let parts = by_partition(placements).into_iter().map(send).collect();
    let given = request.records.iter().map(|record| record.timestamp).collect();
    SentRequest { given, now, parts, acks: request.acks, transaction: None }
}

/// The places of each partition's records, in order of the partitions.
fn by_partition(placements: &[PartitionIndex]) -> Vec<(PartitionIndex, Vec<usize>)> {
    let mut order: Vec<_> = (0..placements.len()).collect();
    order.sort_by_key(|place| placements[*place]);
    let parts = order.chunk_by(|a, b| placements[*a] == placements[*b]);
    parts.map(|places| (placements[places[0]], places.to_vec())).collect()
}

fn batch(new: NewBatch, records: &[ProduceRecord], places: &[usize], now: Timestamp) -> BatchBuf {
    let size = |place: &usize| {
        let record = &records[*place].record;
        RECORD_OVERHEAD_BYTES + record.size_bytes() + record.headers.len() * HEADER_OVERHEAD_BYTES
    };
    let mut builder = BatchBuilder::new(new, places.iter().map(size).sum());
    for place in places {
        let ProduceRecord { record, timestamp, .. } = &records[*place];
        builder.push(timestamp.unwrap_or(now), record);
    }
    builder.finish().expect("compressing into memory does not fail")
}
