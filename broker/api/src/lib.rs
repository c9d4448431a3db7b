//! Wire types of the Levada HTTP interface. Not here: axum, the engine.

mod record_in;
mod record_out;

pub use record_in::{RecordIn, RecordsFault, parse_record, parse_records};
pub use record_out::{RecordOut, Rendering, ValueForm, write_json_string};
