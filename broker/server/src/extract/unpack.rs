//! Streaming decompression in bounded steps: gzip (RFC 1952, also several members) and zstd (RFC 8878, several frames).

use std::io::{self, Write};

use bytes::BytesMut;
use flate2::write::MultiGzDecoder;
use levada_model::limits::ZSTD_WINDOW_LOG_MAX;
use zstd::stream::raw::{Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

/// A Content-Encoding that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Gzip,
    Zstd,
}

/// The packed bytes are not what they say, or end early.
#[derive(Debug)]
pub(crate) struct Damaged(pub(crate) String);

impl From<io::Error> for Damaged {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Unpacks a stream; its own memory is bounded by the codec's window.
pub(crate) enum Unpacker {
    Gzip(Box<MultiGzDecoder<Room>>),
    Zstd { decoder: ZstdDecoder<'static>, frame_done: bool },
}

impl Unpacker {
    pub(crate) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(Room::default()))),
            Encoding::Zstd => {
                let mut decoder = ZstdDecoder::new().expect("a decoder needs nothing but memory");
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX);
                decoder.set_parameter(window).expect("the limit is within zstd's bounds");
                Self::Zstd { decoder, frame_done: false }
            }
        }
    }

    /// Takes from `wire` and appends at most `room` bytes to `out`. Gives whether there is more to come from what was
    /// taken already; call again then, also with an empty `wire`.
    pub(crate) fn step(&mut self, wire: &mut &[u8], out: &mut BytesMut, room: usize) -> Result<bool, Damaged> {
        match self {
            Self::Gzip(decoder) => step_gzip(decoder, wire, out, room),
            Self::Zstd { decoder, frame_done } => {
                let start = out.len();
                out.resize(start + room, 0);
                let mut input = InBuffer::around(wire);
                let mut output = OutBuffer::around(&mut out[start..]);
                let hint = decoder.run(&mut input, &mut output)?;
                let (taken, given) = (input.pos(), output.pos());
                // An empty step at the end of a frame would be taken for the start of a next one.
                if taken > 0 || given > 0 {
                    *frame_done = hint == 0;
                }
                out.truncate(start + given);
                *wire = &wire[taken..];
                Ok(given == room && !*frame_done)
            }
        }
    }

    /// Says whether the stream ended where it should.
    pub(crate) fn finish(&mut self) -> Result<(), Damaged> {
        match self {
            Self::Gzip(decoder) => Ok(decoder.try_finish()?),
            Self::Zstd { frame_done: true, .. } => Ok(()),
            Self::Zstd { .. } => Err(Damaged("it ends early".to_owned())),
        }
    }
}

fn step_gzip(
    decoder: &mut MultiGzDecoder<Room>,
    wire: &mut &[u8],
    out: &mut BytesMut,
    room: usize,
) -> Result<bool, Damaged> {
    decoder.get_mut().left = room;
    let full = loop {
        let turn = if wire.is_empty() { decoder.flush().map(|()| 0) } else { decoder.write(wire) };
        match turn {
            Ok(0) if wire.is_empty() => break false,
            Ok(taken) => *wire = &wire[taken..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
            Err(error) => return Err(error.into()),
        }
    };
    out.unsplit(std::mem::take(&mut decoder.get_mut().bytes));
    Ok(full)
}

/// A sink that takes so much and then would block.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: BytesMut,
    left: usize,
}

impl Write for Room {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.left == 0 && !data.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = data.len().min(self.left);
        self.bytes.extend_from_slice(&data[..taken]);
        self.left -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(data).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn pack(encoding: Encoding, data: &[u8]) -> Vec<u8> {
        match encoding {
            Encoding::Gzip => gzip(data),
            Encoding::Zstd => zstd::encode_all(data, 1).expect("in memory"),
        }
    }

    /// Feeds `wire` in pieces of `feed` bytes and takes at most `room` a step.
    fn unpack(encoding: Encoding, wire: &[u8], feed: usize, room: usize) -> Result<Vec<u8>, Damaged> {
        let mut unpacker = Unpacker::new(encoding);
        let mut out = Vec::new();
        for mut piece in wire.chunks(feed) {
            loop {
                let mut step = BytesMut::new();
                let more = unpacker.step(&mut piece, &mut step, room)?;
                assert!(step.len() <= room, "a step keeps to its room");
                out.extend_from_slice(&step);
                if piece.is_empty() && !more {
                    break;
                }
            }
        }
        unpacker.finish()?;
        Ok(out)
    }

    proptest! {
        #[test]
        fn any_split_unpacks_to_the_same_and_a_cut_is_found(
            data in proptest::collection::vec(0_u8..4, 0..5000), feed in 1_usize..700, room in 1_usize..700,
            zstd: bool, members in 1_usize..3, cut in 1_usize..30,
        ) {
            let encoding = if zstd { Encoding::Zstd } else { Encoding::Gzip };
            let wire = pack(encoding, &data).repeat(members);
            prop_assert_eq!(unpack(encoding, &wire, feed, room).expect("valid"), data.repeat(members));
            let cut = cut.min(pack(encoding, &data).len() - 1);
            prop_assert!(unpack(encoding, &wire[..wire.len() - cut], feed, room).is_err());
        }
    }

    #[test]
    fn a_zstd_frame_that_declares_a_huge_window_is_refused() {
        // RFC 8878 §3.1.1: no single segment, window descriptor 19 << 3 declares 2^29 bytes.
        let wire = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 19 << 3, 0x01, 0x00, 0x00];
        let error = unpack(Encoding::Zstd, &wire, 100, 100).expect_err("the window is refused").0;
        assert!(error.contains("memory"), "{error}");
    }
}
