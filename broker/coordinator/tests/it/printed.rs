//! States of a model checker that are told apart by a print of all that counts in them.

use std::fmt::Debug;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use stateright::{Checker, Model};

/// A state. Two of the same print are taken for one.
#[derive(Clone, Debug)]
pub(crate) struct Printed<S> {
    state: S,
    print: u64,
}

impl<S> Printed<S> {
    /// A state in which `counts` is all that counts.
    pub(crate) fn new(state: S, counts: impl FnOnce(&S) -> String) -> Self {
        let print = BuildHasherDefault::<DefaultHasher>::default().hash_one(counts(&state));
        Self { state, print }
    }
}

impl<S> Deref for Printed<S> {
    type Target = S;
    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> PartialEq for Printed<S> {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl<S> Hash for Printed<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.print);
    }
}

/// Visits every state, of which there must be more than `least`, and checks that all properties hold.
pub(crate) fn explore<M>(model: M, least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checked = model.checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    let states = checked.unique_state_count();
    assert!(states > least, "{states} states are too few to mean anything");
}
