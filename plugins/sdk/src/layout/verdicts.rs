//! The verdicts layout.

use super::LAYOUT_VERSION;
use super::reader::{LayoutError, Reader, len_u32, put_bytes, put_headers};
use crate::transform::{Emitted, Source, Verdict};

const DROP: u8 = 0;
const PASS: u8 = 1;
const EMIT: u8 = 2;
const REJECT: u8 = 3;

/// Writes verdicts one after the other.
pub(crate) struct VerdictWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl VerdictWriter {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![LAYOUT_VERSION, 0, 0, 0, 0, 0, 0, 0], count: 0 }
    }

    pub(crate) fn put(&mut self, verdict: &Verdict) {
        self.count += 1;
        match verdict {
            Verdict::Drop => self.bytes.push(DROP),
            Verdict::Pass => self.bytes.push(PASS),
            Verdict::Replace(record) => self.emit(std::slice::from_ref(record)),
            Verdict::Emit(records) => self.emit(records),
            Verdict::Reject(reason) => {
                self.bytes.push(REJECT);
                put_bytes(&mut self.bytes, reason.as_bytes());
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes[4..8].copy_from_slice(&len_u32(self.count).to_le_bytes());
        self.bytes
    }

    fn emit(&mut self, records: &[Emitted]) {
        self.bytes.push(EMIT);
        self.bytes.extend_from_slice(&len_u32(records.len()).to_le_bytes());
        records.iter().for_each(|record| self.record(record));
    }

    fn record(&mut self, record: &Emitted) {
        let nullable = |part: &Source<Option<Vec<u8>>>| match part {
            Source::Given(None) => 0,
            Source::Given(Some(_)) => 1,
            Source::Input => 2,
        };
        let headers = match &record.headers {
            Source::Given(headers) if headers.is_empty() => 0,
            Source::Given(_) => 1,
            Source::Input => 2,
        };
        let timestamp = match record.timestamp_ms {
            Source::Given(_) => 1,
            Source::Input => 2,
        };
        let bytes = &mut self.bytes;
        bytes.push(nullable(&record.key) | nullable(&record.value) << 2 | headers << 4 | timestamp << 6);
        if let Source::Given(timestamp_ms) = record.timestamp_ms {
            bytes.extend_from_slice(&timestamp_ms.to_le_bytes());
        }
        for part in [&record.key, &record.value] {
            if let Source::Given(Some(part)) = part {
                put_bytes(bytes, part);
            }
        }
        if let Source::Given(headers) = &record.headers
            && !headers.is_empty()
        {
            put_headers(bytes, headers);
        }
    }
}

/// Reads verdicts back, for the tests.
pub(crate) fn decode_verdicts(bytes: &[u8]) -> Result<Vec<Verdict>, LayoutError> {
    let mut reader = Reader::open(bytes)?;
    reader.array::<3>()?;
    let count = reader.u32()?;
    let mut verdicts = Vec::new();
    for _ in 0..count {
        let [kind] = reader.array()?;
        verdicts.push(match kind {
            DROP => Verdict::Drop,
            PASS => Verdict::Pass,
            EMIT => {
                let count = reader.u32()?;
                Verdict::Emit((0..count).map(|_| emitted(&mut reader)).collect::<Result<_, _>>()?)
            }
            REJECT => {
                let length = reader.u32()? as usize;
                Verdict::Reject(reader.text(length)?.to_owned())
            }
            _ => return Err(reader.error("an unknown verdict")),
        });
    }
    reader.close()?;
    Ok(verdicts)
}

fn emitted(reader: &mut Reader<'_>) -> Result<Emitted, LayoutError> {
    let [sources] = reader.array()?;
    let source = |shift: u8| (sources >> shift) & 3;
    if [source(0), source(2), source(4), source(6)].contains(&3) || source(6) == 0 {
        return Err(reader.error("an unknown source of a part"));
    }
    let timestamp_ms = if source(6) == 1 { Source::Given(reader.i64()?) } else { Source::Input };
    let mut part = |shift| {
        Ok(match source(shift) {
            0 => Source::Given(None),
            1 => Source::Given(Some(reader.bytes()?.to_vec())),
            _ => Source::Input,
        })
    };
    let (key, value) = (part(0)?, part(2)?);
    let headers = match source(4) {
        0 => Source::Given(Vec::new()),
        1 => {
            let owned = |(name, value): (&str, Option<&[u8]>)| (name.to_owned(), value.map(<[u8]>::to_vec));
            Source::Given(reader.headers()?.into_iter().map(owned).collect())
        }
        _ => Source::Input,
    };
    Ok(Emitted { key, value, headers, timestamp_ms })
}
