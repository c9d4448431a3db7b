//! What every module says of itself.

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use crate::bindings::base::levada::plugin::types::{Fault, Fields};

/// A module: what it is set up with, and what it reads.
pub trait Module: Sized + 'static {
    /// Its config, read from JSON; [`NoConfig`] if there is none.
    type Config: DeserializeOwned;

    /// The parts of a record that it reads, such as `Fields::KEY.union(Fields::VALUE)`. Fewer are faster.
    const FIELDS: Fields;

    /// A JSON Schema (2020-12) of the config, for whoever writes it; the broker checks configs against it.
    const CONFIG_SCHEMA: Option<&'static str> = None;

    /// The version of an aggregator's accumulators: a new one when they change their form, with an
    /// [`Aggregator::migrate`](crate::Aggregator::migrate) for the old ones.
    const STATE_VERSION: u32 = 0;

    /// Sets the module up.
    ///
    /// # Errors
    /// When the config will not do, and why: whoever wrote it reads this.
    fn new(config: Self::Config) -> Result<Self, String>;
}

/// The config of a module that takes none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The clock and the randomness of one call. They are the same when the broker repeats the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Milliseconds since 1970 (UTC).
    pub time_ms: i64,
    /// Any number.
    pub seed: u64,
}

impl Call {
    /// A random number that belongs to `place`: the same for the same place in the same call, in whatever order it is asked
    /// for (SplitMix64).
    #[must_use]
    pub fn random(self, place: u64) -> u64 {
        let mut mixed = self.seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
