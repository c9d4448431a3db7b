//! Every cap of the broker in one place, with its unit last in its name.
//!
//! A cap is checked at the edge, where a request that breaks it is refused with the cap's name, and asserted inside.
//! Those that an operator may move are defaults here; the setting that moves them is named in the comment.

use std::ops::RangeInclusive;

/// Longest topic or group name, in bytes (Kafka's rule for topics).
pub const NAME_BYTES_MAX: usize = 249;
/// Longest id of a group's member, in characters.
pub const MEMBER_ID_CHARS_MAX: usize = 64;
/// Longest instance id of a group's member, in characters.
pub const INSTANCE_ID_CHARS_MAX: usize = 255;
/// Most partitions that one topic may have.
pub const PARTITIONS_MAX: u32 = 10_000;
/// Largest integer that the interface emits or takes: 2^53 - 1, the last that every JSON reader holds exactly.
pub const JSON_INTEGER_MAX: u64 = (1 << 53) - 1;
/// Deepest nesting of a JSON value in a record.
pub const JSON_DEPTH_MAX: usize = 128;
/// Default of `--max-body-bytes`: largest request body, after decompression.
pub const BODY_BYTES_MAX: usize = 16 << 20;
/// Default of the topic setting `max.message.bytes`: largest record (key, value and headers together).
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Largest value that `max.message.bytes` takes.
pub const MESSAGE_BYTES_CEILING: usize = 256 << 20;
/// Largest record batch, as stored and as unpacked; also the largest that a reader takes from a file at once.
pub const BATCH_BYTES_MAX: usize = 512 << 20;
/// Most bytes that the records of a compressed batch may unpack to when it is produced: every read of one of them unpacks
/// all. A batch of one record may always hold `max.message.bytes`.
pub const UNPACKED_BYTES_MAX: usize = 64 << 20;
/// Most records of one request that is answered as a whole (JSON, record batches): each takes room in the answer. NDJSON
/// has no such limit.
pub const REQUEST_RECORDS_MAX: usize = 100_000;
/// Most places that `errors` of a problem names.
pub const PROBLEM_ERRORS_MAX: usize = 100;
/// Most characters of a name or value that a problem repeats from a request.
pub const ECHO_CHARS_MAX: usize = 100;
/// Most characters of a problem's `detail`, and of one in its `errors`.
pub const DETAIL_CHARS_MAX: usize = 1_000;
/// Most headers of one record.
pub const RECORD_HEADERS_MAX: usize = 1_000;
/// Most bytes of window that a compressed stream may ask for (zstd): 8 MiB.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Default and largest `max_records` of a read.
pub const READ_RECORDS_DEFAULT: usize = 500;
/// Largest `max_records` of a read; above it the request is clamped.
pub const READ_RECORDS_MAX: usize = 10_000;
/// Default `max_bytes` of a read.
pub const READ_BYTES_DEFAULT: usize = 1 << 20;
/// Largest `max_bytes` of a read; above it the request is clamped.
pub const READ_BYTES_MAX: usize = 64 << 20;
/// Longest `wait_ms` of a read; above it the request is clamped.
pub const READ_WAIT_MS_MAX: u64 = 60_000;
/// Default and largest `limit` of a listing.
pub const LIST_LIMIT_DEFAULT: usize = 100;
/// Largest `limit` of a listing; above it the request is clamped.
pub const LIST_LIMIT_MAX: usize = 1_000;
/// Sequences of the last batches that a partition remembers of one producer (Kafka's five).
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;
/// Default of `--producer-id-expiration-ms` (`producer.id.expiration.ms`): how long a partition remembers a producer
/// after its last append.
pub const PRODUCER_EXPIRATION_MS: i64 = 24 * 60 * 60 * 1000;
/// Most producers that one partition remembers; a further one takes the place of the one whose last append is oldest.
pub const PRODUCERS_MAX: usize = 100_000;
/// Most idempotency keys that one partition remembers.
pub const IDEMPOTENCY_KEYS_MAX: usize = 100_000;
/// Longest `Idempotency-Key`, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Most appends that wait for one partition's owner; a further one is refused with 503.
pub const PARTITION_QUEUE_APPENDS_MAX: usize = 4_096;
/// Most bytes that wait for one partition's owner (one append always fits).
pub const PARTITION_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Most bytes of recent batches that the whole broker keeps in memory for readers at the tail.
pub const TAIL_CACHE_BYTES_MAX: usize = 64 << 20;
/// Default of `--compaction-memory-bytes`: memory for the keys of the log that is compacted (Kafka's
/// `log.cleaner.dedupe.buffer.size`, which is 128 MiB).
pub const COMPACTION_MEMORY_BYTES: usize = 64 << 20;
/// Default and largest `wait_ms` of a forced compaction; above it the request is clamped.
pub const COMPACT_WAIT_MS_MAX: u64 = 30_000;
/// Partitions of `__consumer_offsets`.
pub const CONSUMER_OFFSETS_PARTITIONS: u32 = 50;
/// Partitions of `__transaction_state`.
pub const TRANSACTION_STATE_PARTITIONS: u32 = 50;
/// Longest transactional id, in characters.
pub const TRANSACTIONAL_ID_CHARS_MAX: usize = 255;
/// Most transactional ids that one coordinator of transactions keeps; a further one is refused.
pub const TRANSACTIONAL_IDS_MAX: usize = 100_000;
/// How long a transactional id is kept without a transaction (`transactional.id.expiration.ms`): 7 days.
pub const TRANSACTIONAL_ID_EXPIRATION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Time-outs that a producer of transactions may ask for; the largest is Kafka's `transaction.max.timeout.ms`.
pub const TRANSACTION_TIMEOUT_MS: RangeInclusive<u64> = 100..=15 * 60 * 1000;
/// The time-out of transactions whose producer names none (Kafka's `transaction.timeout.ms`).
pub const TRANSACTION_TIMEOUT_MS_DEFAULT: u64 = 60_000;
/// Most aborted transactions that the head of a read of stored batches names: heads beyond 8 KiB are refused by many.
pub const READ_ABORTED_MAX: usize = 64;
/// Most partitions that one transaction writes to.
pub const TRANSACTION_PARTITIONS_MAX: usize = 10_000;
/// Most partitions of a transaction that are told where several are listed.
pub const TRANSACTION_PARTITIONS_TOLD_MAX: usize = 100;
/// Most groups whose offsets one transaction commits.
pub const TRANSACTION_GROUPS_MAX: usize = 100;
/// Most transactions with offsets of groups that are open at once in one partition of `__consumer_offsets`.
pub const GROUP_TRANSACTIONS_MAX: usize = 10_000;
/// Most offsets that wait there at once for the ends of their transactions.
pub const GROUP_PENDING_OFFSETS_MAX: usize = 10 * GROUP_OFFSETS_MAX;
/// How long a marker that could not be written waits for its next try.
pub const MARKER_RETRY_MS: u64 = 500;
/// How long the word is awaited that a marker was written; then it is sent again.
pub const MARKER_ANSWER_MS_MAX: u64 = 30_000;
/// Most markers that are with the owners of partitions at once, of all transactions together.
pub const MARKERS_IN_FLIGHT_MAX: usize = 16_384;
/// How long a transaction of one request may take; then it is aborted.
pub const EXECUTE_TIMEOUT_MS: u64 = 60_000;
/// Most transactions of one request at once; further ones wait.
pub const EXECUTE_AT_ONCE_MAX: usize = 1_024;
/// How long the answer of a transaction of one request is kept for its `Idempotency-Key`: 24 hours.
pub const EXECUTE_ANSWER_MS: u64 = 24 * 60 * 60 * 1000;
/// Longest answer that is kept for an `Idempotency-Key` of a transaction of one request.
pub const EXECUTE_ANSWER_BYTES_MAX: usize = 256 << 10;
/// Most bytes of such answers that one coordinator of transactions keeps, with [`EXECUTE_ENTRY_BYTES`] for each; the oldest
/// go first.
pub const EXECUTE_ANSWERS_BYTES_MAX: usize = 8 << 20;
/// What is counted for each kept answer besides its bytes.
pub const EXECUTE_ENTRY_BYTES: usize = 512;
/// Most members of one group.
pub const GROUP_MEMBERS_MAX: usize = 10_000;
/// Most topics that one member of a group subscribes to.
pub const GROUP_TOPICS_MAX: usize = 1_000;
/// Most offsets that one request commits or sets.
pub const GROUP_OFFSETS_MAX: usize = 20_000;
/// Most bytes of the subscriptions of one group's members, counted as their records hold them: a rebalance may write all of
/// them in one batch.
pub const GROUP_SUBSCRIPTIONS_BYTES_MAX: usize = 16 << 20;
/// Longest text by which a member of a group says who it is; what is beyond is cut off.
pub const CLIENT_BYTES_MAX: usize = 256;
/// Longest name of an assignor: `module:`, the module's name, `@` and a version.
pub const ASSIGNOR_NAME_BYTES_MAX: usize = 267;
/// Longest config that a member of a group gives for an assignor, as JSON text: every member's record holds it.
pub const ASSIGNOR_CONFIG_BYTES_MAX: usize = 16 << 10;
/// Member ids that a member with an instance id replaced and that are still told so; older ones are unknown.
pub const REPLACED_MEMBERS_REMEMBERED: usize = 16;
/// Most bytes that a member of Kafka's classic group protocol says of itself for all its protocols together, and most of
/// its assignment.
pub const CLASSIC_METADATA_BYTES_MAX: usize = 1 << 20;
/// Longest time that a group waits for its assignor; then the built-in one decides.
pub const ASSIGN_MS_MAX: u64 = 30_000;
/// Smallest `segment.bytes`. Kafka's is 14 bytes before 4.0 and 1 MiB since; ours is what one index interval needs.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 10;
/// Largest `segment.bytes`: positions within a segment are 32 bits wide.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Largest module, as uploaded. Modules in JavaScript and Python bring their interpreter: 2 to 20 MiB.
pub const MODULE_BYTES_MAX: usize = 32 << 20;
/// CPU time of the compilation of one module, in seconds. CPython takes about fifteen.
pub const MODULE_COMPILE_CPU_S_MAX: u64 = 120;
/// Memory of the same.
pub const MODULE_COMPILE_MEMORY_BYTES_MAX: u64 = 3 << 30;
/// Most machine code of one module. CPython's is about 80 MiB.
pub const MODULE_CODE_BYTES_MAX: usize = 256 << 20;
/// CPU time of the check of a module's schema, and of one config against it, in seconds; the start of a process included.
pub const MODULE_CONFIG_CHECK_CPU_S_MAX: u64 = 2;
/// Most modules that the registry holds.
pub const MODULES_MAX: usize = 1_000;
/// Most versions of one module.
pub const MODULE_VERSIONS_MAX: usize = 1_000;
/// Most uploads that are being compiled or wait for it; a further one is refused.
pub const MODULE_UPLOADS_MAX: usize = 8;
/// Most versions that are kept loaded though nothing uses them; then the one goes that was asked for longest ago.
pub const MODULES_LOADED_UNUSED_MAX: usize = 32;
/// How long a module that could not be loaded is not tried again.
pub const MODULE_LOAD_RETRY_MS: u64 = 10_000;
/// Most memory of one instance of a module, its memories and tables together, where no other is set. Interpreters need most
/// of it.
pub const MODULE_MEMORY_BYTES_MAX: usize = 128 << 20;
/// What it may be set to.
pub const MODULE_MEMORY_BYTES: RangeInclusive<usize> = 1 << 20..=1 << 30;
/// Most memory of all instances of all modules together.
pub const MODULES_MEMORY_BYTES_MAX: usize = 1 << 30;
/// Most instances of all modules together.
pub const MODULES_INSTANCES_MAX: usize = 256;
/// Most bytes that one call gives to a module.
pub const MODULE_CALL_BYTES_MAX: usize = 16 << 20;
/// Most records that one call gives to a module.
pub const MODULE_CALL_RECORDS_MAX: usize = 10_000;
/// Most records of a dry run.
pub const DRY_RUN_RECORDS_MAX: usize = 10_000;
/// Most members that an assignor is tried with.
pub const DRY_RUN_MEMBERS_MAX: usize = 1_000;
/// Most partitions that an assignor is tried with, of all topics together.
pub const DRY_RUN_PARTITIONS_MAX: u64 = 100_000;
/// Most bytes of stored records that a dry run reads; the first of each partition always comes.
pub const DRY_RUN_BYTES_MAX: usize = 16 << 20;
/// Most bytes of records and reasons that the dry run of a processor answers; behind them it ends and says so.
pub const DRY_RUN_OUTPUT_BYTES_MAX: usize = 32 << 20;
/// Most jobs that wait for one module; a further one is refused.
pub const MODULE_QUEUE_JOBS_MAX: usize = 256;
/// How long a produce, a read or a group waits for a module's answer, until it is loaded and its turn comes too; a read as long
/// again for room to read.
pub const MODULE_WAIT_MS_MAX: u64 = 30_000;
/// Most reads through one module that are read and judged at once; the others wait.
pub const FILTERED_READS_AT_ONCE_MAX: usize = 16;
/// CPU time of a transform's or an aggregator's call, before what its records add.
pub const MODULE_CALL_MS_MAX: u64 = 100;
/// What each record adds to that, in microseconds.
pub const MODULE_CALL_RECORD_US_MAX: u64 = 1_000;
/// Most that all its records together add.
pub const MODULE_CALL_RECORDS_MS_MAX: u64 = 10_000;
/// CPU time of a partitioner's call.
pub const MODULE_PARTITION_MS_MAX: u64 = 50;
/// CPU time of an assignor's call.
pub const MODULE_ASSIGN_MS_MAX: u64 = 500;
/// CPU time in which an instance must start, and then take its config.
pub const MODULE_INIT_MS_MAX: u64 = 1_000;
/// Most instructions of one call in a dry run.
pub const MODULE_DRY_RUN_INSTRUCTIONS_MAX: u64 = 2_000_000_000;
/// Most CPU time of the same, for instructions that take unusually long.
pub const MODULE_DRY_RUN_CPU_MS_MAX: u64 = 10_000;
/// What a module's call of the host counts as in a dry run, in instructions; each byte that it hands over is one more.
pub const MODULE_IMPORT_INSTRUCTIONS: u64 = 200;
/// Most lines that are kept of a module's log.
pub const MODULE_LOG_LINES_MAX: usize = 1_000;
/// Most lines that one call may write to it.
pub const MODULE_LOG_CALL_LINES_MAX: usize = 100;
/// Longest line of it; what is beyond is cut.
pub const MODULE_LOG_LINE_BYTES_MAX: usize = 1 << 10;
/// Most counters of one module.
pub const MODULE_COUNTERS_MAX: usize = 64;
/// Longest name of such a counter.
pub const MODULE_COUNTER_NAME_BYTES_MAX: usize = 64;
/// Longest config of a module, as JSON text.
pub const MODULE_CONFIG_BYTES_MAX: usize = 64 << 10;
/// Longest schema of a module's config.
pub const MODULE_SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Most records that a transform may emit in place of one.
pub const MODULE_EMITTED_RECORDS_MAX: usize = 100;
/// Most memory of all records that come of one call, what they share with their inputs included.
pub const MODULE_OUTPUT_BYTES_MAX: usize = 32 << 20;
/// Largest answer of a module to one call.
pub const MODULE_ANSWER_BYTES_MAX: usize = 32 << 20;
/// Longest reason that a module may give.
pub const MODULE_REASON_BYTES_MAX: usize = 1 << 10;
/// Largest accumulator of an aggregator.
pub const MODULE_ACCUMULATOR_BYTES_MAX: usize = 64 << 10;
/// Longest name of a processor: its group and its transactional ids are named after it.
pub const PROCESSOR_NAME_CHARS_MAX: usize = 200;
/// Most processors.
pub const PROCESSORS_MAX: usize = 200;
/// Most topics that one processor reads.
pub const PROCESSOR_SOURCES_MAX: usize = 16;
/// Most steps of one processor.
pub const PROCESSOR_STEPS_MAX: usize = 16;
/// Largest document of a processor, as JSON text.
pub const PROCESSOR_DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// How often a processor may try a record.
pub const PROCESSOR_ATTEMPTS: RangeInclusive<u32> = 1..=100;
/// How often a processor tries a record where its document says nothing.
pub const PROCESSOR_ATTEMPTS_DEFAULT: u32 = 3;
/// How often a processor commits its positions where its document says nothing.
pub const PROCESSOR_COMMIT_INTERVAL_MS_DEFAULT: u64 = 100;
/// Longest time between two commits of a processor's positions.
pub const PROCESSOR_COMMIT_INTERVAL_MS_MAX: u64 = 60_000;
/// After how long a transaction of a processor is aborted that its task has left.
pub const PROCESSOR_TRANSACTION_TIMEOUT_MS: u64 = 5 * 60 * 1000;
/// Most batches that all processors together work on at once; the others wait.
pub const PROCESSOR_BATCHES_AT_ONCE_MAX: usize = 16;
/// How long the first assignment of an empty group waits for more members (`group.initial.rebalance.delay.ms`).
pub const INITIAL_REBALANCE_DELAY_MS: u64 = 500;
/// Least time between two rebalances of a group.
pub const REBALANCE_INTERVAL_MS: u64 = 100;
/// How long committed offsets are kept after their group became empty (`offsets.retention.minutes`): 7 days.
pub const OFFSETS_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1000;
/// Session time-outs that a member may ask for.
pub const SESSION_TIMEOUT_MS: RangeInclusive<u64> = 100..=30 * 60 * 1000;
/// Rebalance time-outs that a member may ask for.
pub const REBALANCE_TIMEOUT_MS: RangeInclusive<u64> = 100..=60 * 60 * 1000;
/// Largest silences between two fetches that a member may ask for.
pub const MAX_POLL_INTERVAL_MS: RangeInclusive<u64> = 100..=24 * 60 * 60 * 1000;
/// Most records of one rejection.
pub const REJECT_RECORDS_MAX: usize = 1_000;
/// Most bytes of the dead letters of one rejection; a single one may be larger.
pub const REJECT_BYTES_MAX: usize = 32 << 20;
/// Most characters of a rejection's reason.
pub const REJECT_REASON_CHARS_MAX: usize = 4_096;
/// Most subscriptions of one WebSocket.
pub const WS_SUBSCRIPTIONS_MAX: usize = 100;
/// Most topics of one subscription of a WebSocket.
pub const WS_SUBSCRIPTION_TOPICS_MAX: usize = 100;
/// Most produces of one WebSocket whose answers are not there yet; then its reading pauses.
pub const WS_INFLIGHT_PRODUCES_MAX: usize = 64;
/// Most bytes of such produces and of the answers to them; one always fits.
pub const WS_INFLIGHT_BYTES_MAX: usize = 16 << 20;
/// Most bytes of answers that wait for one WebSocket to take them; then its reading pauses.
pub const WS_ANSWER_BYTES_MAX: usize = 8 << 20;
/// Most bytes that all WebSockets together hold of messages that have not ended.
pub const WS_ALL_MESSAGES_BYTES_MAX: usize = 256 << 20;
/// How long a message to a WebSocket may take from its first byte to its last.
pub const WS_MESSAGE_TIMEOUT_MS: u64 = 120_000;
/// Most characters of a frame's `id` on a WebSocket.
pub const WS_FRAME_ID_CHARS_MAX: usize = 64;
/// Most frames in a row that are refused before a WebSocket is closed.
pub const WS_ERRORS_IN_A_ROW_MAX: u32 = 100;
