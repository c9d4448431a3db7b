//! `levada log`: reads segment files offline and explains them, or looks for damage. Needs no server and changes nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use levada_log::{Batch, RecordRef, SegmentFile, SegmentScan, Stretch};
use levada_model::{Compression, Offset, TimestampType};
use serde::Serialize;

use crate::output::{Format, Printer, note};
use crate::segment::segments_at;

/// Longest key or value that text output shows of a record, in characters.
const SHOWN_CHARS_MAX: usize = 120;

/// What to do with log files.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Explain each batch: place, offsets, size, compression, producer, CRC.
    Dump(Dump),
    /// Look for damage in a segment, a partition's directory or a whole data directory. Exit code 1 if there is some.
    #[command(after_help = "Damage is: bytes that are no whole batch with a right CRC, records that cannot be read, \
                            offsets that are missing or come twice. Offsets without a record in a compacted log are none: \
                            batches hold their places. Zeros after the newest segment's last batch are \
                            written ahead and are none. After a crash, what the newest segment's last write left half \
                            done is reported too; the server cuts it off when it starts.")]
    Verify(Verify),
}

/// What to dump.
#[derive(Debug, Args)]
pub(crate) struct Dump {
    /// A segment file (.log), or a directory with segments below it.
    path: PathBuf,
    /// Show the records of each batch too.
    #[arg(long)]
    records: bool,
}

/// What to verify.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// A segment file (.log), or a directory with segments below it.
    path: PathBuf,
}

pub(crate) fn run(command: LogCommand, printer: Printer) -> anyhow::Result<ExitCode> {
    let (LogCommand::Dump(Dump { path, .. }) | LogCommand::Verify(Verify { path })) = &command;
    let segments = segments_at(path).with_context(|| path.display().to_string())?;
    if segments.is_empty() {
        anyhow::bail!("{}: there are no segments (files named by 20 digits and .log) in it or below", path.display());
    }
    match command {
        LogCommand::Dump(Dump { records, .. }) => dump(&segments, records, printer),
        LogCommand::Verify(_) => verify(&segments, printer),
    }
}

/// A batch in words.
#[derive(Serialize)]
struct BatchLine<'a> {
    file: &'a Path,
    position: u64,
    size_bytes: usize,
    base_offset: u64,
    last_offset: u64,
    record_count: u32,
    compression: &'static str,
    timestamp_type: &'static str,
    /// None where compaction has put its horizon in its place.
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    /// When tombstones in it may go; compaction notes it.
    delete_horizon: Option<i64>,
    leader_epoch: i32,
    producer_id: Option<i64>,
    producer_epoch: Option<i16>,
    base_sequence: Option<i32>,
    transactional: bool,
    control: bool,
    crc: String,
    crc_ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Vec<RecordLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records_error: Option<String>,
}

/// A record in words: bytes as text where they are, else as hexadecimal digits.
#[derive(Serialize)]
struct RecordLine {
    offset: u64,
    timestamp: i64,
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(String, Option<String>)>,
}

/// What is not a batch.
#[derive(Serialize)]
struct OtherLine<'a> {
    file: &'a Path,
    position: u64,
    size_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<&'a str>,
    zeros: bool,
}

fn dump(segments: &[SegmentFile], records: bool, mut printer: Printer) -> anyhow::Result<ExitCode> {
    for segment in segments {
        let path = &segment.path;
        if printer.format() == Format::Text {
            printer.line(path.display())?;
        }
        let mut scan = SegmentScan::open(segment).with_context(|| path.display().to_string())?;
        while let Some(stretch) = scan.next().with_context(|| path.display().to_string())? {
            match stretch {
                Stretch::Batch { position, batch } => dump_batch(path, position, &batch, records, &mut printer)?,
                Stretch::Damage { position, size_bytes, detail, .. } => {
                    dump_other(path, position, size_bytes, Some(&detail), &mut printer)?;
                }
                Stretch::Zeros { position, size_bytes } => dump_other(path, position, size_bytes, None, &mut printer)?,
            }
        }
    }
    if printer.format() == Format::Json {
        printer.end_items()?;
    }
    printer.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn dump_batch(path: &Path, position: u64, batch: &Batch, records: bool, printer: &mut Printer) -> anyhow::Result<()> {
    let line = batch_line(path, position, batch, records);
    if printer.format() != Format::Text {
        return Ok(printer.item(&serde_json::to_string(&line)?)?);
    }
    let producer = match (line.producer_id, line.producer_epoch, line.base_sequence) {
        (Some(id), Some(epoch), Some(sequence)) => format!("  producer {id} epoch {epoch} sequence {sequence}"),
        _ => String::new(),
    };
    let contents = contents_text(&line);
    let transactional = if line.transactional { "  transactional" } else { "" };
    let control = if line.control { "  control" } else { "" };
    printer.line(format!(
        "position {position}  offsets {}..{}  {contents}  leader epoch {}{producer}{transactional}{control}  crc {} ok",
        line.base_offset, line.last_offset, line.leader_epoch, line.crc
    ))?;
    for record in line.records.iter().flatten() {
        let headers: String =
            record.headers.iter().map(|(n, v)| format!("  header {n}={}", shown(v.as_ref()))).collect();
        printer.line(format!(
            "  offset {}  timestamp {}  key {}  value {}{headers}",
            record.offset,
            record.timestamp,
            shown(record.key.as_ref()),
            shown(record.value.as_ref())
        ))?;
    }
    if let Some(error) = line.records_error {
        printer.line(format!("  DAMAGED records: {error}"))?;
    }
    Ok(())
}

/// What is in a batch, for people: a compacted segment has batches that only hold the place of records that went.
fn contents_text(line: &BatchLine<'_>) -> String {
    let size_bytes = line.size_bytes;
    if line.record_count == 0 {
        return format!("no records, all were compacted away  {size_bytes} bytes");
    }
    let offsets = line.last_offset - line.base_offset + 1;
    let of = if u64::from(line.record_count) < offsets { format!(" of {offsets}") } else { String::new() };
    let base = line.base_timestamp.map_or_else(|| "up to ".to_owned(), |base| format!("{base}.."));
    let horizon = line.delete_horizon.map_or_else(String::new, |at| format!("  tombstones go after {at}"));
    format!(
        "{}{of} records  {size_bytes} bytes  {}  {} time {base}{}{horizon}",
        line.record_count, line.compression, line.timestamp_type, line.max_timestamp
    )
}

fn dump_other(
    file: &Path,
    position: u64,
    size_bytes: u64,
    damage: Option<&str>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    if printer.format() != Format::Text {
        let line = OtherLine { file, position, size_bytes, damage, zeros: damage.is_none() };
        return Ok(printer.item(&serde_json::to_string(&line)?)?);
    }
    let what = damage.map_or_else(|| "zeros".to_owned(), |detail| format!("DAMAGED  {detail}"));
    Ok(printer.line(format!("position {position}  {size_bytes} bytes  {what}"))?)
}

fn batch_line<'a>(file: &'a Path, position: u64, batch: &Batch, with_records: bool) -> BatchLine<'a> {
    let header = batch.header();
    let producer = header.producer_id;
    let (records, records_error) = if with_records { records_of(batch) } else { (None, None) };
    BatchLine {
        file,
        position,
        size_bytes: header.size_bytes,
        base_offset: header.base_offset.0,
        last_offset: header.last_offset().0,
        record_count: header.record_count,
        compression: match header.compression() {
            Compression::None => "uncompressed",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        },
        timestamp_type: match header.timestamp_type() {
            TimestampType::CreateTime => "create",
            TimestampType::LogAppendTime => "append",
        },
        base_timestamp: header.delete_horizon().is_none().then_some(header.base_timestamp.0),
        max_timestamp: header.max_timestamp.0,
        delete_horizon: header.delete_horizon().map(|horizon| horizon.0),
        leader_epoch: header.leader_epoch.0,
        producer_id: producer.map(|id| id.0),
        producer_epoch: producer.map(|_| header.producer_epoch.0),
        base_sequence: producer.map(|_| header.base_sequence.0),
        transactional: header.is_transactional(),
        control: header.is_control(),
        crc: format!("{:08x}", header.crc),
        crc_ok: true,
        records,
        records_error,
    }
}

/// The records up to the first that cannot be read, and why it cannot.
fn records_of(batch: &Batch) -> (Option<Vec<RecordLine>>, Option<String>) {
    let mut lines = Vec::new();
    let records = match batch.records() {
        Ok(records) => records,
        Err(error) => return (Some(lines), Some(error.to_string())),
    };
    for record in records {
        match record {
            Ok(RecordRef { offset, timestamp, record, .. }) => lines.push(RecordLine {
                offset: offset.0,
                timestamp: timestamp.0,
                key: record.key.as_deref().map(readable),
                value: record.value.as_deref().map(readable),
                headers: record.headers.iter().map(|h| (h.name.clone(), h.value.as_deref().map(readable))).collect(),
            }),
            Err(error) => return (Some(lines), Some(error.to_string())),
        }
    }
    (Some(lines), None)
}

fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("0x{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

fn shown(text: Option<&String>) -> String {
    let Some(text) = text else { return "null".to_owned() };
    let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let more = if start.len() < text.len() { format!(" … ({} bytes)", text.len()) } else { String::new() };
    format!("{start:?}{more}")
}

/// What a verification found.
#[derive(Default, Serialize)]
struct Report<'a> {
    segments: usize,
    batches: u64,
    records: u64,
    bytes: u64,
    zero_bytes: u64,
    damage: Vec<DamageLine<'a>>,
}

/// One damaged place.
#[derive(Serialize)]
struct DamageLine<'a> {
    file: &'a Path,
    position: u64,
    size_bytes: u64,
    /// First offset lost; none where nothing before tells it.
    from_offset: Option<u64>,
    /// The offset after the last one lost; none where nothing follows that tells it.
    to_offset: Option<u64>,
    detail: String,
}

fn verify(segments: &[SegmentFile], mut printer: Printer) -> anyhow::Result<ExitCode> {
    let mut report = Report::default();
    for segment in segments {
        verify_segment(segment, &mut report).with_context(|| segment.path.display().to_string())?;
    }
    let mut text: String = report.damage.iter().map(describe).collect();
    let verdict = if report.damage.is_empty() { "whole" } else { "DAMAGED" };
    text.push_str(&format!(
        "{verdict}: {} segments, {} batches, {} records, {} bytes, {} zero bytes written ahead, {} damaged places",
        report.segments,
        report.batches,
        report.records,
        report.bytes,
        report.zero_bytes,
        report.damage.len()
    ));
    printer.result(&report, text)?;
    if !report.damage.is_empty() {
        note("the server skips damage and reports it as a gap; restore the file from a copy if there is one");
    }
    Ok(if report.damage.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(damage: &DamageLine<'_>) -> String {
    let offset = |offset: Option<u64>| offset.map_or_else(|| "?".to_owned(), |offset| offset.to_string());
    format!(
        "{}: position {}, {} bytes: {}; offsets lost: from {} up to, not including, {}\n",
        damage.file.display(),
        damage.position,
        damage.size_bytes,
        damage.detail,
        offset(damage.from_offset),
        offset(damage.to_offset)
    )
}

fn verify_segment<'a>(segment: &'a SegmentFile, report: &mut Report<'a>) -> anyhow::Result<()> {
    let SegmentFile { path, end, .. } = segment;
    let mut scan = SegmentScan::open(segment)?;
    report.segments += 1;
    while let Some(stretch) = scan.next()? {
        match stretch {
            Stretch::Batch { position, batch } => {
                report.batches += 1;
                report.bytes += batch.bytes().len() as u64;
                verify_records(path, position, &batch, report);
                let next = batch.header().next_offset();
                if let Some(end) = end.filter(|end| *end < next) {
                    let detail = format!("offsets {end} up to, not including, {next} are in the next segment too");
                    report.damage.push(damage(path, position, 0, Some(end), Some(end), detail));
                }
            }
            Stretch::Damage { position, size_bytes, from, to, detail } => {
                report.damage.push(damage(path, position, size_bytes, from, to, detail));
            }
            Stretch::Zeros { size_bytes, .. } if end.is_none() => report.zero_bytes += size_bytes,
            Stretch::Zeros { position, size_bytes } => {
                let detail = "zeros at the end of a sealed segment".to_owned();
                report.damage.push(damage(path, position, size_bytes, *end, *end, detail));
            }
        }
    }
    Ok(())
}

fn damage(
    file: &Path,
    position: u64,
    size_bytes: u64,
    from: Option<Offset>,
    to: Option<Offset>,
    detail: String,
) -> DamageLine<'_> {
    let (from_offset, to_offset) = (from.map(|from| from.0), to.map(|to| to.0));
    DamageLine { file, position, size_bytes, from_offset, to_offset, detail }
}

/// A batch whose CRC is right was written so; its records must still be readable.
fn verify_records<'a>(path: &'a Path, position: u64, batch: &Batch, report: &mut Report<'a>) {
    let (records, error) = records_of(batch);
    report.records += records.map_or(0, |records| records.len() as u64);
    if let Some(detail) = error {
        let (from, to) = (batch.header().base_offset, batch.header().next_offset());
        let size_bytes = batch.bytes().len() as u64;
        report.damage.push(damage(path, position, size_bytes, Some(from), Some(to), detail));
    }
}
