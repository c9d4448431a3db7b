//! What the tests share: a host with its directory, modules, batches.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{CallBatch, CallSection, ModuleHost, ModuleRefusal, ModuleVersion, Moment};
use levada_host::{Compiler, Host, HostOptions};
use levada_model::{ManualClock, PartitionIndex, Record, Timestamp, TopicName};
use tempfile::TempDir;

/// A host, and the directory that it has.
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) directory: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut HostOptions)) -> Self {
        let directory = TempDir::new().expect("a directory");
        let mut options = HostOptions::new(directory.path().join("compiled"), Compiler::InProcess, clock());
        change(&mut options);
        Self { host: Host::open(options).expect("a host"), directory }
    }

    pub(crate) fn module(&self, wasm: impl AsRef<[u8]>) -> Arc<dyn ModuleVersion> {
        self.compile(wasm).unwrap_or_else(|refusal| panic!("refused: {refusal}"))
    }

    pub(crate) fn compile(&self, wasm: impl AsRef<[u8]>) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        self.host.compile(&Bytes::copy_from_slice(wasm.as_ref()))
    }
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)))
}

/// A batch of values.
pub(crate) fn batch(values: &[&str]) -> CallBatch {
    let record = |value: &&str| {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        (Timestamp(5), Record { key: Some(Bytes::from_static(b"k")), value, headers: vec![] })
    };
    let records: Vec<_> = values.iter().map(record).collect();
    let topic = TopicName::new("t").expect("a name");
    let moment = Moment { time: Timestamp(1_600_000_000_123), seed: 7 };
    CallBatch { moment, sections: vec![CallSection::unstored(topic, PartitionIndex(0), &records)] }
}
