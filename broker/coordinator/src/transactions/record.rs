//! The record of a transactional id in `__transaction_state`; see `broker/docs/formats/transaction-state.md`.

use bytes::{BufMut, Bytes};
use levada_extension::TopicPartition;
use levada_model::{GroupName, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TopicId, TransactionalId};
use uuid::Uuid;

use super::terms::{BodyDigest, Outcome, Participants, Producer};
use crate::records::wire::{Reader, put_text};

/// The last epoch in which a transaction may begin: its markers need one more.
pub(super) const LAST_EPOCH: i16 = i16::MAX - 1;

const KEY_VERSION: u8 = 1;
const VERSION: u8 = 1;

const IDLE: u8 = 0;
const OPEN: u8 = 1;
const COMMITTING: u8 = 2;
const ABORTING: u8 = 3;
const FENCING: u8 = 4;

const LAST: u8 = 1;
const NEXT: u8 = 2;
const SUCCESSOR: u8 = 4;
const ANSWER: u8 = 8;
const BODY: u8 = 16;

const COMMITTED: u8 = 0;
const ABORTED: u8 = 1;

/// All that is known of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TransactionRecord {
    /// Of the transaction that is open or being ended, else of the next one.
    pub(super) producer: Producer,
    /// After how long its transactions are aborted.
    pub(super) timeout_ms: u64,
    pub(super) written_at: Timestamp,
    pub(super) phase: Phase,
    /// The transaction that ended last.
    pub(super) last: Option<Ended>,
    /// Takes over when the epochs of the producer's id are used up.
    pub(super) successor: Option<ProducerId>,
    /// What is answered to a request that comes again.
    pub(super) answer: Option<KeptAnswer>,
}

/// How a transactional id stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is nothing of its next transaction.
    Idle,
    /// A transaction has something in it.
    Open(Contents),
    /// The outcome of a transaction stands, and markers are being written.
    Ending {
        contents: Contents,
        outcome: Outcome,
        /// Whether it is aborted because its producer was started anew.
        fences: bool,
    },
}

/// What is in a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) started_at: Timestamp,
    /// Of which request it is all; none once its outcome stands.
    pub(super) body: Option<BodyDigest>,
    pub(super) participants: Participants,
}

/// A transaction that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) transaction: Producer,
    pub(super) outcome: Outcome,
    /// What is answered to its end; none if its producer was fenced.
    pub(super) next: Option<Producer>,
}

/// The answer to a request that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptAnswer {
    pub(super) body: BodyDigest,
    pub(super) bytes: Bytes,
}

/// The stored form of the key.
pub(super) fn encode_key(id: &TransactionalId) -> Bytes {
    let mut bytes = vec![KEY_VERSION];
    put_text(&mut bytes, id.as_str());
    bytes.into()
}

/// Reads the stored form of a key.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn decode_key(bytes: &[u8]) -> Result<TransactionalId, String> {
    let mut reader = Reader::open(bytes, KEY_VERSION)?;
    let id = reader.name(TransactionalId::new)?;
    reader.end()?;
    Ok(id)
}

impl TransactionRecord {
    /// The stored form.
    pub(super) fn encode(&self) -> Bytes {
        let phase = match &self.phase {
            Phase::Idle => IDLE,
            Phase::Open(_) => OPEN,
            Phase::Ending { outcome: Outcome::Commit, .. } => COMMITTING,
            Phase::Ending { outcome: Outcome::Abort, fences: false, .. } => ABORTING,
            Phase::Ending { outcome: Outcome::Abort, fences: true, .. } => FENCING,
        };
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.last.is_some(), LAST)
            | flag(self.last.is_some_and(|last| last.next.is_some()), NEXT)
            | flag(self.successor.is_some(), SUCCESSOR)
            | flag(self.answer.is_some(), ANSWER)
            | flag(matches!(&self.phase, Phase::Open(contents) if contents.body.is_some()), BODY);
        let mut bytes = vec![VERSION, phase, flags];
        put_producer(&mut bytes, self.producer);
        bytes.put_u64(self.timeout_ms);
        bytes.put_i64(self.written_at.0);
        if let Some(last) = self.last {
            put_producer(&mut bytes, last.transaction);
            bytes.put_u8(if last.outcome == Outcome::Commit { COMMITTED } else { ABORTED });
            last.next.into_iter().for_each(|next| put_producer(&mut bytes, next));
        }
        self.successor.into_iter().for_each(|id| bytes.put_i64(id.0));
        if let Some(answer) = &self.answer {
            bytes.put_slice(&answer.body.0);
            bytes.put_u32(u32::try_from(answer.bytes.len()).expect("bounded when it is taken"));
            bytes.put_slice(&answer.bytes);
        }
        if let Phase::Open(contents) | Phase::Ending { contents, .. } = &self.phase {
            put_contents(&mut bytes, contents);
        }
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::open(bytes, VERSION)?;
        let (phase, flags) = (reader.u8()?, reader.u8()?);
        let is_known = flags & !(LAST | NEXT | SUCCESSOR | ANSWER | BODY) == 0;
        if !is_known || flags & (LAST | NEXT) == NEXT || (flags & BODY != 0 && phase != OPEN) {
            return Err(format!("flags {flags} are not known here"));
        }
        let producer = producer(&mut reader)?;
        let timeout_ms = reader.u64()?;
        let written_at = Timestamp(reader.i64()?);
        let last = (flags & LAST != 0).then(|| ended(&mut reader, flags & NEXT != 0)).transpose()?;
        let successor = (flags & SUCCESSOR != 0).then(|| producer_id(&mut reader)).transpose()?;
        let answer = (flags & ANSWER != 0).then(|| answer(&mut reader)).transpose()?;
        let ending = |contents, outcome, fences| Phase::Ending { contents, outcome, fences };
        let phase = match phase {
            IDLE => Phase::Idle,
            OPEN => Phase::Open(contents(&mut reader, flags & BODY != 0)?),
            COMMITTING => ending(contents(&mut reader, false)?, Outcome::Commit, false),
            ABORTING => ending(contents(&mut reader, false)?, Outcome::Abort, false),
            FENCING => ending(contents(&mut reader, false)?, Outcome::Abort, true),
            _ => return Err(format!("phase {phase} is not known here")),
        };
        reader.end()?;
        let room = LAST_EPOCH - i16::from(successor.is_none());
        if phase != Phase::Idle && producer.epoch.0 > room {
            return Err(format!("nothing can follow a transaction of epoch {}", producer.epoch));
        }
        Ok(Self { producer, timeout_ms, written_at, phase, last, successor, answer })
    }
}

fn put_producer(bytes: &mut Vec<u8>, producer: Producer) {
    bytes.put_i64(producer.id.0);
    bytes.put_i16(producer.epoch.0);
}

fn put_contents(bytes: &mut Vec<u8>, contents: &Contents) {
    let Participants { partitions, groups } = &contents.participants;
    bytes.put_i64(contents.started_at.0);
    contents.body.into_iter().for_each(|body| bytes.put_slice(&body.0));
    bytes.put_u32(u32::try_from(partitions.len()).expect("bounded when they are added"));
    for partition in partitions {
        bytes.put_slice(partition.topic.0.as_bytes());
        bytes.put_u32(partition.partition.0);
    }
    bytes.put_u16(u16::try_from(groups.len()).expect("bounded when they are added"));
    groups.iter().for_each(|group| put_text(bytes, group.as_str()));
}

fn producer_id(reader: &mut Reader<'_>) -> Result<ProducerId, String> {
    let id = reader.i64()?;
    if id < 0 { Err(format!("{id} is no producer id")) } else { Ok(ProducerId(id)) }
}

fn producer(reader: &mut Reader<'_>) -> Result<Producer, String> {
    let id = producer_id(reader)?;
    let epoch = i16::try_from(reader.u16()?).map_err(|_| "an epoch is at most 32767".to_owned())?;
    Ok(Producer { id, epoch: ProducerEpoch(epoch) })
}

fn ended(reader: &mut Reader<'_>, goes_on: bool) -> Result<Ended, String> {
    let transaction = producer(reader)?;
    if transaction.epoch.0 > LAST_EPOCH {
        return Err(format!("no transaction has epoch {}", transaction.epoch));
    }
    let outcome = match reader.u8()? {
        COMMITTED => Outcome::Commit,
        ABORTED => Outcome::Abort,
        outcome => return Err(format!("outcome {outcome} is not known here")),
    };
    let next = goes_on.then(|| producer(reader)).transpose()?;
    Ok(Ended { transaction, outcome, next })
}

fn answer(reader: &mut Reader<'_>) -> Result<KeptAnswer, String> {
    let body = body(reader)?;
    let len = reader.u32()? as usize;
    let bytes = Bytes::copy_from_slice(reader.bytes(len)?);
    Ok(KeptAnswer { body, bytes })
}

fn body(reader: &mut Reader<'_>) -> Result<BodyDigest, String> {
    Ok(BodyDigest(reader.bytes(32)?.try_into().expect("as many as were asked for")))
}

fn contents(reader: &mut Reader<'_>, has_body: bool) -> Result<Contents, String> {
    let started_at = Timestamp(reader.i64()?);
    let body = has_body.then(|| body(reader)).transpose()?;
    let mut participants = Participants::default();
    for _ in 0..reader.u32()? {
        let topic = TopicId(Uuid::from_u128(reader.u128()?));
        let partition = PartitionIndex(reader.u32()?);
        participants.partitions.insert(TopicPartition { topic, partition });
    }
    for _ in 0..reader.u16()? {
        participants.groups.insert(reader.name(GroupName::new)?);
    }
    Ok(Contents { started_at, body, participants })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

    use super::*;

    fn any_producer() -> impl Strategy<Value = Producer> {
        (0..i64::MAX, 0..=i16::MAX).prop_map(|(id, epoch)| Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) })
    }

    fn any_outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![Just(Outcome::Commit), Just(Outcome::Abort)]
    }

    fn any_contents() -> impl Strategy<Value = Contents> {
        let partitions = proptest::collection::vec((any::<u128>(), any::<u32>()), 0..4);
        let groups = proptest::collection::vec("[a-zA-Z0-9_-]{1,249}", 0..3);
        (any::<i64>(), partitions, groups).prop_map(|(started_at, partitions, groups)| Contents {
            started_at: Timestamp(started_at),
            body: None,
            participants: Participants {
                partitions: partitions.into_iter().map(|(topic, partition)| partition_of(topic, partition)).collect(),
                groups: groups.iter().map(|name| GroupName::new(name).expect("within the rule")).collect(),
            },
        })
    }

    fn any_phase() -> impl Strategy<Value = Phase> {
        let ending = (any_contents(), any_outcome(), any::<bool>()).prop_map(|(contents, outcome, fences)| {
            Phase::Ending { contents, outcome, fences: fences && outcome == Outcome::Abort }
        });
        let body = proptest::option::of(any::<[u8; 32]>().prop_map(BodyDigest));
        let open = (any_contents(), body).prop_map(|(contents, body)| Phase::Open(Contents { body, ..contents }));
        prop_oneof![Just(Phase::Idle), open, ending]
    }

    fn any_record() -> impl Strategy<Value = TransactionRecord> {
        let last = (any_producer(), any_outcome(), proptest::option::of(any_producer())).prop_map(
            |(Producer { id, epoch }, outcome, next)| {
                let transaction = Producer { id, epoch: epoch.min(ProducerEpoch(LAST_EPOCH)) };
                Ended { transaction, outcome, next }
            },
        );
        let answer = (any::<[u8; 32]>(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(body, bytes)| KeptAnswer { body: BodyDigest(body), bytes: bytes.into() });
        let rest = (proptest::option::of(last), proptest::option::of(0..i64::MAX), proptest::option::of(answer));
        (any_producer(), any::<u64>(), any::<i64>(), any_phase(), rest).prop_map(
            |(mut producer, timeout_ms, written_at, phase, (last, successor, answer))| TransactionRecord {
                producer: {
                    if phase != Phase::Idle {
                        producer.epoch.0 = producer.epoch.0.min(LAST_EPOCH - i16::from(successor.is_none()));
                    }
                    producer
                },
                timeout_ms,
                written_at: Timestamp(written_at),
                phase,
                last,
                successor: successor.map(ProducerId),
                answer,
            },
        )
    }

    fn partition_of(topic: u128, partition: u32) -> TopicPartition {
        TopicPartition { topic: TopicId(Uuid::from_u128(topic)), partition: PartitionIndex(partition) }
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(id in "\\PC{1,255}", record in any_record()) {
            let id = TransactionalId::new(&id).expect("within the rule");
            assert_eq!(decode_key(&encode_key(&id)), Ok(id));
            assert_eq!(TransactionRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn no_bytes_stop_the_reader(
            version in 0u8..3, phase in 0u8..6, flags in 0u8..33, bytes in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            drop(decode_key(&[&[version], &bytes[..]].concat()));
            drop(TransactionRecord::decode(&[&[version, phase, flags], &bytes[..]].concat()));
        }

        #[test]
        fn a_record_that_is_cut_off_anywhere_is_refused(record in any_record(), cut in any::<proptest::sample::Index>()) {
            let bytes = record.encode();
            TransactionRecord::decode(&bytes[..cut.index(bytes.len())]).expect_err("it is cut off");
        }
    }

    #[test]
    fn a_transaction_that_nothing_can_follow_is_refused() {
        let contents = Contents { started_at: Timestamp(0), body: None, participants: Participants::default() };
        let record = |epoch, phase, successor| TransactionRecord {
            producer: Producer { id: ProducerId(1), epoch: ProducerEpoch(epoch) },
            timeout_ms: 1,
            written_at: Timestamp(0),
            phase,
            last: None,
            successor,
            answer: None,
        };
        let open = || Phase::Open(contents.clone());
        for (epoch, phase, successor, good) in [
            (32_765, open(), None, true),
            (32_766, open(), None, false),
            (32_766, open(), Some(ProducerId(2)), true),
            (32_767, open(), Some(ProducerId(2)), false),
            (32_767, Phase::Idle, None, true),
        ] {
            let record = record(epoch, phase, successor);
            assert_eq!(TransactionRecord::decode(&record.encode()).is_ok(), good, "{record:?}");
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let id = TransactionalId::new("t").expect("within the rule");
        assert_eq!(&encode_key(&id)[..], [1, 0, 1, b't']);
        let producer = |id, epoch| Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) };
        let participants = Participants {
            partitions: [partition_of(0x0102, 3)].into(),
            groups: [GroupName::new("g").expect("within the rule")].into(),
        };
        let record = TransactionRecord {
            producer: producer(9, 258),
            timeout_ms: 10,
            written_at: Timestamp(11),
            phase: Phase::Ending {
                contents: Contents { started_at: Timestamp(12), body: None, participants: participants.clone() },
                outcome: Outcome::Abort,
                fences: true,
            },
            last: Some(Ended { transaction: producer(9, 257), outcome: Outcome::Abort, next: Some(producer(9, 258)) }),
            successor: Some(ProducerId(13)),
            answer: Some(KeptAnswer { body: BodyDigest([7; 32]), bytes: Bytes::from_static(b"ok") }),
        };
        let head = [&[1, 4, 15, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2][..], &10u64.to_be_bytes(), &11i64.to_be_bytes()].concat();
        let last = [0, 0, 0, 0, 0, 0, 0, 9, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2];
        let successor = 13i64.to_be_bytes();
        let answer = [&[7; 32][..], &[0, 0, 0, 2, b'o', b'k']].concat();
        let topic = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        let contents = [&12i64.to_be_bytes()[..], &[0, 0, 0, 1], &topic, &[0, 0, 0, 3], &[0, 1, 0, 1, b'g']].concat();
        assert_eq!(record.encode(), [&head[..], &last, &successor, &answer, &contents].concat());

        // With the body of the request that is all of it.
        let body = Some(BodyDigest([8; 32]));
        let phase = Phase::Open(Contents { started_at: Timestamp(12), body, participants });
        let open = TransactionRecord { phase, answer: None, ..record };
        let head = [&[1, 1, 23][..], &head[3..]].concat();
        let contents = [&contents[..8], &[8; 32], &contents[8..]].concat();
        assert_eq!(open.encode(), [&head[..], &last, &successor, &contents].concat());
        assert_eq!(TransactionRecord::decode(&open.encode()), Ok(open));
    }
}
