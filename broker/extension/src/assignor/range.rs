//! Ranges of each topic.

use super::board::Board;
use super::{Assignment, Assignor, AssignorFault, AssignorInput};

pub(super) const NAME: &str = "range";

/// Kafka's `RangeAssignor`: each topic is cut into one run of partitions a subscriber, in the order of the members, the
/// first ones longer by one where it does not come out even. Topics with the same subscribers and as many partitions are
/// cut alike, so a member has the same numbers of each: what a join by key needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RangeAssignor;

impl Assignor for RangeAssignor {
    fn name(&self) -> &str {
        NAME
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        let board = Board::new(input);
        let mut owners = vec![None; board.partitions()];
        for topic in 0..board.topics() {
            let subscribers = board.subscribers(topic);
            let mut places = board.places_of(topic).iter();
            for (rank, member) in subscribers.iter().enumerate() {
                let longer = usize::from(rank < board.places_of(topic).len() % subscribers.len());
                let run = board.places_of(topic).len() / subscribers.len() + longer;
                places.by_ref().take(run).for_each(|place| owners[*place] = Some(*member));
            }
        }
        Ok(board.assignment(|place| owners[place]))
    }
}
