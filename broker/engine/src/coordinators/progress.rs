//! How far the records of a coordinator have come: what is durable, and what failed first.

use std::sync::Arc;

use levada_log::AppendError;
use levada_model::Offset;
use tokio::sync::{mpsc, oneshot, watch};

use super::fault::CoordinatorFault;
use crate::AppendFault;
use crate::partition::{Landed, Landings};
use crate::produce::landing;

/// A batch that was handed to the partition's owner.
pub(super) struct Landing {
    /// The owner's answer.
    pub(super) answer: oneshot::Receiver<Landings>,
    /// The offset behind the batch.
    pub(super) end: Offset,
}

/// What became of the batches of one coordinator, from its load on.
pub(super) struct Progress(watch::Sender<Marks>);

struct Marks {
    /// All before this is durable.
    durable: Offset,
    /// Why the first batch that was not stored was not; none behind it is.
    failed: Option<Arc<AppendFault>>,
    /// All batches are answered, and no more come.
    ended: bool,
}

/// A place in the log that has to be durable before somebody is answered.
pub(crate) struct Receipt {
    progress: Arc<Progress>,
    end: Offset,
}

impl Progress {
    pub(super) fn new(durable: Offset) -> Self {
        Self(watch::Sender::new(Marks { durable, failed: None, ended: false }))
    }

    /// Notes the answers to all batches, in order. Tells `stored` of each whether it was, up to the first that was not, and
    /// only then those who wait.
    pub(super) async fn follow(self: Arc<Self>, mut batches: mpsc::UnboundedReceiver<Landing>, stored: impl Fn(bool)) {
        let _guard = EndGuard(&self);
        while let Some(Landing { answer, end }) = batches.recv().await {
            // What the log had already lies elsewhere, and all that was handed over behind it expects another place.
            let moved = |landed: Landed| landed.duplicate.then(|| Arc::new(misplaced(landed.base_offset)));
            let landed = landing(answer).await.and_then(|landed| moved(landed).map_or(Ok(landed), Err));
            match landed {
                Ok(landed) => {
                    debug_assert!(landed.base_offset < end, "it was stored where it was expected");
                    stored(true);
                    self.0.send_modify(|marks| marks.durable = end);
                }
                Err(fault) if self.0.borrow().failed.is_none() => {
                    stored(false);
                    self.0.send_modify(|marks| marks.failed = Some(fault));
                }
                Err(_) => (),
            }
        }
    }

    pub(super) fn receipt(self: &Arc<Self>, end: Offset) -> Receipt {
        Receipt { progress: self.clone(), end }
    }

    /// Comes back when the owner has answered everything, so that the log's end stands still.
    pub(super) async fn until_ended(&self) {
        let ended = self.0.subscribe().wait_for(|marks| marks.ended).await.is_ok();
        debug_assert!(ended, "the sender is borrowed here");
    }
}

impl Receipt {
    /// Comes back when everything up to the place is durable.
    ///
    /// # Errors
    /// When it is not stored, as the first fault before it says.
    pub(crate) async fn durable(self) -> Result<(), CoordinatorFault> {
        let mut marks = self.progress.0.subscribe();
        let decided = |marks: &Marks| marks.durable >= self.end || marks.failed.is_some() || marks.ended;
        let marks = marks.wait_for(decided).await.expect("the sender is held here");
        match &marks.failed {
            _ if marks.durable >= self.end => Ok(()),
            Some(fault) => Err(CoordinatorFault::from(&**fault)),
            None => Err(CoordinatorFault::Loading),
        }
    }
}

fn misplaced(next_offset: Offset) -> AppendFault {
    AppendFault::Refused(AppendError::OffsetMismatch { next_offset })
}

/// Also when the runtime ends in the middle, nobody waits for ever.
struct EndGuard<'a>(&'a Progress);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|marks| marks.ended = true);
    }
}
