//! A host whose modules are JSON documents: it does what the real one does, with threads of its own and typed faults, and no
//! WebAssembly. What a module does is in its document, its config and the words of the records that it is given.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use levada_extension::{
    Aggregator, Assignment, Assignor, AssignorFault, AssignorInput, AssignorMember, CallBatch, EmittedRecord, Fields,
    HostUsage, Keys, LogLevel, LogLine, LogPage, ModuleBusy, ModuleConfigError, ModuleDescription, ModuleDigest,
    ModuleFault, ModuleHost, ModuleJob, ModuleRefusal, ModuleStats, ModuleVersion, ModuleWorld, NativeAggregator, Part,
    Partitioner, RangeAssignor, StopCause, TopicPartition, Transform, Verdict, Verdicts,
};
use levada_model::{PartitionIndex, Timestamp};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

/// The threads that modules run on have this name.
const THREAD: &str = "module";

/// What a test sees of a host, and may turn.
#[derive(Default)]
pub struct Host {
    /// What was made of modules: what the real host keeps on the disk.
    pub artifacts: Mutex<BTreeSet<ModuleDigest>>,
    /// How often something was compiled.
    pub compiled: AtomicUsize,
    /// How often something was loaded.
    pub loaded: AtomicUsize,
    /// Whether it takes no job.
    pub busy: AtomicBool,
    /// Records that each call was given.
    pub calls: Mutex<Vec<usize>>,
    /// How often records with `flaky` trap before they pass.
    pub trips: AtomicUsize,
    /// Whether modules with `gated` have to wait in their calls, and those with `gated_init` when they are given a config.
    gate: Mutex<bool>,
    /// How often one had to.
    pub waiting: AtomicUsize,
    opened: Condvar,
}

/// A host as engines take it.
#[derive(Clone, Default)]
pub struct HostHandle(pub Arc<Host>);

struct Version {
    host: HostHandle,
    document: Arc<Value>,
    description: ModuleDescription,
    journal: Arc<Mutex<Journal>>,
}

#[derive(Default)]
struct Journal {
    stats: ModuleStats,
    lines: Vec<LogLine>,
}

/// A module with a config.
struct Configured {
    host: HostHandle,
    document: Arc<Value>,
    config: Value,
    journal: Arc<Mutex<Journal>>,
}

/// The bytes of a module that is all this; `more` goes into its document.
///
/// # Panics
/// When `more` is no object.
#[must_use]
pub fn module(worlds: &[&str], more: Value) -> Bytes {
    let mut document = json!({ "worlds": worlds });
    let more = more.as_object().expect("an object").clone();
    document.as_object_mut().expect("an object").extend(more);
    document.to_string().into()
}

impl HostHandle {
    /// Has modules with `gated` or `gated_init` wait, or go on.
    pub fn hold(&self, hold: bool) {
        *self.0.gate.lock() = hold;
        self.0.opened.notify_all();
    }

    fn pass_gate(&self) {
        let mut is_held = self.0.gate.lock();
        while *is_held {
            self.0.waiting.fetch_add(1, Ordering::SeqCst);
            self.0.opened.wait(&mut is_held);
        }
    }

    fn version(&self, wasm: &Bytes) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        let invalid = |detail: String| ModuleRefusal::Invalid { detail };
        let document: Value = serde_json::from_slice(wasm).map_err(|error| invalid(error.to_string()))?;
        let worlds: Vec<ModuleWorld> =
            serde_json::from_value(document["worlds"].clone()).map_err(|error| invalid(error.to_string()))?;
        if worlds.is_empty() {
            return Err(ModuleRefusal::MissingExport { export: "a world".to_owned() });
        }
        let description = ModuleDescription {
            digest: ModuleDigest::of(wasm),
            size_bytes: wasm.len() as u64,
            worlds,
            fields: Fields::KEY | Fields::VALUE,
            config_schema: document.get("schema").map(Value::to_string),
            state_version: 1,
        };
        let journal = Arc::default();
        Ok(Arc::new(Version { host: self.clone(), document: Arc::new(document), description, journal }))
    }
}

impl ModuleHost for HostHandle {
    fn compile(&self, wasm: &Bytes) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        self.0.compiled.fetch_add(1, Ordering::SeqCst);
        let version = self.version(wasm)?;
        self.0.artifacts.lock().insert(ModuleDigest::of(wasm));
        Ok(version)
    }

    fn load(
        &self,
        digest: ModuleDigest,
        wasm: &dyn Fn() -> io::Result<Bytes>,
    ) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        self.0.loaded.fetch_add(1, Ordering::SeqCst);
        let wasm = wasm().map_err(|error| ModuleRefusal::Host { reason: error.to_string() })?;
        assert_eq!(ModuleDigest::of(&wasm), digest, "the engine checks what it reads");
        self.0.artifacts.lock().insert(digest);
        self.version(&wasm)
    }

    fn forget(&self, digest: ModuleDigest) {
        self.0.artifacts.lock().remove(&digest);
    }

    fn keep_only(&self, known: &BTreeSet<ModuleDigest>) {
        self.0.artifacts.lock().retain(|digest| known.contains(digest));
    }

    fn usage(&self) -> HostUsage {
        HostUsage::default()
    }
}

impl Version {
    fn configured(&self, world: ModuleWorld, config: &str) -> Result<Configured, ModuleConfigError> {
        if !self.description.worlds.contains(&world) {
            return Err(ModuleConfigError::World { world });
        }
        if self.document["gated_init"] == json!(true) {
            self.host.pass_gate();
        }
        let wrong = |detail: String| ModuleConfigError::Schema { detail };
        let config: Value = serde_json::from_str(config).map_err(|error| wrong(error.to_string()))?;
        if !config.is_object() {
            return Err(wrong("it is no object".to_owned()));
        }
        if config["refuse"] == json!(true) || self.document["refuses"] == json!(true) {
            return Err(ModuleConfigError::Refused { reason: "I was told to".to_owned() });
        }
        let (host, document, journal) = (self.host.clone(), self.document.clone(), self.journal.clone());
        journal.lock().stats.instances += 1;
        Ok(Configured { host, document, config, journal })
    }
}

impl ModuleVersion for Version {
    fn describe(&self) -> &ModuleDescription {
        &self.description
    }

    fn run(&self, job: ModuleJob) -> Result<(), ModuleBusy> {
        if self.host.0.busy.load(Ordering::SeqCst) {
            return Err(ModuleBusy { reason: "it was told to be busy".to_owned() });
        }
        let builder = thread::Builder::new().name(THREAD.to_owned());
        builder.spawn(job).map(drop).map_err(|error| ModuleBusy { reason: error.to_string() })
    }

    fn partitioner(&self, config: &str) -> Result<Arc<dyn Partitioner>, ModuleConfigError> {
        Ok(Arc::new(self.configured(ModuleWorld::Partitioner, config)?))
    }

    fn assignor(&self, _: &str, config: &str) -> Result<Arc<dyn Assignor>, ModuleConfigError> {
        Ok(Arc::new(self.configured(ModuleWorld::Assignor, config)?))
    }

    fn transform(&self, config: &str) -> Result<Arc<dyn Transform>, ModuleConfigError> {
        Ok(Arc::new(self.configured(ModuleWorld::Transform, config)?))
    }

    fn aggregator(&self, config: &str) -> Result<Arc<dyn Aggregator>, ModuleConfigError> {
        self.configured(ModuleWorld::Aggregator, config).map(|_| NativeAggregator::Count.build())
    }

    fn dry_run(&self) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        if !self.host.0.artifacts.lock().contains(&self.description.digest) {
            return Err(ModuleRefusal::Host { reason: "what was made of the module is gone".to_owned() });
        }
        let journal = Arc::new(Mutex::new(Journal::default()));
        journal.lock().stats.instructions = Some(0);
        let (host, document, description) = (self.host.clone(), self.document.clone(), self.description.clone());
        Ok(Arc::new(Self { host, document, description, journal }))
    }

    fn logs(&self, from: u64, lines_max: usize) -> LogPage {
        let journal = self.journal.lock();
        let lines: Vec<_> = journal.lines.iter().filter(|line| line.number >= from).take(lines_max).cloned().collect();
        let next = lines.last().map_or(from, |line| line.number + 1);
        LogPage { lines, next, dropped: 0 }
    }

    fn stats(&self) -> ModuleStats {
        self.journal.lock().stats.clone()
    }
}

impl Configured {
    /// Notes a call, which must be on a thread of the host.
    fn called(&self, records: usize) {
        assert_eq!(thread::current().name(), Some(THREAD), "modules run on threads of the host alone");
        self.host.0.calls.lock().push(records);
        {
            let mut journal = self.journal.lock();
            journal.stats.calls += 1;
            journal.stats.records += records as u64;
            journal.stats.instructions = journal.stats.instructions.map(|count| count + 10 * records as u64);
            let number = journal.lines.len() as u64;
            let message = format!("called with {records}");
            journal.lines.push(LogLine { number, time: Timestamp(0), level: LogLevel::Info, message });
        }
        if self.document["gated"] == json!(true) {
            self.host.pass_gate();
        }
    }

    fn judge(&self, value: &str) -> Result<Verdict, ModuleFault> {
        let has = |word: &str| value.contains(word);
        let stopped = |cause, reason: &str| ModuleFault::Stopped { cause, reason: reason.to_owned() };
        if has("trap") {
            return Err(stopped(StopCause::Trap, "it trapped"));
        }
        let trips = &self.host.0.trips;
        if has("flaky") && trips.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(stopped(StopCause::Trap, "it trapped this time"));
        }
        if has("deadline") {
            return Err(stopped(StopCause::Deadline, "it took too long"));
        }
        if has("wrong-answer") {
            let fault = levada_extension::PartitionFault::Length { expected: 1, got: 0 };
            return Err(fault.into());
        }
        let drops = self.config["drop"].as_str().unwrap_or("drop");
        Ok(if has("reject") {
            Verdict::Reject(format!("{value} is not for us"))
        } else if has(drops) {
            Verdict::Drop
        } else if has("twice") {
            Verdict::Emit(vec![emitted(format!("{value}/1")), emitted(format!("{value}/2"))])
        } else if self.document["upper"] == json!(true) {
            Verdict::Emit(vec![emitted(value.to_uppercase())])
        } else {
            Verdict::Pass
        })
    }
}

fn emitted(value: String) -> EmittedRecord {
    let value = Part::Given(Some(Bytes::from(value)));
    EmittedRecord { key: Part::Input, value, headers: Part::Input, timestamp: Part::Input }
}

impl Transform for Configured {
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
        self.called(batch.record_count());
        if let Some(max) = self.document["records_max"].as_u64()
            && batch.record_count() as u64 > max
        {
            return Err(ModuleFault::TooLarge { bytes: batch.record_count(), bytes_max: 1 });
        }
        let mut verdicts = Vec::new();
        for record in batch.records() {
            let record = record?;
            let place = format!("{}/{}/{}", record.topic, record.partition, record.offset);
            verdicts.push(match record.value {
                Some(b"where") => Verdict::Emit(vec![emitted(place)]),
                value => self.judge(&String::from_utf8_lossy(value.unwrap_or_default()))?,
            });
        }
        let is_filter = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Pass | Verdict::Drop));
        if !is_filter {
            return Ok(Verdicts::Each(verdicts));
        }
        let kept = (0..).zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Pass).map(|(place, _)| place);
        Ok(Verdicts::Keep(kept.collect()))
    }
}

impl Partitioner for Configured {
    fn partition(&self, _: &[Option<&[u8]>], _: u32) -> Vec<PartitionIndex> {
        panic!("the engine asks a module with all that it may read");
    }

    fn place(&self, keys: &Keys<'_>, partition_count: u32) -> Result<Vec<PartitionIndex>, ModuleFault> {
        self.called(keys.records.len());
        if keys.records.iter().any(|record| record.key == Some(b"trap")) {
            return Err(ModuleFault::Stopped { cause: StopCause::Trap, reason: "it trapped".to_owned() });
        }
        let place = |key: Option<&[u8]>| match self.config["to"].as_u64() {
            Some(to) => PartitionIndex(u32::try_from(to).expect("small")),
            None => PartitionIndex(u32::try_from(key.unwrap_or_default().len()).expect("small") % partition_count),
        };
        Ok(keys.records.iter().map(|record| place(record.key)).collect())
    }
}

impl Assignor for Configured {
    fn name(&self) -> &str {
        "module"
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        self.called(input.members.len());
        if self.document["traps"] == json!(true) {
            return Err(AssignorFault { reason: "it trapped".to_owned() });
        }
        // `only` names the instance that gets everything.
        if let Some(only) = self.config["only"].as_str() {
            let is_it = |member: &AssignorMember| member.instance_id.as_ref().is_some_and(|id| id.as_str() == only);
            let all = input.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|at| TopicPartition { topic: topic.topic, partition: at.partition })
            });
            let all: Vec<_> = all.collect();
            let share = |member| if is_it(member) { all.clone() } else { Vec::new() };
            return Ok(input.members.iter().map(share).collect());
        }
        RangeAssignor.assign(input)
    }
}
