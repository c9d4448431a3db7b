//! The engine as a whole: options, opening, health, numbers, closing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_extension::ModuleHost;
use levada_log::{Storage, StorageError};
use levada_model::{Authorizer, Clock, ClusterId, NodeId, Operation, Principal, Resource};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::compaction::{self, Cleaner};
use crate::directory::{Directory, LogThreads};
use crate::groups::{GroupKind, GroupOptions, Groups};
use crate::metadata::{Metadata, RedbMetadata};
use crate::modules::Modules;
use crate::partition::{Shut, blocking};
use crate::processors::Processors;
use crate::producer_ids::ProducerIds;
use crate::transactions::{ExecuteIds, LocalMarkers, TransactionKind, Transactions};
use crate::{coordinators, maintenance, modules, processors, start};

/// The only node there is.
pub(crate) const NODE: NodeId = NodeId(1);

/// What an engine is made of.
pub struct EngineOptions {
    /// Where everything lies.
    pub storage: Arc<dyn Storage>,
    /// The data directory within the storage.
    pub data_dir: PathBuf,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Who may do what.
    pub authorizer: Arc<dyn Authorizer>,
    /// Whether the first produce to a topic creates it.
    pub auto_create_topics: bool,
    /// How long a partition remembers a producer after its last append.
    pub producer_expiration: Duration,
    /// How often retention, age rolls, checkpoints and compaction are looked after.
    pub maintenance_interval: Duration,
    /// Most memory that compaction takes for the keys of the log that it is at; what does not fit takes further passes.
    pub compaction_memory_bytes: usize,
    /// How long the owner of a partition waits for company before it writes and syncs a group; zero: not at all.
    pub linger: Duration,
    /// The settings of consumer groups.
    pub groups: GroupOptions,
    /// What runs modules; without it they are kept and not run, and what needs one falls back or is refused.
    pub modules: Option<Arc<dyn ModuleHost>>,
}

/// Whether the engine takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// All is well.
    Serving,
    /// A sync or write failed or the disk is full: reads go on up to what was synced, writes are refused until a
    /// restart.
    Fenced {
        /// What happened.
        reason: String,
    },
    /// Closing; writes are refused.
    Closing,
}

/// Numbers since the start, and sizes now. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Topics there are.
    pub topics: u64,
    /// Partitions there are.
    pub partitions: u64,
    /// Bytes of all log segments.
    pub log_bytes: u64,
    /// Appends that wait for their partition's owner.
    pub waiting_appends: u64,
    /// Records appended.
    pub appended_records: u64,
    /// Bytes of batches appended.
    pub appended_bytes: u64,
    /// Groups written (one write call each).
    pub groups_written: u64,
    /// Syncs of segment files.
    pub syncs: u64,
    /// Appends that were recognised as duplicates.
    pub duplicates: u64,
    /// Bytes of batches read, from memory and from files.
    pub read_bytes: u64,
    /// Reads answered from the tail cache.
    pub tail_cache_hits: u64,
    /// Reads that went to a file.
    pub file_reads: u64,
    /// Bytes in the tail cache.
    pub tail_cache_bytes: u64,
    /// Stretches of offsets lost to damage.
    pub damaged_ranges: u64,
    /// Segments that retention removed.
    pub segments_removed: u64,
    /// Passes of compaction that were put in place.
    pub compaction_passes: u64,
    /// Bytes of segments that these passes read.
    pub compaction_read_bytes: u64,
    /// Bytes of segments that they wrote.
    pub compaction_written_bytes: u64,
    /// Passes that failed.
    pub compaction_failures: u64,
    /// Partitions whose last pass failed.
    pub compaction_failing: u64,
    /// Consumer groups and their members; those whose coordinator is being loaded are not among them.
    pub groups: GroupStats,
    /// Rebalances that groups have begun.
    pub group_rebalances: u64,
    /// Records that were copied to dead letters.
    pub dead_letters: u64,
    /// Modules there are.
    pub modules: u64,
    /// Times that murmur2 stood in for a partitioner that had no usable answer.
    pub partitioner_fallbacks: u64,
    /// Records that validators rejected.
    pub records_rejected: u64,
    /// Processors there are.
    pub processors: u64,
    /// Those that stand still over a record or fault.
    pub processors_failed: u64,
    /// Records that processors have taken in, with their positions committed.
    pub processor_records_in: u64,
    /// Records that they have stored in their sinks.
    pub processor_records_out: u64,
    /// Records that they passed over.
    pub processor_skipped: u64,
    /// Records that failed.
    pub processor_errors: u64,
    /// Transactions that are open or being ended; those whose coordinator is being loaded are not among them.
    pub transactions_open: u64,
    /// Transactions that began; one that was begun before a restart and had nothing in it counts again.
    pub transactions_begun: u64,
    /// Transactions whose commit stands.
    pub transactions_committed: u64,
    /// Transactions whose abort stands, whoever wanted it.
    pub transactions_aborted: u64,
    /// Those among them whose time was over.
    pub transactions_timed_out: u64,
}

/// Consumer groups by how they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Without members.
    pub empty: u64,
    /// A new assignment is due.
    pub assigning: u64,
    /// Members give up and take over partitions.
    pub reconciling: u64,
    /// Every member holds what it shall.
    pub stable: u64,
    /// Members of all groups.
    pub members: u64,
}

/// Why an engine could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A log could not be opened.
    #[error(transparent)]
    Log(#[from] levada_log::OpenError),
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metadata store could not be opened; nothing was changed.
    #[error("the metadata in {path}: {detail}")]
    Metadata {
        /// The file.
        path: String,
        /// What is wrong and what to do.
        detail: String,
    },
    /// There is no host for modules.
    #[error("modules cannot be run: {detail}")]
    Modules {
        /// What is wrong.
        detail: String,
    },
}

/// Why closing was not clean; the next start recovers.
#[derive(Debug, Error)]
#[error("not everything could be closed cleanly: {0}")]
pub struct CloseError(pub String);

/// A handle to the engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

/// What the handles share. When the last one is dropped without a close, the next start recovers.
pub(crate) struct Core {
    pub(crate) directory: Arc<Directory>,
    pub(crate) metadata: Arc<dyn Metadata>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) auto_create_topics: bool,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) groups: Arc<Groups>,
    pub(crate) transactions: Arc<Transactions>,
    pub(crate) execute_ids: Arc<ExecuteIds>,
    pub(crate) modules: Arc<Modules>,
    pub(crate) processors: Processors,
    /// Held by whoever changes topics.
    pub(crate) changes: Mutex<()>,
    data_dir: PathBuf,
    closing: AtomicBool,
    closed: tokio::sync::Mutex<bool>,
    /// Ends the maintenance task.
    stop: Arc<Notify>,
    pub(crate) cleaner: Arc<Cleaner>,
    log_threads: Mutex<Option<LogThreads>>,
}

impl Engine {
    /// Opens what lies in the data directory (or starts a new one) and recovers it. Blocks; needs a Tokio runtime around
    /// it only for the maintenance task.
    ///
    /// # Errors
    /// When something there needs a person; nothing is changed then.
    pub fn open(options: EngineOptions) -> Result<Self, OpenError> {
        let directory = Directory::new(&options);
        Self::open_in(options, directory)
    }

    /// As [`open`](Self::open), with mistakes in its logs that a test must find.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "sim")]
    pub fn open_with_faults(options: EngineOptions, faults: levada_log::PlantedFaults) -> Result<Self, OpenError> {
        let directory = Directory::new(&options).with_faults(faults);
        Self::open_in(options, directory)
    }

    fn open_in(options: EngineOptions, directory: Directory) -> Result<Self, OpenError> {
        let directory = Arc::new(directory);
        let start = start::prepare(&*options.storage, &options.data_dir, &directory)?;
        let metadata = RedbMetadata::open(&*options.storage, &options.data_dir, start.may_be_new)?;
        let up_to_date = coordinators::bring_up_to_date::<GroupKind>(&metadata)
            .and_then(|()| coordinators::bring_up_to_date::<TransactionKind>(&metadata));
        up_to_date.map_err(|error| OpenError::Metadata {
            path: options.data_dir.display().to_string(),
            detail: error.to_string(),
        })?;
        let catalog = Arc::new(start::open_topics(&directory, &metadata, &start)?);
        let metadata: Arc<dyn Metadata> = Arc::new(metadata);
        let modules = Modules::new(options.modules, directory.clone(), options.data_dir.clone(), metadata.clone());
        modules.sweep();
        let modules = Arc::new(modules);
        let groups = Arc::new(Groups::of(&options.groups, modules.clone(), catalog.clone(), directory.clone()));
        let log_threads = directory.start();
        let markers = LocalMarkers::new(catalog.clone(), groups.clone(), directory.clone());
        let transactions = Arc::new(Transactions::of(Arc::new(markers), catalog.clone(), directory.clone()));
        let core = Arc::new(Core {
            producer_ids: ProducerIds::new(metadata.image().next_producer_id),
            directory,
            metadata,
            catalog,
            authorizer: options.authorizer,
            auto_create_topics: options.auto_create_topics,
            groups,
            transactions,
            execute_ids: Arc::default(),
            modules,
            processors: Processors::default(),
            changes: Mutex::new(()),
            data_dir: options.data_dir,
            closing: AtomicBool::new(false),
            closed: tokio::sync::Mutex::new(false),
            stop: Arc::new(Notify::new()),
            cleaner: Arc::default(),
            log_threads: Mutex::new(Some(log_threads)),
        });
        maintenance::start(&core, options.maintenance_interval, core.stop.clone());
        coordinators::start_ticker(&core.groups);
        coordinators::start_ticker(&core.transactions);
        compaction::start(&core, options.maintenance_interval);
        modules::start(&core.modules);
        processors::start(&core);
        Ok(Self { core })
    }

    /// Whether writes are taken.
    #[must_use]
    pub fn health(&self) -> Health {
        if self.core.is_closing() {
            return Health::Closing;
        }
        match self.core.directory.fenced() {
            Some(reason) => Health::Fenced { reason: reason.to_owned() },
            None => Health::Serving,
        }
    }

    /// Numbers for the metrics page.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = self.core.directory.counters();
        let topics = self.core.catalog.topics();
        let mut stats = Stats {
            topics: topics.len() as u64,
            appended_records: counters.appended_records.get(),
            appended_bytes: counters.appended_bytes.get(),
            groups_written: counters.groups_written.get(),
            syncs: counters.syncs.get(),
            duplicates: counters.duplicates.get(),
            read_bytes: counters.read_bytes.get(),
            tail_cache_hits: counters.tail_cache_hits.get(),
            file_reads: counters.file_reads.get(),
            tail_cache_bytes: self.core.directory.tail_budget().used_bytes() as u64,
            segments_removed: counters.segments_removed.get(),
            compaction_passes: counters.compaction_passes.get(),
            compaction_read_bytes: counters.compaction_read_bytes.get(),
            compaction_written_bytes: counters.compaction_written_bytes.get(),
            compaction_failures: counters.compaction_failures.get(),
            groups: self.core.groups.stats(),
            group_rebalances: counters.group_rebalances.get(),
            dead_letters: counters.dead_letters.get(),
            modules: self.core.metadata.image().modules.len() as u64,
            partitioner_fallbacks: counters.partitioner_fallbacks.get(),
            records_rejected: counters.records_rejected.get(),
            processors: self.core.metadata.image().processors.len() as u64,
            processors_failed: self.core.processors.failed_count(),
            processor_records_in: counters.processor_records_in.get(),
            processor_records_out: counters.processor_records_out.get(),
            processor_skipped: counters.processor_skipped.get(),
            processor_errors: counters.processor_errors.get(),
            transactions_open: self.core.transactions.open_count(),
            transactions_begun: counters.transactions_begun.get(),
            transactions_committed: counters.transactions_committed.get(),
            transactions_aborted: counters.transactions_aborted.get(),
            transactions_timed_out: counters.transactions_timed_out.get(),
            ..Stats::default()
        };
        for topic in topics.iter() {
            for partition in topic.state().partitions() {
                stats.partitions += 1;
                stats.waiting_appends += partition.waiting_appends() as u64;
                stats.log_bytes += partition.size_bytes();
                stats.damaged_ranges += partition.reader().damage_count() as u64;
                stats.compaction_failing += u64::from(partition.compaction_failure().is_some());
            }
        }
        stats
    }

    /// The cluster's identity.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.core.metadata.image().cluster_id
    }

    /// This node.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        NODE
    }

    /// Looks after retention, age rolls, checkpoints and retiring partitions now, as the maintenance task does at every
    /// interval, and does what is due in consumer groups and transactions. Blocks.
    pub fn run_maintenance(&self) {
        self.core.groups.tick();
        self.core.transactions.tick();
        maintenance::run(&self.core);
    }

    /// Refuses new appends, writes and syncs what was accepted, answers it, wakes waiting readers, closes every log and
    /// leaves the clean-shutdown marker.
    ///
    /// # Errors
    /// When a log could not be closed; the next start recovers.
    pub async fn close(&self) -> Result<(), CloseError> {
        let mut closed = self.core.closed.lock().await;
        if *closed {
            return Ok(());
        }
        self.core.processors.stop().await;
        let core = self.core.clone();
        let result = blocking(move || core.close()).await;
        *closed = true;
        result
    }
}

impl Core {
    /// Whether the engine is closing or closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Asks the authorizer.
    pub(crate) fn authorize(
        &self,
        who: &Principal,
        operation: Operation,
        resource: Resource<'_>,
    ) -> Result<(), levada_model::Denied> {
        self.authorizer.authorize(who, operation, resource)
    }

    fn close(&self) -> Result<(), CloseError> {
        self.closing.store(true, Ordering::Release);
        self.groups.close();
        self.transactions.close();
        self.modules.close();
        self.stop.notify_one();
        self.cleaner.stop();
        // No topic comes or goes from here on, since changes are refused while closing.
        let _changes = self.changes.lock();
        self.metadata.close();
        let topics = self.catalog.topics();
        let partitions: Vec<_> =
            topics.iter().flat_map(|topic| topic.state().partitions().cloned().collect::<Vec<_>>()).collect();
        if let Some(threads) = &*self.log_threads.lock() {
            threads.hurry();
        }
        partitions.iter().for_each(|partition| partition.cancel_cleaning());
        partitions.iter().for_each(|partition| partition.stop_cleaning());
        partitions.iter().for_each(|partition| partition.shut(Shut::Closing));
        topics.iter().for_each(|topic| topic.wake_all());
        drop(self.log_threads.lock().take());
        if let Some(reason) = self.directory.fenced() {
            return Err(CloseError(reason.to_owned()));
        }
        let results = start::in_parallel(partitions, |partition| partition.close());
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return Err(CloseError(error.to_string()));
        }
        start::leave_clean_marker(&**self.directory.storage(), &self.data_dir)
            .map_err(|error| CloseError(error.to_string()))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.stop.notify_one();
        self.processors.abandon();
        self.modules.close();
        self.cleaner.stop();
        for topic in self.catalog.topics().iter() {
            topic.state().partitions().for_each(|partition| partition.cancel_cleaning());
        }
    }
}
