//! The verdicts layout, and the check of verdicts however they came.

use bytes::Bytes;
use levada_model::{Header, Timestamp, limits::RECORD_HEADERS_MAX};

use super::reader::Reader;
use super::{AnswerError, AnswerLimits};
use crate::{EmittedRecord, Part, Verdict, Verdicts};

const DROP: u8 = 0;
const PASS: u8 = 1;
const EMIT: u8 = 2;
const REJECT: u8 = 3;

/// Reads and checks a verdict for each of `records` records. What is given in the answer shares its bytes.
///
/// # Errors
/// What is wrong first.
pub fn decode_verdicts(answer: Bytes, records: usize, limits: &AnswerLimits) -> Result<Vec<Verdict>, AnswerError> {
    let mut reader = Reader::open(answer, records, limits)?;
    let mut verdicts = Vec::with_capacity(records);
    let mut emitted = 0;
    for item in 0..records {
        reader.item = item;
        let verdict = match reader.byte("verdict")? {
            DROP => Verdict::Drop,
            PASS => Verdict::Pass,
            EMIT => Verdict::Emit(emitted_records(&mut reader, &mut emitted, limits)?),
            REJECT => Verdict::Reject(reader.text("reason")?),
            code => return Err(AnswerError::Unknown { item, part: "verdict", code }),
        };
        check_verdict(item, &verdict, limits)?;
        verdicts.push(verdict);
    }
    reader.close()?;
    Ok(verdicts)
}

/// Checks verdicts that did not come as bytes.
///
/// # Errors
/// What is wrong first.
pub fn check_verdicts(verdicts: &Verdicts, records: usize, limits: &AnswerLimits) -> Result<(), AnswerError> {
    match verdicts {
        Verdicts::Keep(places) => check_places(places, records),
        Verdicts::Each(each) if each.len() != records => Err(AnswerError::Count { expected: records, got: each.len() }),
        Verdicts::Each(each) => {
            let mut emitted = 0;
            each.iter().enumerate().try_for_each(|(item, verdict)| {
                if let Verdict::Emit(records) = verdict {
                    emitted += records.len();
                    at_most(item, "records in all", emitted, limits.emitted_in_all_max)?;
                }
                check_verdict(item, verdict, limits)
            })
        }
    }
}

fn check_places(places: &[u32], records: usize) -> Result<(), AnswerError> {
    let mut before = None;
    for (item, place) in places.iter().copied().enumerate() {
        if let Some(before) = before.filter(|before| *before >= place) {
            return Err(AnswerError::Order { item, place, before });
        }
        if place as usize >= records {
            return Err(AnswerError::OutOfRange { item, place, records });
        }
        before = Some(place);
    }
    Ok(())
}

fn check_verdict(item: usize, verdict: &Verdict, limits: &AnswerLimits) -> Result<(), AnswerError> {
    match verdict {
        Verdict::Pass | Verdict::Drop => Ok(()),
        Verdict::Reject(reason) => at_most(item, "bytes of reason", reason.len(), limits.reason_bytes_max),
        Verdict::Emit(records) => {
            at_most(item, "records", records.len(), limits.emitted_records_max)?;
            records.iter().try_for_each(|record| {
                if let Part::Given(headers) = &record.headers {
                    at_most(item, "headers", headers.len(), RECORD_HEADERS_MAX)?;
                }
                at_most(item, "bytes of a record", record.given_bytes(), limits.record_bytes_max)
            })
        }
    }
}

pub(super) fn at_most(item: usize, part: &'static str, got: usize, max: usize) -> Result<(), AnswerError> {
    match got > max {
        true => Err(AnswerError::TooMany { item, part, got, max }),
        false => Ok(()),
    }
}

/// Reads no more of them than there may be: one takes a byte here and a hundred in memory.
fn emitted_records(
    reader: &mut Reader,
    in_all: &mut usize,
    limits: &AnswerLimits,
) -> Result<Vec<EmittedRecord>, AnswerError> {
    let got = reader.count("record count")?;
    at_most(reader.item, "records", got, limits.emitted_records_max)?;
    *in_all += got;
    at_most(reader.item, "records in all", *in_all, limits.emitted_in_all_max)?;
    (0..got).map(|_| emitted_record(reader)).collect()
}

fn emitted_record(reader: &mut Reader) -> Result<EmittedRecord, AnswerError> {
    let sources = reader.byte("sources")?;
    let [key, value, headers, timestamp] = [0, 2, 4, 6].map(|shift| (sources >> shift) & 3);
    if [key, value, headers, timestamp].contains(&3) || timestamp == 0 {
        return Err(AnswerError::Unknown { item: reader.item, part: "source of parts", code: sources });
    }
    let timestamp = match timestamp {
        1 => Part::Given(Timestamp(reader.i64("timestamp")?)),
        _ => Part::Input,
    };
    let key = nullable_part(reader, key, "key")?;
    let value = nullable_part(reader, value, "value")?;
    let headers = match headers {
        0 => Part::Given(Vec::new()),
        1 => Part::Given(given_headers(reader)?),
        _ => Part::Input,
    };
    Ok(EmittedRecord { key, value, headers, timestamp })
}

fn nullable_part(reader: &mut Reader, source: u8, part: &'static str) -> Result<Part<Option<Bytes>>, AnswerError> {
    Ok(match source {
        0 => Part::Given(None),
        1 => Part::Given(Some(reader.bytes(part)?)),
        _ => Part::Input,
    })
}

fn given_headers(reader: &mut Reader) -> Result<Vec<Header>, AnswerError> {
    let got = reader.count("header count")?;
    at_most(reader.item, "headers", got, RECORD_HEADERS_MAX)?;
    let mut headers = Vec::new();
    for _ in 0..got {
        headers.push(Header { name: reader.text("header name")?, value: reader.nullable("header value")? });
    }
    Ok(headers)
}
