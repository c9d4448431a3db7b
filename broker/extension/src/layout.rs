//! The bytes that cross between the broker and a module, from the broker's side: what a module is given is written here,
//! and what it answers is read and checked. `plugins/wit/0.1.0/layouts.md` describes them byte for byte.
//!
//! Readers are total: any bytes have an answer or a typed error, and nothing is allocated by a size that the bytes only
//! claim. Not here: the crossing itself (the module host's).
//!
//! What the host does with them, call by call:
//!
//! - `transform`: [`CallBatch::encode`](crate::CallBatch::encode); of the answer, `keep` is checked by [`check_verdicts`],
//!   `each` read and checked by [`decode_verdicts`].
//! - `transform-json`: [`encode_json`] and [`decode_json_verdicts`]. Where a record has no such form, the error says which,
//!   and [`CallBatch::split_at`](crate::CallBatch::split_at) parts it from the others; so it does to find the record that a
//!   call fails for.
//! - `partitioner`: [`Keys::encode`], then [`check_partitions`](crate::check_partitions).
//! - `assignor`: typed. Topics are places in `input.topics`; what a member names and the input does not list is left out.
//!   [`read_assignment`](crate::read_assignment) takes the answer.
//! - `aggregator`: [`Groups::encode`](crate::Groups::encode); [`decode_accumulators`] expects
//!   [`Groups::fold_answers`](crate::Groups::fold_answers) of a `fold` and one a group of the other calls, [`decode_values`]
//!   one a group of `result` and `close`.
//!
//! A guest's `fault` becomes [`ModuleFault::Unsupported`](crate::ModuleFault::Unsupported) or
//! [`Failed`](crate::ModuleFault::Failed); its reason is the guest's and is cut to
//! [`MODULE_REASON_BYTES_MAX`](levada_model::limits::MODULE_REASON_BYTES_MAX). How large a call may be is the host's to
//! bound before it encodes: a batch that does not fit the guest's memory looks like the guest's trap.

mod answers;
mod batch;
mod error;
mod groups;
mod json;
mod keys;
mod reader;
mod verdicts;

pub use answers::{decode_accumulators, decode_values};
pub use error::{AnswerError, AnswerLimits};
pub use json::{JsonFormError, decode_json_verdicts, encode_json};
pub use keys::{KeyRecord, Keys};
pub use verdicts::{check_verdicts, decode_verdicts};

/// The version of the layouts that this broker writes and reads, the first byte of each.
pub const LAYOUT_VERSION: u8 = 1;

/// A length as the layouts write it.
fn len_u32(length: usize) -> u32 {
    u32::try_from(length).expect("what one call holds is bounded far below 4 GiB, before it is written")
}

/// Writes bytes behind their length, -1 for null.
fn put_nullable(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(-1, |part| i32::try_from(part.len()).expect("a record is far below 2 GiB"));
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

/// Writes bytes behind their length.
fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&len_u32(part.len()).to_le_bytes());
    bytes.extend_from_slice(part);
}
