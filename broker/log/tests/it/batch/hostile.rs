//! What somebody sends to make a server allocate or fall over (cases.md PC-49). Memory is counted by thread, so these
//! run beside other tests; what zstd's C code takes is bounded by its window and not counted here.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use levada_log::{Batch, BatchBuf, CompressionError, NewBatch, RecordsError};
use levada_model::{Compression, Timestamp, limits};
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, proptest};
use proptest::sample::Index;

use super::{
    ATTRIBUTES_AT, COMPRESSIONS, RECORDS_AT, bytes_of, check, parse_buf, reseal, some_compression, some_records, text,
};

const MIB: usize = 1 << 20;
/// What a codec may take whatever comes: an LZ4 frame may declare blocks of 4 MiB and that they are linked, and its
/// reader then keeps three (of which it touches what it fills).
const CODEC_BYTES_MAX: usize = 13 * MIB;

/// Does to the bytes all that the broker would, and says the most bytes that were allocated at a time.
fn most_allocated(bytes: &[u8], unpacked_bytes_max: usize) -> usize {
    let bytes = Bytes::copy_from_slice(bytes);
    let measured = allocation_counter::measure(|| {
        let mut rest = bytes.clone();
        if let Ok(batch) = Batch::parse(&mut rest)
            && batch.header().compression() == Compression::None
        {
            let _ = batch.records().expect("not packed").count();
        }
        let mut own = BytesMut::from(&bytes[..]);
        while let Ok(batch) = BatchBuf::parse(&mut own) {
            let _ = check(&batch, unpacked_bytes_max);
        }
    });
    usize::try_from(measured.bytes_max).expect("a count")
}

proptest! {
    #[test]
    fn any_bytes_are_survived_and_cost_no_more_than_they_weigh(bytes in vec(any::<u8>(), 0..2000)) {
        prop_assert!(most_allocated(&bytes, MIB) <= bytes.len() + 1000);
    }

    #[test]
    fn a_batch_changed_under_a_right_crc_is_survived_at_a_bounded_cost(
        compression in some_compression(),
        records in some_records(),
        edits in vec((any::<Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = bytes_of(NewBatch { compression, ..NewBatch::default() }, &records);
        let inner = bytes.len() - ATTRIBUTES_AT;
        for (place, byte) in edits {
            bytes[ATTRIBUTES_AT + place.index(inner)] = byte;
        }
        reseal(&mut bytes);
        prop_assert!(most_allocated(&bytes, MIB) <= 2 * MIB + 2 * bytes.len() + CODEC_BYTES_MAX);
    }
}

/// A batch with that compression, whose packed records are `packed`.
fn with_packed(compression: Compression, packed: &[u8]) -> Vec<u8> {
    let mut bytes = bytes_of(NewBatch { compression, ..NewBatch::default() }, &[(Timestamp(1), text("x"))]);
    bytes.truncate(RECORDS_AT);
    bytes.extend_from_slice(packed);
    reseal(&mut bytes);
    bytes
}

fn refusal(bytes: &[u8], unpacked_bytes_max: usize) -> RecordsError {
    check(&parse_buf(bytes), unpacked_bytes_max).expect_err("refused")
}

#[test]
fn a_bomb_of_any_codec_stops_at_the_limit() {
    for compression in COMPRESSIONS.into_iter().filter(|compression| *compression != Compression::None) {
        let bomb =
            bytes_of(NewBatch { compression, ..NewBatch::default() }, &[(Timestamp(1), text(&"\0".repeat(64 * MIB)))]);
        let error = refusal(&bomb, MIB);
        assert!(
            matches!(error, RecordsError::Compression(CompressionError::TooLarge { limit_bytes: MIB, .. })),
            "{compression:?}: {error}"
        );
        // The own copy of the bomb, what comes out and its doubling, and the codec's own.
        let most = most_allocated(&bomb, MIB);
        assert!(most <= bomb.len() + 3 * MIB + CODEC_BYTES_MAX, "{compression:?}: {most} bytes");
    }
}

#[test]
fn a_gzip_bomb_of_one_mebibyte_that_unpacks_to_one_gibibyte_stops_at_the_limit() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..1024 {
        encoder.write_all(&vec![0; MIB]).expect("packs into memory");
    }
    let bomb = with_packed(Compression::Gzip, &encoder.finish().expect("packs into memory"));
    assert!(bomb.len() < 2 * MIB);
    let error = refusal(&bomb, 4 * MIB);
    assert!(matches!(error, RecordsError::Compression(CompressionError::TooLarge { .. })), "{error}");
    assert!(most_allocated(&bomb, 4 * MIB) <= bomb.len() + 10 * MIB);
}

#[test]
fn declared_sizes_cost_nothing() {
    let snappy = |declared: &[u8]| [b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\0\0\0\x07", declared, b"\0a"].concat();
    let cases: [(&str, Compression, Vec<u8>); 6] = [
        ("a snappy block of 4 GiB", Compression::Snappy, b"\xff\xff\xff\xff\x0f\0a".to_vec()),
        ("a framed snappy block of 4 GiB", Compression::Snappy, snappy(b"\xff\xff\xff\xff\x0f")),
        (
            "a snappy frame with a part of 2 GiB",
            Compression::Snappy,
            b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01\x7f\xff\xff\xff".to_vec(),
        ),
        ("an LZ4 block of 2 GiB", Compression::Lz4, b"\x04\x22\x4d\x18\x60\x40\x82\xff\xff\xff\x7f".to_vec()),
        ("a zstd window of 512 MiB", Compression::Zstd, b"\x28\xb5\x2f\xfd\0\x98\x01\0\0".to_vec()),
        ("zstd content of 2^62 bytes", Compression::Zstd, b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x40\x01\0\0".to_vec()),
    ];
    for (name, compression, packed) in cases {
        let bytes = with_packed(compression, &packed);
        let error = refusal(&bytes, limits::BATCH_BYTES_MAX);
        assert!(matches!(error, RecordsError::Compression(_)), "{name}: {error}");
        let most = most_allocated(&bytes, limits::BATCH_BYTES_MAX);
        assert!(most < 10 * MIB, "{name}: {most} bytes");
    }
}
