//! The batch layout: what transforms and aggregators are given.

use levada_model::TimestampType;

use super::{LAYOUT_VERSION, len_u32};
use crate::call::put_raw;
use crate::{CallBatch, Fields, MalformedRecord};

const SECTION_HEAD_BYTES: usize = 40;
/// The parts of a record that a section may lack.
const PARTS: [Fields; 3] = [Fields::KEY, Fields::VALUE, Fields::HEADERS];

impl CallBatch {
    /// The batch as a module that reads `fields` is given it. The record sections go as they lie there, unless the values,
    /// the largest part as a rule, are not wanted: then all records are written anew with no more than what is wanted.
    ///
    /// # Errors
    /// When records must be written anew and one is malformed.
    ///
    /// # Panics
    /// When the sections are larger than 4 GiB.
    pub fn encode(&self, fields: Fields) -> Result<Vec<u8>, MalformedRecord> {
        let all = Fields::KEY | Fields::VALUE | Fields::HEADERS;
        let parts = if fields.contains(Fields::VALUE) { all } else { fields.intersection(all) };
        let rewritten = if parts == all { Vec::new() } else { self.rewrite(parts)? };
        let sizes: usize =
            self.sections.iter().map(|s| SECTION_HEAD_BYTES + s.topic.as_str().len() + s.records.len()).sum();
        let mut bytes = Vec::with_capacity(24 + sizes);
        bytes.extend_from_slice(&[LAYOUT_VERSION, parts.bits(), 0, 0]);
        bytes.extend_from_slice(&len_u32(self.sections.len()).to_le_bytes());
        bytes.extend_from_slice(&self.moment.time.0.to_le_bytes());
        bytes.extend_from_slice(&self.moment.seed.to_le_bytes());
        for (i, section) in self.sections.iter().enumerate() {
            let records = rewritten.get(i).map_or(&section.records[..], |records| &records[..]);
            let topic = section.topic.as_str();
            bytes.extend_from_slice(&section.base_offset.0.to_le_bytes());
            bytes.extend_from_slice(&section.base_timestamp.0.to_le_bytes());
            bytes.extend_from_slice(&section.partition.0.to_le_bytes());
            bytes.extend_from_slice(&section.record_count.to_le_bytes());
            bytes.extend_from_slice(&len_u32(records.len()).to_le_bytes());
            bytes.push(match section.timestamp_type {
                TimestampType::CreateTime => 0,
                TimestampType::LogAppendTime => 1,
            });
            bytes.push(0);
            bytes.extend_from_slice(&u16::try_from(topic.len()).expect("names have a short limit").to_le_bytes());
            bytes.extend_from_slice(&[0; 8]);
            bytes.extend_from_slice(topic.as_bytes());
            bytes.extend_from_slice(records);
        }
        Ok(bytes)
    }

    /// The record sections with `parts` alone.
    fn rewrite(&self, parts: Fields) -> Result<Vec<Vec<u8>>, MalformedRecord> {
        const NO_HEADERS: &[u8] = &[0];
        let [key, value, headers] = PARTS.map(|part| parts.contains(part));
        let mut sections: Vec<Vec<u8>> = Vec::with_capacity(self.sections.len());
        let mut records = self.records();
        for section in &self.sections {
            let mut bytes = Vec::new();
            for record in records.by_ref().take(section.record_count as usize) {
                let record = record?;
                put_raw(
                    &mut bytes,
                    record.timestamp_delta,
                    record.offset_delta,
                    record.key.filter(|_| key),
                    record.value.filter(|_| value),
                    if headers { record.header_bytes } else { NO_HEADERS },
                );
            }
            sections.push(bytes);
        }
        match records.next() {
            Some(Err(behind_the_last)) => Err(behind_the_last),
            _ => Ok(sections),
        }
    }
}
