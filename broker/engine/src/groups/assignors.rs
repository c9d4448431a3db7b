//! Which assignor a name means, and its run off the threads that answer everyone.

use std::collections::HashMap;
use std::sync::Arc;

use levada_coordinator::Committed;
use levada_extension::{
    Assignment, Assignor, AssignorFault, AssignorInput, AssignorPartition, AssignorTopic, TopicPartition,
    native_assignor,
};
use levada_model::ModuleRef;

use crate::catalog::Topics;
use crate::heavy::{Work, compute};
use crate::modules::{Extension, Modules};

/// What a member or partition costs an assignor, in bytes that are looked at once.
const ITEM_BYTES: usize = 1_024;
/// Members name a module alone.
const NO_CONFIG: &str = "{}";

/// The input with what is left to read of each partition of which something is committed.
pub(super) fn with_lags(
    mut input: AssignorInput,
    committed: &[(TopicPartition, Committed)],
    topics: &Topics,
) -> AssignorInput {
    let committed: HashMap<_, _> = committed.iter().map(|(at, committed)| (*at, committed.offset)).collect();
    for AssignorTopic { topic: id, partitions, .. } in &mut input.topics {
        let Some(state) = topics.by_id(*id).map(|topic| topic.state_full()) else { continue };
        for AssignorPartition { partition: index, lag } in partitions {
            let next = committed.get(&TopicPartition { topic: *id, partition: *index });
            if let (Some(next), Some(partition)) = (next, state.partition(*index)) {
                *lag = Some(partition.last_stable_offset().0.saturating_sub(next.0));
            }
        }
    }
    input
}

/// Asks the assignor of this name.
pub(super) async fn assign(
    modules: &Arc<Modules>,
    name: &str,
    input: AssignorInput,
) -> Result<Assignment, AssignorFault> {
    if let Some(module) = ModuleRef::in_setting(name) {
        let extension = Arc::new(Extension::<dyn Assignor>::new(module, NO_CONFIG));
        let assigned = extension.call(modules, move |assignor| Ok(assignor.assign(&input))).await;
        return assigned.unwrap_or_else(|fault| Err(AssignorFault { reason: fault.to_string() }));
    }
    let Some(assignor) = native_assignor(name) else {
        return Err(AssignorFault { reason: format!("there is no assignor {name}") });
    };
    let partitions: usize = input.topics.iter().map(|topic| topic.partitions.len()).sum();
    let bytes = (input.members.len() + partitions) * ITEM_BYTES;
    compute(Work::Check, bytes, move || assignor.assign(&input)).await
}
