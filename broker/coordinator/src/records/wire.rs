//! How numbers and texts lie in a record. Nothing here trusts a declared length.

use bytes::{Buf, BufMut, Bytes};
use levada_model::{GroupName, MemberId};

/// Reads the parts of a key or value one after the other.
pub(crate) struct Reader<'a>(&'a [u8]);

macro_rules! number {
    ($name:ident, $try_get:ident, $type:ty) => {
        pub(crate) fn $name(&mut self) -> Result<$type, String> {
            self.0.$try_get().map_err(|_| CUT.to_owned())
        }
    };
}

const CUT: &str = "it is cut off";

impl<'a> Reader<'a> {
    /// Opens `bytes`, which begin with `version`.
    pub(crate) fn open(bytes: &'a [u8], version: u8) -> Result<Self, String> {
        let mut reader = Self(bytes);
        let found = reader.u8()?;
        if found == version { Ok(reader) } else { Err(format!("version {found} is not known here")) }
    }

    number!(u8, try_get_u8, u8);
    number!(u16, try_get_u16, u16);
    number!(u32, try_get_u32, u32);
    number!(u64, try_get_u64, u64);
    number!(u128, try_get_u128, u128);
    number!(i32, try_get_i32, i32);
    number!(i64, try_get_i64, i64);

    /// `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(CUT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// A text after a length of 2 bytes.
    pub(crate) fn text(&mut self) -> Result<&'a str, String> {
        let len = self.u16()?;
        std::str::from_utf8(self.bytes(len.into())?).map_err(|error| error.to_string())
    }

    /// A name after a length of 2 bytes.
    pub(crate) fn name<T, E: ToString>(&mut self, new: impl FnOnce(&str) -> Result<T, E>) -> Result<T, String> {
        new(self.text()?).map_err(|error| error.to_string())
    }

    /// A name after a length of 2 bytes; none if it is empty.
    pub(crate) fn optional_name<T, E: ToString>(
        &mut self,
        new: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, String> {
        match self.text()? {
            "" => Ok(None),
            text => new(text).map(Some).map_err(|error| error.to_string()),
        }
    }

    /// Nothing may follow.
    pub(crate) fn end(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{} bytes lie behind it", self.0.len())) }
    }
}

/// A text after a length of 2 bytes.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.put_u16(u16::try_from(text.len()).expect("names and notes of a record are short"));
    bytes.put_slice(text.as_bytes());
}

/// The key of a member, of either protocol: the version tells them apart.
pub(super) fn member_key(version: u8, group: &GroupName, member: &MemberId) -> Bytes {
    let mut bytes = vec![version];
    put_text(&mut bytes, group.as_str());
    put_text(&mut bytes, member.as_str());
    bytes.into()
}

/// Reads what [`member_key`] writes.
pub(super) fn read_member_key(bytes: &[u8], version: u8) -> Result<(GroupName, MemberId), String> {
    let mut reader = Reader::open(bytes, version)?;
    let group = reader.name(GroupName::new)?;
    let member = reader.name(MemberId::new)?;
    reader.end()?;
    Ok((group, member))
}
