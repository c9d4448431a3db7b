//! Write modules for Levada: filters, transforms, partitioners, assignors and aggregators, as WebAssembly.
//!
//! A filter that keeps strong earthquakes, whole:
//!
//! ```
//! use levada_plugin::{Fields, Filter, Module, Record};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Strong {
//!     at_least: f64,
//! }
//!
//! #[derive(Deserialize)]
//! struct Quake {
//!     magnitude: f64,
//! }
//!
//! impl Module for Strong {
//!     type Config = Self;
//!     const FIELDS: Fields = Fields::VALUE;
//!
//!     fn new(config: Self) -> Result<Self, String> {
//!         Ok(config)
//!     }
//! }
//!
//! impl Filter for Strong {
//!     fn keep(&self, record: &Record<'_>) -> bool {
//!         record.json::<Quake>().is_ok_and(|quake| quake.magnitude >= self.at_least)
//!     }
//! }
//!
//! levada_plugin::export!(Strong: filter);
//! # // What follows is a test; it needs no WebAssembly.
//! # use levada_plugin::testing::{TestRecord, filter};
//! let records = [r#"{"magnitude":6.1}"#, r#"{"magnitude":2.5}"#, "no JSON"].map(TestRecord::value);
//! assert_eq!(filter(&Strong { at_least: 5.0 }, &records), [true, false, false]);
//! ```
//!
//! Its `Cargo.toml` has `crate-type = ["cdylib", "rlib"]`; `cargo build --release --target wasm32-unknown-unknown` makes a
//! `.wasm` that the broker takes as it is. [`testing`] runs a module natively, over the very bytes that the broker sends.
//!
//! A module names the parts of a record that it reads ([`Module::FIELDS`]); what it is not given looks like null. It has no
//! clock and no randomness but [`Call`], so that the broker can repeat a call and get the same. It may [`log`] and count
//! ([`counter`]). A panic stops the instance and writes its message to the module's log: the broker finds the record that
//! caused it, and does with it what its user said.
//!
//! Not here: the contract itself (`plugins/wit`), which this crate hides.

mod aggregator;
mod assignor;
#[doc(hidden)]
pub mod bindings;
mod export;
mod host;
mod layout;
mod module;
mod partitioner;
mod pointer;
pub mod testing;
mod transform;

pub use aggregator::{Aggregator, Group, Window};
pub use assignor::{Assignor, AssignorInput, Member, Partition, Topic, TopicPartition};
#[doc(hidden)]
pub use export::glue;
pub use host::{Level, counter, log};
pub use layout::{Headers, KeyRecord, LayoutError, Record};
pub use module::{Call, Fault, Fields, Module, NoConfig};
pub use partitioner::{Partitioner, default_partition, murmur2};
pub use pointer::{Pointer, PointerError};
pub use transform::{Emitted, Filter, Transform, Verdict};
