//! The broker's own transactional ids, for transactions of one request.

use std::ops::Deref;
use std::sync::Arc;

use levada_model::{Principal, TransactionalId, limits};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Ids that are used again and again, each by one request at a time. Those that were used last come first, so that there
/// are as few as there are requests at once; their names spread them over the coordinators.
pub(crate) struct ExecuteIds {
    room: Arc<Semaphore>,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    returned: Vec<usize>,
    /// How many there are.
    made: usize,
}

/// The id of one request; one without a key has it alone until this is dropped.
pub(super) struct ExecuteId {
    id: TransactionalId,
    ids: Arc<ExecuteIds>,
    number: Option<usize>,
    _room: OwnedSemaphorePermit,
}

impl Default for ExecuteIds {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(limits::EXECUTE_AT_ONCE_MAX)), free: Mutex::default() }
    }
}

impl ExecuteIds {
    /// That of the principal's `Idempotency-Key`, or one that is free; waits while too many are in use.
    pub(super) async fn take(self: &Arc<Self>, who: &Principal, key: Option<&str>) -> ExecuteId {
        let room = self.room.clone().acquire_owned().await.expect("it is never closed");
        let (id, number) = match key {
            Some(key) => (keyed(who, key), None),
            None => {
                let number = self.free.lock().take();
                (numbered(number), Some(number))
            }
        };
        ExecuteId { id, ids: self.clone(), number, _room: room }
    }
}

impl Free {
    fn take(&mut self) -> usize {
        self.returned.pop().unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        })
    }
}

impl Deref for ExecuteId {
    type Target = TransactionalId;

    fn deref(&self) -> &TransactionalId {
        &self.id
    }
}

impl Drop for ExecuteId {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.ids.free.lock().returned.push(number);
        }
    }
}

fn numbered(number: usize) -> TransactionalId {
    TransactionalId::new(&format!("__execute-{number}")).expect("the name keeps the rule")
}

fn keyed(who: &Principal, key: &str) -> TransactionalId {
    let mut hash = Sha256::new();
    for part in [who.as_str(), key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    TransactionalId::new(&format!("__execute-key-{digest}")).expect("the name keeps the rule")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn an_id_is_never_two_requests_and_comes_back() {
        let ids = Arc::new(ExecuteIds::default());
        let mut taken = Vec::new();
        for _ in 0..limits::EXECUTE_AT_ONCE_MAX {
            taken.push(ids.take(&Principal::anonymous(), None).await);
        }
        let names: BTreeSet<_> = taken.iter().map(|id| (**id).clone()).collect();
        assert_eq!(names.len(), taken.len());
        let waiting = tokio::spawn({
            let ids = ids.clone();
            async move { ids.take(&Principal::anonymous(), None).await.clone() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "all are in use");
        let freed = taken.swap_remove(7);
        let name = (*freed).clone();
        drop(freed);
        assert_eq!(waiting.await.expect("it gets one"), name);
        taken.clear();
        let mut again = BTreeSet::new();
        for _ in 0..limits::EXECUTE_AT_ONCE_MAX {
            taken.push(ids.take(&Principal::anonymous(), None).await);
            again.insert(taken.last().expect("pushed").to_string());
        }
        assert_eq!(again.len(), taken.len());
        assert_eq!(
            again,
            names.iter().map(ToString::to_string).collect(),
            "there are no more than were needed at once"
        );
    }

    #[test]
    fn a_keys_id_is_its_principals_own() {
        let (a, b) = (Principal::anonymous(), Principal::broker());
        assert_eq!(keyed(&a, "k"), keyed(&a, "k"));
        assert_ne!(keyed(&a, "k"), keyed(&b, "k"));
        assert_ne!(keyed(&a, "k"), keyed(&a, "l"));
        assert!(keyed(&a, "k").is_internal());
    }
}
