//! Records on their way out: of a partition, of a topic, as events, one alone.

mod feed;
mod partition;
mod record;
mod topic;
