//! The four codecs of a batch's records, with Kafka's framing of snappy, each bounded when it unpacks.
//!
//! Nothing here allocates by a size that a stream declares: output grows with what truly comes out. The exceptions are
//! bounded by constants: a zstd window (`limits::ZSTD_WINDOW_LOG_MAX`) and an LZ4 block (4 MiB by its format).

mod snappy;

use std::io::{self, Read, Write};

use bytes::buf::Writer;
use bytes::{BufMut, BytesMut};
use levada_model::{Compression, limits};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use thiserror::Error;

/// Why records could not be packed or unpacked.
#[derive(Debug, Error)]
pub enum CompressionError {
    /// The stream is damaged.
    #[error("{codec} stream is damaged: {detail}")]
    Damaged {
        /// The codec.
        codec: &'static str,
        /// What the codec says.
        detail: String,
    },
    /// It unpacks to more than the limit, or asks for a larger window.
    #[error("{codec} stream needs more than {limit_bytes} bytes to unpack")]
    TooLarge {
        /// The codec.
        codec: &'static str,
        /// The limit in force.
        limit_bytes: usize,
    },
}

/// What an LZ4 frame starts with. Kafka knows neither the legacy frames nor the skippable ones.
const LZ4_MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
/// Room that unpacked records get at least.
const ROOM_BYTES_MIN: usize = 1 << 10;
/// What zstd says of a window above the limit; it has no error kind of its own.
const ZSTD_WINDOW_ERROR: &str = "Frame requires too much memory for decoding";

/// How records are packed, where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// None where records lie unpacked.
    pub(super) fn of(compression: Compression) -> Option<Self> {
        match compression {
            Compression::None => None,
            Compression::Gzip => Some(Self::Gzip),
            Compression::Snappy => Some(Self::Snappy),
            Compression::Lz4 => Some(Self::Lz4),
            Compression::Zstd => Some(Self::Zstd),
        }
    }

    /// Packs what lies behind the first `room_bytes` of `bytes`, behind the same room.
    pub(super) fn pack(self, bytes: &[u8], room_bytes: usize) -> Result<BytesMut, CompressionError> {
        let (room, records) = bytes.split_at(room_bytes);
        let mut packed = BytesMut::with_capacity(room_bytes + records.len() / 2);
        packed.put_slice(room);
        let packed = packed.writer();
        let result = match self {
            Self::Gzip => pack_gzip(packed, records),
            Self::Snappy => snappy::pack(packed, records),
            Self::Lz4 => pack_lz4(packed, records),
            Self::Zstd => pack_zstd(packed, records),
        };
        result.map(Writer::into_inner).map_err(|error| self.damaged(&error))
    }

    /// Unpacks at most `limit_bytes`. All of `packed` must belong to the stream.
    pub(super) fn unpack(self, packed: &[u8], limit_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        match self {
            // Members may follow one another, as RFC 1952 says and Java's reader takes.
            Self::Gzip => self.read_bounded(flate2::bufread::MultiGzDecoder::new(packed), packed.len(), limit_bytes),
            Self::Snappy => snappy::unpack(packed, limit_bytes),
            Self::Lz4 => self.unpack_lz4(packed, limit_bytes),
            Self::Zstd => self.unpack_zstd(packed, limit_bytes),
        }
    }

    fn unpack_lz4(self, packed: &[u8], limit_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        if !packed.starts_with(&LZ4_MAGIC) {
            return Err(self.damaged("it does not start as a frame"));
        }
        let mut decoder = FrameDecoder::new(packed);
        let unpacked = self.read_bounded(&mut decoder, packed.len(), limit_bytes)?;
        match decoder.get_ref().len() {
            0 => Ok(unpacked),
            left => Err(self.damaged(&format!("{left} bytes lie behind the frame"))),
        }
    }

    fn unpack_zstd(self, packed: &[u8], limit_bytes: usize) -> Result<Vec<u8>, CompressionError> {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|error| self.damaged(&error))?;
        decoder.window_log_max(limits::ZSTD_WINDOW_LOG_MAX).map_err(|error| self.damaged(&error))?;
        self.read_bounded(decoder, packed.len(), limit_bytes).map_err(|error| match error {
            CompressionError::Damaged { codec, detail } if detail == ZSTD_WINDOW_ERROR => {
                CompressionError::TooLarge { codec, limit_bytes: 1 << limits::ZSTD_WINDOW_LOG_MAX }
            }
            other => other,
        })
    }

    /// Reads all that `reader` gives, and stops one byte above the limit. Room is doubled as it fills, and never goes
    /// beyond that byte.
    fn read_bounded(
        self,
        mut reader: impl Read,
        packed_bytes: usize,
        limit_bytes: usize,
    ) -> Result<Vec<u8>, CompressionError> {
        let most = limit_bytes.saturating_add(1);
        let mut unpacked = Vec::with_capacity(packed_bytes.min(most));
        loop {
            let room = unpacked.capacity() - unpacked.len();
            let read = reader.by_ref().take(room as u64).read_to_end(&mut unpacked);
            let ended = read.map_err(|error| self.damaged(&error))? < room;
            if unpacked.len() > limit_bytes {
                return Err(CompressionError::TooLarge { codec: self.name(), limit_bytes });
            }
            if ended {
                return Ok(unpacked);
            }
            unpacked.reserve_exact(unpacked.len().max(ROOM_BYTES_MIN).min(most - unpacked.len()));
        }
    }

    fn damaged(self, detail: &(impl ToString + ?Sized)) -> CompressionError {
        CompressionError::Damaged { codec: self.name(), detail: detail.to_string() }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

type Packed = Writer<BytesMut>;

fn pack_gzip(packed: Packed, records: &[u8]) -> io::Result<Packed> {
    let mut encoder = flate2::write::GzEncoder::new(packed, flate2::Compression::default());
    encoder.write_all(records)?;
    encoder.finish()
}

fn pack_lz4(packed: Packed, records: &[u8]) -> io::Result<Packed> {
    // Kafka's Java reader takes independent blocks only.
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, packed);
    encoder.write_all(records)?;
    Ok(encoder.finish()?)
}

fn pack_zstd(packed: Packed, records: &[u8]) -> io::Result<Packed> {
    let mut encoder = zstd::stream::write::Encoder::new(packed, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    encoder.write_all(records)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn packed(codec: Codec, bytes: &[u8]) -> BytesMut {
        codec.pack(bytes, 0).expect("packs into memory")
    }

    fn sample(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * n / 7) as u8).collect()
    }

    #[test]
    fn what_is_packed_comes_out_at_exactly_the_limit_and_not_below_it() {
        for codec in ALL {
            for len in [1, 100, 32 << 10, (32 << 10) + 1, 300_000] {
                let bytes = sample(len);
                let packed = packed(codec, &bytes);
                assert_eq!(codec.unpack(&packed, len).expect("within the limit"), bytes, "{codec:?} {len}");
                let error = codec.unpack(&packed, len - 1).expect_err("above the limit");
                let limit = len - 1;
                assert!(
                    matches!(error, CompressionError::TooLarge { limit_bytes, .. } if limit_bytes == limit),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn the_room_in_front_is_kept() {
        for codec in ALL {
            let all = codec.pack(b"roomrecords", 4).expect("packs into memory");
            assert_eq!(&all[..4], b"room");
            assert_eq!(codec.unpack(&all[4..], 100).expect("unpacks"), b"records");
        }
    }

    #[test]
    fn bytes_behind_the_stream_are_damage() {
        for codec in ALL {
            let mut packed = packed(codec, &sample(1000));
            packed.put_slice(b"more");
            let error = codec.unpack(&packed, 10_000).expect_err("something is left over");
            assert!(matches!(error, CompressionError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn snappy_is_written_in_kafkas_framing_and_read_with_and_without_it() {
        let bytes = sample(70_000);
        let framed = packed(Codec::Snappy, &bytes);
        // SnappyOutputStream's header: magic, version 1, oldest version that can read it 1.
        assert_eq!(&framed[..16], b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
        assert_eq!(Codec::Snappy.unpack(&framed, bytes.len()).expect("framed"), bytes);
        let plain = snap::raw::Encoder::new().compress_vec(&bytes).expect("packs");
        assert_eq!(Codec::Snappy.unpack(&plain, bytes.len()).expect("plain"), bytes);
    }

    #[test]
    fn a_snappy_block_that_declares_more_than_it_can_hold_is_refused_unread() {
        // The declared length is a varint: 2^32 - 1, then 100 million, which a limit alone would allow.
        for lie in [&b"\xff\xff\xff\xff\x0f\0a"[..], b"\x80\xc2\xd7\x2f\0a"] {
            let error = Codec::Snappy.unpack(lie, limits::BATCH_BYTES_MAX).expect_err("a lie");
            assert!(matches!(error, CompressionError::Damaged { .. }), "{error}");
        }
        let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
        framed.extend_from_slice(b"\x7f\xff\xff\xff\x01\0a");
        let error = Codec::Snappy.unpack(&framed, limits::BATCH_BYTES_MAX).expect_err("a lie");
        assert!(matches!(error, CompressionError::Damaged { .. }), "{error}");
    }

    #[test]
    fn lz4_is_written_with_independent_blocks_of_64_kib_as_kafkas_java_reader_needs() {
        let framed = packed(Codec::Lz4, &sample(200_000));
        assert_eq!(&framed[..4], &LZ4_MAGIC);
        let (flags, block) = (framed[4], framed[5]);
        assert_eq!(flags & 0b1110_0000, 0b0110_0000, "version 1, independent blocks");
        assert_eq!(block >> 4, 4, "64 KiB");
    }

    #[test]
    fn a_zstd_window_above_the_limit_is_refused_before_it_is_allocated() {
        // Frame head: magic, no single segment, window descriptor 2^(10 + 19) = 512 MiB.
        let frame = b"\x28\xb5\x2f\xfd\0\x98\x01\0\0";
        let error = Codec::Zstd.unpack(frame, limits::BATCH_BYTES_MAX).expect_err("too large a window");
        assert!(matches!(error, CompressionError::TooLarge { limit_bytes: 0x80_0000, .. }), "{error}");
    }

    #[test]
    fn the_largest_allowed_zstd_window_is_read() {
        // Window descriptor 2^(10 + 13) = 8 MiB, then one raw last block of one byte.
        let frame = b"\x28\xb5\x2f\xfd\0\x68\x09\0\0x";
        assert_eq!(Codec::Zstd.unpack(frame, 10).expect("8 MiB"), b"x");
    }
}
