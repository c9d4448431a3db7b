//! Prints the records that were read, in one of the shapes that they can have, until there were enough.

use bytes::Bytes;
use levada_client::Record;

use crate::dlq::{Told, letter_text, warning_line};
use crate::output::{Format, Printer};

/// How a record is printed.
#[derive(Debug)]
pub(crate) enum Shape {
    /// In text its value, behind its key where there is a separator; in JSON the record.
    Values { key_separator: Option<Bytes> },
    /// As the warning that a dead letter is.
    Warnings,
    /// As a dead letter, with all that is known of it.
    Letters,
}

/// Prints records until there were enough.
pub(super) struct Sink {
    pub(super) printer: Printer,
    pub(super) shape: Shape,
    /// How many more are wanted.
    pub(super) left: u64,
}

impl Sink {
    /// Prints what is wanted of them. When it answers, they are written out.
    pub(super) fn print_all<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) -> anyhow::Result<()> {
        for record in records {
            if self.left > 0 {
                self.print(record)?;
            }
        }
        Ok(self.printer.flush()?)
    }

    /// After the last record.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        if self.printer.format() == Format::Json {
            self.printer.end_items()?;
        }
        Ok(self.printer.flush()?)
    }

    fn print(&mut self, record: &Record) -> anyhow::Result<()> {
        self.left -= 1;
        let in_text = self.printer.format() == Format::Text;
        match &self.shape {
            Shape::Warnings if in_text => self.printer.line(warning_line(record))?,
            Shape::Warnings => self.printer.item(&serde_json::to_string(&Told::warning(record)?)?)?,
            Shape::Letters if in_text => self.printer.line(letter_text(record))?,
            Shape::Letters => self.printer.item(&serde_json::to_string(&Told::new(record)?)?)?,
            Shape::Values { .. } if !in_text => self.printer.item(&record.to_line())?,
            Shape::Values { key_separator } => {
                let value = record.value.as_deref().unwrap_or_default();
                match key_separator {
                    Some(separator) => {
                        self.printer.bytes_line(&[record.key.as_deref().unwrap_or_default(), separator, value])?
                    }
                    None => self.printer.bytes_line(&[value])?,
                }
            }
        }
        Ok(())
    }
}
