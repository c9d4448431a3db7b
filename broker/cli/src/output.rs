//! Prints what a command has to say, as text for people or JSON for programs. Nothing else writes to standard output.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _};

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// How a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// A JSON object a line, as soon as there is one.
    Ndjson,
}

/// Standard output in a format. What is printed is buffered until [`flush`](Self::flush) or the end.
pub(crate) struct Printer {
    format: Format,
    out: BufWriter<StdoutLock<'static>>,
    items: u64,
}

impl Printer {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, out: BufWriter::with_capacity(64 << 10, io::stdout().lock()), items: 0 }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// A line of text, whatever the format.
    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Bytes as they are, and a line break.
    pub(crate) fn bytes_line(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        for part in parts {
            self.out.write_all(part)?;
        }
        self.out.write_all(b"\n")
    }

    /// The one result of a command: a JSON document, or `text` for people.
    pub(crate) fn result(&mut self, value: &impl Serialize, text: impl Display) -> io::Result<()> {
        match self.format {
            Format::Text => writeln!(self.out, "{text}")?,
            Format::Json => writeln!(self.out, "{}", serde_json::to_string_pretty(value)?)?,
            Format::Ndjson => writeln!(self.out, "{}", serde_json::to_string(value)?)?,
        }
        self.out.flush()
    }

    /// One of many results, already as JSON text in one piece: an element of a JSON array, or a line.
    pub(crate) fn item(&mut self, json: &str) -> io::Result<()> {
        match self.format {
            Format::Json => {
                let before = if self.items == 0 { "[\n" } else { ",\n" };
                write!(self.out, "{before}{json}")?;
            }
            Format::Text | Format::Ndjson => writeln!(self.out, "{json}")?,
        }
        self.items += 1;
        Ok(())
    }

    /// After the last [`item`](Self::item).
    pub(crate) fn end_items(&mut self) -> io::Result<()> {
        if self.format == Format::Json {
            let end = if self.items == 0 { "[]" } else { "\n]" };
            writeln!(self.out, "{end}")?;
        }
        self.out.flush()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A note for the person at the terminal, beside the results.
#[expect(clippy::print_stderr, reason = "the one place that writes notes for people")]
pub(crate) fn note(text: impl Display) {
    eprintln!("{text}");
}

/// Whether somebody watches the notes, so that a progress bar makes sense.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Columns, each as wide as its widest cell; the first row is the head.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A setting's value without JSON's quotes.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A time in milliseconds since 1970 as people read it (RFC 3339, UTC); what lies out of the calendar stays a number.
pub(crate) fn time_text(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| format!("{time:.3}"))
}

/// Bytes in one line that changes nothing about the terminal: control characters are escaped, and so is everything where
/// they are not UTF-8.
pub(crate) fn one_line(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return bytes.escape_ascii().to_string() };
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { line.extend(char.escape_default()) } else { line.push(char) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{one_line, table, time_text};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["A".to_owned(), "B".to_owned()], vec!["long".to_owned(), "x".to_owned()]];
        assert_eq!(table(&rows), "A     B\nlong  x");
    }

    #[test]
    fn a_line_holds_no_control_characters() {
        assert_eq!(one_line("ü {\"a\":1}".as_bytes()), "ü {\"a\":1}");
        assert_eq!(one_line(b"a\r\nb\x1b[2J"), "a\\r\\nb\\u{1b}[2J");
        assert_eq!(one_line(b"\xffa\n"), "\\xffa\\n");
    }

    #[test]
    fn times_are_read_by_people_or_stay_numbers() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time_text(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string());
    }
}
