//! The wire types of the HTTP interface and its error codes, as plain serde types that server and client share.
//!
//! Not here: HTTP itself (no axum), and what the engine does.

mod cluster;
mod depth;
mod error;
mod groups;
pub mod media;
mod modules;
mod processors;
mod record_answer;
mod record_in;
mod record_out;
mod record_query;
mod record_schema;
pub mod strict;
mod topics;
mod transactions;
mod ws;

pub use cluster::{Cluster, HealthReport, HealthStatus, Node};
pub use error::{Effect, ErrorCode, FieldError, Members, Problem, echo};
pub use groups::{
    AssignorConfig, AssignorFallback, AssignorWord, CommitGroup, CommittedGroup, DeadLetters, GroupDescription,
    GroupGap, GroupHeartbeat, GroupLag, GroupList, GroupMember, GroupOffset, GroupOffsets, GroupPartition, GroupPlace,
    GroupRecords, GroupStart, GroupState, GroupSummary, JoinGroup, JoinedGroup, MemberState, OffsetPlace, OffsetReset,
    RefusedCommit, RejectRecords, ResetCause, SetGroupOffset, SetGroupOffsets, SetGroupOffsetsResult,
};
pub use modules::{
    DryRunDifference, DryRunGroup, DryRunMember, DryRunModule, DryRunOutput, DryRunSide, DryRunTopic, DryRunVerdict,
    Module, ModuleDryRun, ModuleList, ModuleLog, ModuleLogLevel, ModuleLogLine, ModuleStats, ModuleUse, ModuleUseKind,
    ModuleVersion, PutModule, VerdictWord, WitFile, WitPackage, WorldWord,
};
pub use processors::{
    DryRunFailure, DryRunProcessor, FilterStep, GuaranteeWord, OnError, Processor, ProcessorDocument, ProcessorDryRun,
    ProcessorFailure, ProcessorList, ProcessorReset, ProcessorSink, ProcessorSource, ProcessorState, ProcessorStep,
    ProcessorTask, ProcessorTime, RecordWord, ResetProcessor, TaskWaiting, ThenWord, TransformStep,
};
pub use record_answer::{
    LineAnswer, Offsets, PartitionOffset, Placed, Placement, ProduceAnswer, Producer, ProducerRequest, RawAnswer,
};
pub use record_in::{RecordIn, RecordsFault, parse_execute, parse_record, parse_record_list, parse_records};
pub use record_out::{RecordOut, Rendering, ValueForm, write_json_string, write_pair};
pub use record_query::{AcksWord, FormatWord, IsolationWord, ResultsWord, UnknownWord};
pub use record_schema::{
    Aborted, ExecuteBody, ExecuteRecord, Gap, GapCause, GroupRecord, PartitionRecords, ProduceBody, ProduceRecord,
    ReadRecord, TopicRecords,
};
pub use topics::{
    AlterTopic, CompactedPartition, CompactedTopic, Compaction, CompactionError, CreateTopic, Partition,
    PartitionState, PartitionerFallbacks, Topic, TopicList, TruncateBefore, TruncateTopic, TruncatedPartition,
    TruncatedTopic, Uncompacted, WaitingFor,
};
pub use transactions::{
    BeginTransaction, BegunTransaction, ExecuteIn, ExecutedRecord, ExecutedTransaction, OpenTransaction,
    PendingOffsets, TransactionList, TransactionOffsets, TransactionState,
};
pub use ws::{
    BadFrame, ClientFrame, Credit, FrameId, Produce, ServerFrame, SkipCause, StreamFilter, StreamForm, StreamGap,
    StreamMember, StreamOf, StreamStart, Subscribe, WsLimits, read_frame,
};
