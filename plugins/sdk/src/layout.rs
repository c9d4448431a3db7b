//! The layouts of the contract from the module's side: readers over borrowed bytes, writers of answers. Authors see records,
//! never these bytes; `plugins/wit/0.1.0/layouts.md` describes them.

mod answers;
mod batch;
mod groups;
mod keys;
mod reader;
mod varint;
#[cfg(test)]
mod vectors;
mod verdicts;

pub(crate) use answers::{decode_answers, encode_answers};
pub(crate) use batch::{Batch, Place, Plain, put_section};
pub use batch::{Headers, Record};
pub(crate) use groups::{GroupRef, Groups, put_group};
pub use keys::KeyRecord;
pub(crate) use keys::{Keys, encode_keys};
pub use reader::LayoutError;
pub(crate) use verdicts::{VerdictWriter, decode_verdicts};

/// The version of the layouts that this crate reads and writes.
pub(crate) const LAYOUT_VERSION: u8 = 1;
