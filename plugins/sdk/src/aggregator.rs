//! Aggregators: what the records of a group add up to.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Call, Fault, Module, Record};

/// Folds records into accumulators. The broker owns groups, windows, time and the accumulators, and hands over what it wants
/// done; the module keeps nothing.
pub trait Aggregator: Module {
    /// What is accumulated; its default is that of no records. It is kept as JSON, unless [`write`](Self::write) and
    /// [`read`](Self::read) say otherwise, and at most 64 KiB large.
    type Accumulator: Default + Serialize + DeserializeOwned;

    /// What an accumulator is worth, written as JSON.
    type Value: Serialize;

    /// Takes a record in.
    fn add(&self, accumulator: &mut Self::Accumulator, record: &Record<'_>, group: &Group<'_>);

    /// The value of a group; none where there is no row.
    fn value(&self, accumulator: &Self::Accumulator, group: &Group<'_>) -> Option<Self::Value>;

    /// Takes in what came `later`. Sessions that grow together need this.
    ///
    /// # Errors
    /// [`Fault::Unsupported`], unless the module says otherwise.
    fn merge(&self, accumulator: &mut Self::Accumulator, later: Self::Accumulator) -> Result<(), Fault> {
        let _ = (accumulator, later);
        Err(Fault::Unsupported)
    }

    /// Takes a record out again that was taken in. Tables need this.
    ///
    /// # Errors
    /// [`Fault::Unsupported`], unless the module says otherwise.
    fn remove(&self, accumulator: &mut Self::Accumulator, record: &Record<'_>, group: &Group<'_>) -> Result<(), Fault> {
        let _ = (accumulator, record, group);
        Err(Fault::Unsupported)
    }

    /// The last value of a group whose window has closed.
    fn close(&self, accumulator: &Self::Accumulator, group: &Group<'_>) -> Option<Self::Value> {
        self.value(accumulator, group)
    }

    /// An accumulator out of the bytes that `from_version` of [`STATE_VERSION`](Module::STATE_VERSION) wrote.
    ///
    /// # Errors
    /// [`Fault::Unsupported`] for other versions than the present, unless the module says otherwise.
    fn migrate(&self, from_version: u32, bytes: &[u8]) -> Result<Self::Accumulator, Fault> {
        if from_version == Self::STATE_VERSION {
            self.read(bytes).map_err(Fault::Failed)
        } else {
            Err(Fault::Unsupported)
        }
    }

    /// The bytes of an accumulator.
    fn write(&self, accumulator: &Self::Accumulator) -> Vec<u8> {
        serde_json::to_vec(accumulator).expect("an accumulator has a JSON form")
    }

    /// An accumulator out of its bytes.
    ///
    /// # Errors
    /// When they are not what [`write`](Self::write) wrote, and why.
    fn read(&self, bytes: &[u8]) -> Result<Self::Accumulator, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// Which group it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Its key as text.
    pub key: &'a str,
    /// Its window, if there are windows.
    pub window: Option<Window>,
    /// The clock and the randomness of this call.
    pub call: Call,
}

/// A window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first millisecond.
    pub start_ms: i64,
    /// Where it ends, as its kind of window counts.
    pub end_ms: i64,
}
