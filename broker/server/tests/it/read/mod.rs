//! Records on their way out: of a partition, of a topic, as events, one alone, and past damage.

mod feed;
mod gaps;
mod partition;
mod record;
mod topic;
