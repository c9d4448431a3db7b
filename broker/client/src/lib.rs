//! A client of Levada's HTTP interface: typed calls, a [`Producer`] that gathers and retries, a [`TransactionalProducer`],
//! and live following.
//!
//! Payloads are bytes or JSON text, never trees. Not here: the interface's own types and error codes (`levada-api`), and
//! the command line.

mod backoff;
mod client;
mod error;
mod fetch;
mod follow;
mod groups;
mod lines;
mod modules;
mod processors;
mod produce;
mod producer;
mod record;
mod sender;
mod sse;
mod topics;
mod transactions;

pub use backoff::Backoff;
pub use client::Client;
pub use error::ClientError;
pub use fetch::{FetchQuery, Fetched, FetchedTopic};
pub use follow::{Follow, FollowEvent};
pub use groups::{GroupConsumer, GroupFetched, GroupQuery, GroupRecord};
pub use levada_api::AcksWord;
pub use produce::RawOptions;
pub use producer::{Answer, Delivery, Producer, ProducerOptions, ProducerTotals};
pub use record::{NewRecord, NewValue, Record};
pub use transactions::{Execute, ExecuteRecord, Executed, Transaction, TransactionalProducer};

/// The media type of a stream of JSON lines.
const NDJSON_TYPE: &str = "application/x-ndjson";
/// The media type of Kafka record batches (v2), back to back.
const RECORD_BATCH_TYPE: &str = "application/vnd.levada.record-batch";
