//! All partitions in turn.

use super::board::Board;
use super::{Assignment, Assignor, AssignorFault, AssignorInput};

pub(super) const NAME: &str = "round-robin";

/// Kafka's `RoundRobinAssignor`: all partitions of all topics, in order, go to the members in turn; a member that does not
/// subscribe to the topic is passed over. Even where all subscribe to the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobinAssignor;

impl Assignor for RoundRobinAssignor {
    fn name(&self) -> &str {
        NAME
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        let board = Board::new(input);
        let mut turn = 0;
        let mut owners = vec![None; board.partitions()];
        for topic in 0..board.topics() {
            let subscribers = board.subscribers(topic);
            for place in board.places_of(topic) {
                let next = subscribers.partition_point(|member| *member < turn);
                owners[*place] = subscribers.get(next).or(subscribers.first()).copied();
                turn = owners[*place].map_or(turn, |member| member + 1);
            }
        }
        Ok(board.assignment(|place| owners[place]))
    }
}
