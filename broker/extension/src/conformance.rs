//! What every implementation of a trait of this crate must do, as suites that its tests call.

mod assignor;
mod partitioner;

pub use assignor::assignor;
pub use partitioner::partitioner;
