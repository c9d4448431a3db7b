//! Reads a layout from its start to its end.

use thiserror::Error;

use super::LAYOUT_VERSION;

/// Bytes that are not what the contract says. A module sees none from a broker; its tests may.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {at}: {detail}")]
pub struct LayoutError {
    /// Where.
    pub at: usize,
    /// What is wrong there.
    pub detail: &'static str,
}

/// A header: its name, and bytes or null.
pub(crate) type Header<'a> = (&'a str, Option<&'a [u8]>);

/// What is left of a layout.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads the version too.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let mut reader = Self { bytes, at: 0 };
        match reader.array()? {
            [LAYOUT_VERSION] => Ok(reader),
            _ => Err(LayoutError { at: 0, detail: "not the layout version that the module declared" }),
        }
    }

    /// That nothing is left.
    pub(super) fn close(&self) -> Result<(), LayoutError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.error("something follows the last item")) }
    }

    pub(super) fn error(&self, detail: &'static str) -> LayoutError {
        LayoutError { at: self.at, detail }
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], LayoutError> {
        let array = self.bytes[self.at..].first_chunk::<N>();
        let array = array.ok_or_else(|| self.error("it ends too early"))?;
        self.at += N;
        Ok(*array)
    }

    pub(super) fn u32(&mut self) -> Result<u32, LayoutError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, LayoutError> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, LayoutError> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], LayoutError> {
        let taken = self.bytes[self.at..].get(..length);
        let taken = taken.ok_or_else(|| self.error("a length goes beyond the end"))?;
        self.at += length;
        Ok(taken)
    }

    pub(super) fn text(&mut self, length: usize) -> Result<&'a str, LayoutError> {
        let at = self.at;
        std::str::from_utf8(self.take(length)?).map_err(|_| LayoutError { at, detail: "not UTF-8" })
    }

    /// Bytes behind a u32 length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], LayoutError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// Bytes behind an i32 length, of which -1 is null.
    #[inline]
    pub(super) fn nullable(&mut self) -> Result<Option<&'a [u8]>, LayoutError> {
        match self.array().map(i32::from_le_bytes)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.take(length).map(Some),
                Err(_) => Err(self.error("a negative length")),
            },
        }
    }

    /// Headers of which each has a u32 length of its name, and an i32 length of its value.
    pub(super) fn headers(&mut self) -> Result<Vec<Header<'a>>, LayoutError> {
        let count = self.u32()?;
        let mut headers = Vec::new();
        for _ in 0..count {
            let length = self.u32()? as usize;
            headers.push((self.text(length)?, self.nullable()?));
        }
        Ok(headers)
    }
}

/// A length as the layouts write it.
pub(super) fn len_u32(length: usize) -> u32 {
    u32::try_from(length).expect("a module's memory is smaller than 4 GiB")
}

/// Writes bytes behind their u32 length.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&len_u32(part.len()).to_le_bytes());
    bytes.extend_from_slice(part);
}

/// Writes bytes behind their i32 length, -1 for null.
pub(super) fn put_nullable(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(-1, |part| i32::try_from(part.len()).expect("a part is smaller than 2 GiB"));
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

/// Writes headers.
pub(super) fn put_headers<N: AsRef<str>, V: AsRef<[u8]>>(bytes: &mut Vec<u8>, headers: &[(N, Option<V>)]) {
    bytes.extend_from_slice(&len_u32(headers.len()).to_le_bytes());
    for (name, value) in headers {
        put_bytes(bytes, name.as_ref().as_bytes());
        put_nullable(bytes, value.as_ref().map(AsRef::as_ref));
    }
}
