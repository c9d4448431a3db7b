//! Snappy as Kafka frames it, which is how snappy-java's `SnappyOutputStream` (xerial) does: a head of 16 bytes, then
//! blocks, each a length (i32, big-endian) and a raw snappy block. Some producers send one raw block without a frame.

use std::io;

use bytes::{Buf, BufMut};
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{Codec, CompressionError, Packed};

const MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
/// The version that is written, and the oldest whose readers can read it.
const VERSION: i32 = 1;
const HEAD_BYTES: usize = 16;
/// What snappy-java packs at a time.
const BLOCK_BYTES: usize = 32 << 10;
/// A raw block's densest element makes 64 bytes out of 3, so what declares more for each of its bytes is a lie.
const EXPANSION_MAX: usize = 22;

pub(super) fn pack(mut packed: Packed, records: &[u8]) -> io::Result<Packed> {
    let out = packed.get_mut();
    out.put_slice(MAGIC);
    out.put_i32(VERSION);
    out.put_i32(VERSION);
    let mut encoder = Encoder::new();
    let mut block = vec![0; max_compress_len(records.len().min(BLOCK_BYTES))];
    for part in records.chunks(BLOCK_BYTES) {
        let size = encoder.compress(part, &mut block)?;
        out.put_i32(i32::try_from(size).expect("a block is small"));
        out.put_slice(&block[..size]);
    }
    Ok(packed)
}

pub(super) fn unpack(packed: &[u8], limit_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    let mut unpacked = Vec::new();
    if !packed.starts_with(MAGIC) {
        unpack_block(packed, limit_bytes, &mut unpacked)?;
        return Ok(unpacked);
    }
    let mut left = packed.get(HEAD_BYTES..).ok_or_else(|| damaged("it ends in its head"))?;
    let readable_from = (&packed[HEAD_BYTES - 4..]).get_i32();
    if readable_from > VERSION {
        return Err(damaged(&format!("only version {readable_from} can read it")));
    }
    while !left.is_empty() {
        let size = left.try_get_i32().map_err(|_| damaged("it ends in the length of a block"))?;
        let block = usize::try_from(size).ok().and_then(|size| left.split_at_checked(size));
        let Some((block, rest)) = block else {
            return Err(damaged(&format!("a block of {size} bytes, and {} are left", left.len())));
        };
        unpack_block(block, limit_bytes, &mut unpacked)?;
        left = rest;
    }
    Ok(unpacked)
}

fn unpack_block(block: &[u8], limit_bytes: usize, unpacked: &mut Vec<u8>) -> Result<(), CompressionError> {
    let size = decompress_len(block).map_err(|error| damaged(&error))?;
    if size > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(damaged(&format!("a block of {} bytes declares {size}", block.len())));
    }
    let start = unpacked.len();
    if size > limit_bytes - start {
        return Err(CompressionError::TooLarge { codec: Codec::Snappy.name(), limit_bytes });
    }
    unpacked.resize(start + size, 0);
    Decoder::new().decompress(block, &mut unpacked[start..]).map_err(|error| damaged(&error))?;
    Ok(())
}

fn damaged(detail: &(impl ToString + ?Sized)) -> CompressionError {
    Codec::Snappy.damaged(detail)
}
