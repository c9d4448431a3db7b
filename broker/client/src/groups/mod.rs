//! Consumer groups: calls as a member, a [`GroupConsumer`] that keeps its place in a group, and groups as a whole.

mod consumer;
mod describe;
mod member;
mod offsets;
mod record;

pub use consumer::GroupConsumer;
pub use member::{GroupFetched, GroupQuery};
pub use record::GroupRecord;
