//! Groups without transactions, until they have them.

use std::sync::Arc;

use levada_coordinator::Outcome;
use levada_model::{GroupName, ProducerEpoch, ProducerId};

use crate::GroupError;
use crate::groups::Groups;

impl Groups {
    pub(crate) async fn end_transaction(
        self: &Arc<Self>,
        _: &GroupName,
        _: ProducerId,
        _: ProducerEpoch,
        _: i32,
        _: Outcome,
    ) -> Result<(), GroupError> {
        Ok(())
    }
}
