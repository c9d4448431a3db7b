//! The value of a committed offset in `__consumer_offsets`. See `broker/docs/formats/consumer-offsets.md`.

use bytes::{Buf, BufMut, Bytes};
use levada_model::{LeaderEpoch, Offset, Timestamp};

const VERSION: u8 = 1;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetValue {
    /// Next to read.
    pub(crate) offset: Offset,
    /// The partition's leader epoch at the commit.
    pub(crate) leader_epoch: LeaderEpoch,
    /// When it was committed.
    pub(crate) committed_at: Timestamp,
    /// A consumer's own note; empty for commits over HTTP.
    pub(crate) metadata: String,
}

impl OffsetValue {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(1 + 8 + 4 + 8 + 4 + self.metadata.len());
        bytes.put_u8(VERSION);
        bytes.put_u64(self.offset.0);
        bytes.put_i32(self.leader_epoch.0);
        bytes.put_i64(self.committed_at.0);
        bytes.put_u32(u32::try_from(self.metadata.len()).expect("bounded by the largest record"));
        bytes.put_slice(self.metadata.as_bytes());
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let cut = |_| "the value is cut off".to_owned();
        let version = bytes.try_get_u8().map_err(cut)?;
        if version != VERSION {
            return Err(format!("value version {version} is not known here"));
        }
        let offset = Offset(bytes.try_get_u64().map_err(cut)?);
        let leader_epoch = LeaderEpoch(bytes.try_get_i32().map_err(cut)?);
        let committed_at = Timestamp(bytes.try_get_i64().map_err(cut)?);
        let len = bytes.try_get_u32().map_err(cut)? as usize;
        if bytes.len() != len {
            return Err(format!("{} bytes of metadata are there, {len} are declared", bytes.len()));
        }
        let metadata = std::str::from_utf8(bytes).map_err(|error| error.to_string())?.to_owned();
        Ok(Self { offset, leader_epoch, committed_at, metadata })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(offset: u64, epoch: i32, at: i64, metadata in ".{0,40}") {
            let value = OffsetValue {
                offset: Offset(offset),
                leader_epoch: LeaderEpoch(epoch),
                committed_at: Timestamp(at),
                metadata,
            };
            assert_eq!(OffsetValue::decode(&value.encode()), Ok(value));
        }

        #[test]
        fn no_bytes_stop_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            drop(OffsetValue::decode(&bytes));
        }
    }
}
