//! Which assignor a name means, and its run off the threads that answer everyone.

use std::collections::HashMap;
use std::sync::Arc;

use levada_coordinator::{Committed, Coordinator};
use levada_extension::{
    Assignment, Assignor, AssignorFault, AssignorInput, AssignorPartition, AssignorTopic, ModuleConfigError,
    ModuleDigest, TopicPartition, native_assignor,
};
use levada_model::{GroupName, ModuleRef};

use super::kind::Groups;
use super::terms::{AssignorName, GroupError};
use crate::ModuleError;
use crate::catalog::Topics;
use crate::heavy::{Work, compute};
use crate::modules::{Extension, Modules};

/// What a member or partition costs an assignor, in bytes that are looked at once.
const ITEM_BYTES: usize = 1_024;
/// The config of a module that none is given for.
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

/// A group that takes its partitions from a module, with the config that members have for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AssignorVote {
    pub(crate) group: GroupName,
    pub(crate) module: ModuleRef,
    pub(crate) config: String,
}

impl Groups {
    /// The modules that members want as assignors. Waits for what is loaded.
    pub(crate) async fn votes(self: &Arc<Self>) -> Result<Vec<AssignorVote>, GroupError> {
        self.load_all();
        let mut votes = Vec::new();
        for coordinator in self.all() {
            votes.extend(coordinator.look(votes_of).await?);
        }
        Ok(votes)
    }

    /// The same as far as it is known now; waits for nothing.
    pub(crate) fn known_votes(&self) -> Vec<AssignorVote> {
        self.peek(votes_of).flatten().collect()
    }
}

fn votes_of(machine: &Coordinator) -> Vec<AssignorVote> {
    let vote = |(group, vote): (&GroupName, &Arc<str>)| {
        let (name, config) = AssignorName::of_vote(vote);
        let module = ModuleRef::in_setting(name)?;
        Some(AssignorVote { group: group.clone(), module, config: config.unwrap_or(NO_CONFIG).to_owned() })
    };
    machine.votes().filter_map(vote).collect()
}

/// That a module which a member wants its partitions from is there, an assignor, and takes the config. Answers which version
/// that is; none for a built-in assignor.
///
/// A member is not kept out because its module cannot be asked now: the built-in assignor stands in until it can.
pub(super) async fn check(
    modules: &Arc<Modules>,
    assignor: &AssignorName,
) -> Result<Option<(ModuleRef, ModuleDigest)>, GroupError> {
    let AssignorName::Module { module, config } = assignor else { return Ok(None) };
    let (_, meant) = modules.resolve(module).map_err(|_| GroupError::NoAssignor(module.clone()))?;
    let extension = Extension::<dyn Assignor>::new(module.clone(), config.as_deref().unwrap_or(NO_CONFIG));
    let digest = match Arc::new(extension).check(modules).await {
        Ok(asked) => asked,
        Err(
            ModuleError::NotFound(_)
            | ModuleError::NoVersion { .. }
            | ModuleError::Config { error: ModuleConfigError::World { .. }, .. },
        ) => return Err(GroupError::NoAssignor(module.clone())),
        Err(ModuleError::Config { module, error }) => return Err(GroupError::AssignorConfig { module, error }),
        Err(error) => {
            tracing::debug!(%module, %error, "an assignor cannot be asked now");
            meant
        }
    };
    Ok(Some((module.clone(), digest)))
}

/// Asks the assignor that members voted for.
pub(super) async fn assign(
    modules: &Arc<Modules>,
    vote: &str,
    input: AssignorInput,
) -> Result<Assignment, AssignorFault> {
    let (name, config) = AssignorName::of_vote(vote);
    if let Some(module) = ModuleRef::in_setting(name) {
        let extension = Arc::new(Extension::<dyn Assignor>::new(module, config.unwrap_or(NO_CONFIG)));
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
