//! Which assignor a name means, and its run off the threads that answer everyone.

use std::sync::Arc;

use levada_extension::{Assignment, Assignor, AssignorFault, AssignorInput, native_assignor};

use crate::heavy::{Work, compute};

/// What a member or partition costs an assignor, in bytes that are looked at once.
const ITEM_BYTES: usize = 1_024;

/// The assignor of this name. Modules will be looked up here.
fn resolve(name: &str) -> Option<Arc<dyn Assignor>> {
    native_assignor(name)
}

/// Asks the assignor of this name.
pub(super) async fn assign(name: &str, input: AssignorInput) -> Result<Assignment, AssignorFault> {
    let Some(assignor) = resolve(name) else {
        return Err(AssignorFault { reason: format!("there is no assignor {name}") });
    };
    let partitions: usize = input.topics.iter().map(|topic| topic.partitions.len()).sum();
    let bytes = (input.members.len() + partitions) * ITEM_BYTES;
    compute(Work::Check, bytes, move || assignor.assign(&input)).await
}
