//! The words that every other crate shares: names, ids, offsets, records, topic configuration, limits and the clock.
//!
//! Not here: I/O, async, wire types, and any behaviour that belongs to one component alone.

mod clock;
mod config;
pub mod dead_letter;
mod ids;
pub mod limits;
mod names;
mod principal;
mod record;

pub use clock::{Clock, ManualClock, SystemClock};
pub use config::{
    CleanupPolicy, Compression, ConfigError, ConfigKey, Durability, TimestampType, TopicConfig, TopicModule,
};
pub use ids::{
    ClusterId, LeaderEpoch, NodeId, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Tick, Timestamp,
    TopicId,
};
pub use names::{
    GroupName, InstanceId, MemberId, ModuleName, ModuleRef, NameError, ProcessorName, TopicName, TransactionalId,
};
pub use principal::{AllowAll, Authorizer, Denied, Operation, Principal, Resource};
pub use record::{Header, Record};
