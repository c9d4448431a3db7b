//! Even shares that leave partitions where they are.

mod equal;
mod unequal;

use super::board::{Board, Member};
use super::{Assignment, Assignor, AssignorFault, AssignorInput};

pub(super) const STICKY_NAME: &str = "sticky";
pub(super) const COOPERATIVE_STICKY_NAME: &str = "cooperative-sticky";

/// Shares as even as the subscriptions allow, and among such the one that moves few partitions (Kafka's `StickyAssignor`,
/// KIP-54).
///
/// Even: no partition, and no chain of partitions handed on from member to member, could take one from a member to another
/// that has at least two less. Where all members subscribe to the same topics, counts differ by one at most.
///
/// Sticky: where all members subscribe to the same topics, as many partitions as an even share permits stay with those who
/// own them: when a member leaves only its partitions move, when one joins only those that it gets. Otherwise the steps
/// that even the shares out each tear as few partitions from their owners as they can, and partitions return where that
/// costs no other owner anything; that is close to the fewest moves, not always the fewest.
///
/// A partition that two members claim to own counts as owned by neither; a claim to a partition that is not there, or
/// that the member does not subscribe to, counts for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct StickyAssignor;

/// The same shares as [`StickyAssignor`]. The names differ, as Kafka's do, in how a classic group gets there: with
/// `sticky` all members stop and start over, with `cooperative-sticky` they go on reading what they keep and give up the
/// rest first (KIP-429). That second step is the coordinator's, which takes it under either name.
#[derive(Clone, Copy, Debug, Default)]
pub struct CooperativeStickyAssignor;

impl Assignor for StickyAssignor {
    fn name(&self) -> &str {
        STICKY_NAME
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        Ok(share(input))
    }
}

impl Assignor for CooperativeStickyAssignor {
    fn name(&self) -> &str {
        COOPERATIVE_STICKY_NAME
    }

    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault> {
        Ok(share(input))
    }
}

fn share(input: &AssignorInput) -> Assignment {
    let board = Board::new(input);
    let claims = claims(input, &board);
    let wanted = |topic: &usize| !board.subscribers(*topic).is_empty() && !board.places_of(*topic).is_empty();
    let mut lists = (0..board.topics()).filter(wanted).map(|topic| board.subscribers(topic));
    let owners = match lists.next() {
        Some(first) if lists.all(|list| list == first) => equal::share(&board, first, &claims),
        _ => unequal::share(&board, &claims),
    };
    board.assignment(|place| owners[place])
}

/// The one member that credibly owns each partition, if there is one.
fn claims(input: &AssignorInput, board: &Board) -> Vec<Option<Member>> {
    let mut claims: Vec<Option<Member>> = vec![None; board.partitions()];
    let mut disputed = vec![false; board.partitions()];
    for (member, described) in input.members.iter().enumerate() {
        for place in described.owned.iter().filter_map(|partition| board.place(partition)) {
            let before = claims[place].replace(member);
            disputed[place] |= before.is_some_and(|other| other != member);
        }
    }
    let credible = |place: usize, member: Member| !disputed[place] && board.subscribes(member, board.topic_of(place));
    let checked = claims.into_iter().enumerate();
    checked.map(|(place, claim)| claim.filter(|member| credible(place, *member))).collect()
}
