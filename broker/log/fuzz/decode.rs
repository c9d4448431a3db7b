//! What the fuzz target does with its bytes, and an ordinary test with every file of the corpus: all that the broker
//! does with a batch, and what must hold of the answers.

use bytes::{Bytes, BytesMut};
use levada_log::{Batch, BatchBuf, BatchBuilder, BatchHeader, HEADER_BYTES, NewBatch, RecordRef, RecordsError};
use levada_model::TimestampType;

const LENGTH_AT: usize = 8;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
/// What a batch may unpack to here: little, so that many inputs are tried.
const UNPACKED_BYTES_MAX: usize = 1 << 20;

/// Decodes `bytes` as they are, and as one batch whose length and CRC are right: no fuzzer guesses a CRC.
pub(super) fn decode(bytes: &[u8]) {
    walk(bytes);
    if let Some(sealed) = seal(bytes) {
        walk(&sealed);
    }
}

fn seal(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < HEADER_BYTES {
        return None;
    }
    let mut sealed = bytes.to_vec();
    let length = i32::try_from(bytes.len() - LENGTH_AT - 4).ok()?;
    sealed[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&sealed[ATTRIBUTES_AT..]);
    sealed[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    Some(sealed)
}

fn walk(bytes: &[u8]) {
    let mut shared = Bytes::copy_from_slice(bytes);
    let mut own = BytesMut::from(bytes);
    loop {
        let left = shared.len();
        let (batch, buf) = match (Batch::parse(&mut shared), BatchBuf::parse(&mut own)) {
            (Ok(batch), Ok(buf)) => (batch, buf),
            (Err(batch), Err(buf)) => {
                assert_eq!(batch, buf, "both say the same");
                assert_eq!((shared.len(), own.len()), (left, left), "a refusal takes nothing");
                return;
            }
            (batch, buf) => panic!("one takes what the other refuses: {batch:?}, {buf:?}"),
        };
        assert_eq!(batch.header(), buf.header());
        assert_eq!(batch.control(), buf.control());
        assert_eq!(BatchHeader::parse(batch.bytes()).as_ref(), Ok(batch.header()));
        assert_eq!((batch.bytes().len(), shared.len()), (batch.header().size_bytes, own.len()));
        records(&batch, &buf);
    }
}

fn records(batch: &Batch, buf: &BatchBuf) {
    let mut count = 0;
    let checked = buf.check_records(UNPACKED_BYTES_MAX, |_| {
        count += 1;
        Ok::<_, RecordsError>(())
    });
    match checked {
        // The log reads with a larger limit, and the answer would only take longer.
        Err(RecordsError::Compression(_)) => (),
        Err(RecordsError::Malformed { .. }) => {
            batch.records().expect("it could be unpacked").for_each(drop);
        }
        Ok(()) => {
            assert_eq!(count, batch.header().record_count);
            let read: Result<Vec<_>, _> = batch.records().expect("it could be unpacked").collect();
            rebuild(batch.header(), &read.expect("what was checked is well-formed"));
        }
    }
}

/// Records that passed every check make a batch of the same records.
fn rebuild(header: &BatchHeader, records: &[RecordRef]) {
    let new = NewBatch {
        compression: header.compression(),
        producer: header.producer_id.map(|id| (id, header.producer_epoch, header.base_sequence)),
        transactional: header.is_transactional(),
        control: header.is_control(),
    };
    let mut builder = BatchBuilder::new(new, 0);
    for record in records {
        builder.push(record.timestamp, &record.record);
    }
    let mut built = builder.finish().expect("packs into memory");
    if header.timestamp_type() == TimestampType::LogAppendTime {
        built.set_append_time(header.max_timestamp);
    }
    let again = built.stamp(header.base_offset, header.leader_epoch);
    let again: Result<Vec<_>, _> = again.records().expect("unpacks").collect();
    assert_eq!(again.expect("well-formed"), records);
}
