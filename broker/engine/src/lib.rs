//! The engine: topics, partitions, produce, fetch, consumer groups and transactions of one node. Async begins here.
//!
//! Every call names its [`Principal`](levada_model::Principal) and asks the authorizer. Not here: HTTP, wire types, and
//! WebAssembly (modules come in through the traits of `levada_extension`).

mod catalog;
mod compaction;
mod coordinators;
mod counters;
mod directory;
mod engine;
mod fetch;
mod groups;
mod heavy;
mod maintenance;
mod metadata;
mod modules;
mod partition;
mod partition_set;
mod processors;
mod produce;
mod producer_ids;
mod start;
#[cfg(test)]
mod testing;
mod topic_reader;
mod topics;
mod transactions;

pub use compaction::{CompactedPartition, CompactedTopic, CompactionFailure, PartitionCompaction};
pub use engine::{CloseError, Engine, EngineOptions, GroupStats, Health, OpenError, Stats};
pub use fetch::{FetchError, FetchRequest, Fetched, FetchedRecords, Filtered, FilteredAt, From, Isolation, TimeOffset};
pub use groups::{
    AssignorName, CommitWhat, CommittedOffset, GroupCommitted, GroupCursor, GroupDescription, GroupError, GroupFetch,
    GroupFetched, GroupMember, GroupOffset, GroupOptions, GroupPart, GroupPosition, JoinGroup, Membership,
    OffsetCommit, OffsetReset, RejectRecords, ResetCause,
};
pub use heavy::{Work, compute};
pub use levada_coordinator::{
    AssignmentEpoch, AssignorFallback, Generation, GroupState, GroupSummary, MemberState, Outcome, Producer,
    Start as GroupStart, TransactionHandle, TransactionState, TransactionView,
};
pub use modules::{
    DryRun, DryRunInput, DryRunMember, DryRunOutput, DryRunRecord, DryRunReport, DryRunSide, DryRunTopic, ModuleError,
    ModuleInfo, ModuleUse, ModuleVersionInfo, PutModule, RecordFilter,
};
pub use processors::{
    FailedRecord, Guarantee, OnError, ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec,
    ProcessorState, ProcessorStep, ProcessorTask, ProcessorWaiting, SourceSpec, Then,
};
pub use produce::{
    Accepted, Acks, AppendFault, BatchesRequest, Once, Placed, ProduceError, ProduceRecord, ProduceRequest, Produced,
    RecordFault,
};
pub use topic_reader::{Positions, TopicPart, TopicReader, TopicStart, TopicsReader, TopicsStart};
pub use topics::{
    AlterTopic, CreateTopic, PartitionDescription, PartitionState, TopicDescription, TopicError, TopicPage, Truncated,
};
pub use transactions::{
    ExecuteRecord, ExecuteRequest, Executed, ExecutedRecord, OpenTransactions, TransactionError, TransactionOffset,
    TransactionOffsets,
};
