//! The engine: topics, partitions, produce, fetch and group offsets of one node. Async begins here.
//!
//! Every call names its [`Principal`](levada_model::Principal) and asks the authorizer. Not here: HTTP, wire types, and
//! WebAssembly (modules come in through the traits of `levada_extension`).

mod engine;
mod fetch;
mod groups;
mod produce;
mod topics;

pub use engine::{CloseError, Engine, EngineOptions, Health, OpenError, Stats};
pub use fetch::{
    FetchError, FetchRequest, Fetched, From, Isolation, Positions, TimeOffset, TopicChunk, TopicReader, TopicStart,
};
pub use groups::{CommittedOffset, GroupError, OffsetCommit};
pub use produce::{
    Acks, AppendFault, BatchesRequest, Once, Placed, ProduceError, ProduceRecord, ProduceRequest, Produced, RecordFault,
};
pub use topics::{
    AlterTopic, CreateTopic, PartitionDescription, PartitionState, TopicDescription, TopicError, TopicPage, Truncated,
};
