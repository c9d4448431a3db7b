//! What was asked for and is still to be done: each thing once, in the order in which it was asked for, with one channel
//! for all who wait for it. So there is never more of it than there are things, however many ask and go away.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

/// Things to do, and what comes of them.
pub(super) struct Forced<T, A> {
    order: VecDeque<Arc<T>>,
    /// By the address of what is in `order`, which keeps it there.
    outcomes: HashMap<usize, watch::Sender<Option<A>>>,
}

impl<T, A> Default for Forced<T, A> {
    fn default() -> Self {
        Self { order: VecDeque::new(), outcomes: HashMap::new() }
    }
}

impl<T, A> Forced<T, A> {
    /// Puts it in, if it is not in yet. Who has a receiver from what is returned is told; where it is cleared away, the
    /// channel closes.
    pub(super) fn push(&mut self, what: &Arc<T>) -> &watch::Sender<Option<A>> {
        self.outcomes.entry(Arc::as_ptr(what).addr()).or_insert_with(|| {
            self.order.push_back(what.clone());
            watch::Sender::new(None)
        })
    }

    /// Takes the first out: whoever asks from now on, asks anew.
    pub(super) fn pop(&mut self) -> Option<(Arc<T>, watch::Sender<Option<A>>)> {
        let first = self.order.pop_front()?;
        let outcome = self.outcomes.remove(&Arc::as_ptr(&first).addr()).expect("what is in the order has a channel");
        Some((first, outcome))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Lets go of all.
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.outcomes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = Forced<u32, &'static str>;

    #[test]
    fn what_is_asked_for_again_and_again_is_there_once_and_nothing_is_kept_of_who_is_gone() {
        let (one, two) = (Arc::new(1), Arc::new(2));
        let mut forced = Numbers::default();
        for _ in 0..1_000 {
            forced.push(&one);
            drop(forced.push(&two).subscribe());
        }
        assert_eq!((forced.order.len(), forced.outcomes.len()), (2, 2));
        let receivers: Vec<_> = forced.outcomes.values().map(watch::Sender::receiver_count).collect();
        assert_eq!(receivers, [0, 0]);
        assert_eq!(*forced.pop().expect("the first").0, 1);
        forced.push(&one);
        assert_eq!([forced.pop(), forced.pop()].map(|next| *next.expect("two are left").0), [2, 1]);
        assert!(forced.pop().is_none() && forced.is_empty());
    }

    #[tokio::test]
    async fn all_who_wait_are_told_and_who_asks_later_is_not() {
        let one = Arc::new(1);
        let mut forced = Numbers::default();
        let mut waiting: Vec<_> = (0..3).map(|_| forced.push(&one).subscribe()).collect();
        let (_, outcome) = forced.pop().expect("it is there");
        let mut late = forced.push(&one).subscribe();
        outcome.send_replace(Some("done"));
        drop(outcome);
        for waiting in &mut waiting {
            assert_eq!(*waiting.wait_for(Option::is_some).await.expect("told"), Some("done"));
        }
        assert_eq!(*late.borrow(), None);
        forced.clear();
        assert!(late.wait_for(Option::is_some).await.is_err(), "nothing comes of it any more");
    }
}
