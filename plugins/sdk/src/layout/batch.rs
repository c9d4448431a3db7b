//! The batch layout, and the records in it.

use serde::Deserialize;

use super::reader::{Header, LayoutError, Reader, len_u32};
use super::{LAYOUT_VERSION, varint};
use crate::{Call, Fields, Pointer};

/// A batch; its sections are looked at one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) call: Call,
    section_count: u32,
    sections: Reader<'a>,
}

/// A record that the broker hands over.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its partition.
    pub partition: u32,
    /// Its offset; when records are validated before they are stored, it counts from 0.
    pub offset: u64,
    /// Its time, in milliseconds since 1970 (UTC).
    pub timestamp_ms: i64,
    /// Its key, or none.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The clock and the randomness of this call.
    pub call: Call,
    /// Header count and headers, as they lie there.
    header_bytes: &'a [u8],
}

/// The headers of a record in order: each a name, and bytes or null.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    at: usize,
    left: i64,
}

impl<'a> Record<'a> {
    /// Its value, read from JSON. Borrowed fields (`&str`) borrow from the record.
    ///
    /// # Errors
    /// When the value is none, is not JSON, or is not of this type.
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.value.unwrap_or_default())
    }

    /// What stands at `pointer` in its value, or none; the rest of the value is only checked to be JSON.
    ///
    /// # Errors
    /// When the value is none, is not JSON, or what stands there is not of this type.
    pub fn json_at<T: Deserialize<'a>>(&self, pointer: &Pointer) -> Result<Option<T>, serde_json::Error> {
        pointer.find(self.value.unwrap_or_default())
    }

    /// Its headers. There are none where [`Module::FIELDS`](crate::Module::FIELDS) does not name them.
    pub fn headers(&self) -> Headers<'a> {
        let mut at = 0;
        let left = varint::take(self.header_bytes, &mut at).unwrap_or(0);
        Headers { bytes: self.header_bytes, at, left }
    }

    /// The value of its first header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(own, _)| *own == name).and_then(|(_, value)| value)
    }

    /// A random number that is this record's, and the same when the broker shows it again in the same call.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.call.random(self.offset ^ (u64::from(self.partition) << 40))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1).filter(|left| *left >= 0)?;
        let name = varint::take_part(self.bytes, &mut self.at)??;
        Some((std::str::from_utf8(name).ok()?, varint::take_part(self.bytes, &mut self.at)?))
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let mut reader = Reader::open(bytes)?;
        let [parts, ..] = reader.array::<3>()?;
        if parts > 7 {
            return Err(LayoutError { at: 1, detail: "an unknown part" });
        }
        let section_count = reader.u32()?;
        let call = Call { time_ms: reader.i64()?, seed: reader.u64()? };
        Ok(Self { call, section_count, sections: reader })
    }

    /// Shows every record in order.
    pub(crate) fn each(&self, mut show: impl FnMut(&Record<'a>)) -> Result<(), LayoutError> {
        let mut sections = self.sections.clone();
        for _ in 0..self.section_count {
            Section::read(&mut sections, self.call)?.each(&mut show)?;
        }
        sections.close()
    }

    /// All records, for whoever goes to and fro.
    pub(crate) fn records(&self) -> Result<Vec<Record<'a>>, LayoutError> {
        let mut records = Vec::new();
        self.each(|record| records.push(*record))?;
        Ok(records)
    }
}

/// Records of one partition that follow one another.
struct Section<'a> {
    base: Record<'a>,
    append_time: bool,
    record_count: u32,
    records: &'a [u8],
    error: LayoutError,
}

impl<'a> Section<'a> {
    fn read(reader: &mut Reader<'a>, call: Call) -> Result<Self, LayoutError> {
        let offset = reader.u64()?;
        let timestamp_ms = reader.i64()?;
        let partition = reader.u32()?;
        let record_count = reader.u32()?;
        let records_length = reader.u32()? as usize;
        let [timestamp_type, _] = reader.array()?;
        if timestamp_type > 1 {
            return Err(reader.error("an unknown timestamp type"));
        }
        let topic_length = u16::from_le_bytes(reader.array()?);
        reader.array::<8>()?;
        let topic = reader.text(topic_length.into())?;
        let error = reader.error("the records behind this are malformed");
        let records = reader.take(records_length)?;
        let base = Record { topic, partition, offset, timestamp_ms, key: None, value: None, call, header_bytes: &[] };
        Ok(Self { base, append_time: timestamp_type == 1, record_count, records, error })
    }

    fn each(&self, show: &mut impl FnMut(&Record<'a>)) -> Result<(), LayoutError> {
        let mut at = 0;
        for _ in 0..self.record_count {
            let record = self.record(&mut at).ok_or_else(|| self.error.clone())?;
            show(&record);
        }
        if at == self.records.len() { Ok(()) } else { Err(self.error.clone()) }
    }

    #[inline]
    fn record(&self, at: &mut usize) -> Option<Record<'a>> {
        let length = usize::try_from(varint::take(self.records, at)?).ok()?;
        let end = at.checked_add(length).filter(|end| *end <= self.records.len())?;
        let body = &self.records[..end];
        let mut place = *at + 1;
        *at = end;
        let timestamp_delta = varint::take(body, &mut place)?;
        let offset_delta = varint::take(body, &mut place)?;
        let key = varint::take_part(body, &mut place)?;
        let value = varint::take_part(body, &mut place)?;
        let timestamp_delta = if self.append_time { 0 } else { timestamp_delta };
        Some(Record {
            offset: self.base.offset.checked_add_signed(offset_delta)?,
            timestamp_ms: self.base.timestamp_ms.wrapping_add(timestamp_delta),
            key,
            value,
            header_bytes: body.get(place..)?,
            ..self.base
        })
    }
}

/// Where the records of a section are from, for whoever writes batches: the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: u32,
    pub(crate) base_offset: u64,
    pub(crate) base_timestamp_ms: i64,
    pub(crate) append_time: bool,
}

/// A record for a section: offset, timestamp delta, key, value, headers.
pub(crate) type Plain<'a> = (u64, i64, Option<&'a [u8]>, Option<&'a [u8]>, Vec<Header<'a>>);

impl Batch<'_> {
    /// The head of a batch, behind which its sections are written.
    pub(crate) fn head(call: Call, fields: Fields, section_count: usize) -> Vec<u8> {
        let parts = fields & (Fields::KEY | Fields::VALUE | Fields::HEADERS);
        let mut bytes = vec![LAYOUT_VERSION, parts.bits(), 0, 0];
        bytes.extend_from_slice(&len_u32(section_count).to_le_bytes());
        bytes.extend_from_slice(&call.time_ms.to_le_bytes());
        bytes.extend_from_slice(&call.seed.to_le_bytes());
        bytes
    }
}

/// Writes a section.
pub(crate) fn put_section(bytes: &mut Vec<u8>, place: &Place<'_>, records: &[Plain<'_>]) {
    let mut section = Vec::new();
    for (offset, timestamp_delta, key, value, headers) in records {
        let mut body = vec![0];
        varint::put(&mut body, *timestamp_delta);
        varint::put(&mut body, offset.wrapping_sub(place.base_offset).cast_signed());
        varint::put_part(&mut body, *key);
        varint::put_part(&mut body, *value);
        varint::put(&mut body, len_u32(headers.len()).into());
        for (name, value) in headers {
            varint::put_part(&mut body, Some(name.as_bytes()));
            varint::put_part(&mut body, *value);
        }
        varint::put_part(&mut section, Some(&body));
    }
    bytes.extend_from_slice(&place.base_offset.to_le_bytes());
    bytes.extend_from_slice(&place.base_timestamp_ms.to_le_bytes());
    bytes.extend_from_slice(&place.partition.to_le_bytes());
    bytes.extend_from_slice(&len_u32(records.len()).to_le_bytes());
    bytes.extend_from_slice(&len_u32(section.len()).to_le_bytes());
    bytes.extend_from_slice(&[place.append_time.into(), 0]);
    let topic_length = u16::try_from(place.topic.len()).expect("the names of topics are short");
    bytes.extend_from_slice(&topic_length.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(place.topic.as_bytes());
    bytes.extend_from_slice(&section);
}
