//! The shares of members that all subscribe to the same topics. Takes time in proportion to members and partitions,
//! but for the logarithm of a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::assignor::board::{Board, Member, Place};

/// The owner of each partition; none for those of topics without subscribers.
pub(super) fn share(board: &Board, members: &[Member], claims: &[Option<Member>]) -> Vec<Option<Member>> {
    let wanted = |place: &Place| !board.subscribers(board.topic_of(*place)).is_empty();
    let places: Vec<Place> = (0..board.partitions()).filter(wanted).collect();
    let quotas = quotas(board, members, claims, places.len());

    let mut loads = vec![0; board.members()];
    let mut owners = vec![None; board.partitions()];
    for (place, claim) in claims.iter().enumerate() {
        owners[place] = claim.filter(|member| loads[*member] < quotas[*member]);
        if let Some(member) = owners[place] {
            loads[member] += 1;
        }
    }
    // The rest goes to whoever has least, so that a topic's partitions spread over the members.
    let open = members.iter().copied().filter(|member| loads[*member] < quotas[*member]);
    let mut open: BinaryHeap<_> = open.map(|member| Reverse((loads[member], member))).collect();
    for place in places {
        if owners[place].is_none() {
            let Reverse((load, member)) = open.pop().expect("quotas add up to the partitions");
            owners[place] = Some(member);
            if load + 1 < quotas[member] {
                open.push(Reverse((load + 1, member)));
            }
        }
    }
    owners
}

/// How many partitions each member shall have: all the same, and where that does not come out even, one more for those
/// that own enough to keep one more, then for the first ones.
fn quotas(board: &Board, members: &[Member], claims: &[Option<Member>], partitions: usize) -> Vec<usize> {
    let mut owned = vec![0_usize; board.members()];
    claims.iter().flatten().for_each(|member| owned[*member] += 1);
    let share = partitions / members.len();
    let mut quotas = vec![0; board.members()];
    members.iter().for_each(|member| quotas[*member] = share);
    let (owners, others): (Vec<Member>, Vec<Member>) = members.iter().partition(|member| owned[**member] > share);
    owners.into_iter().chain(others).take(partitions % members.len()).for_each(|member| quotas[member] += 1);
    quotas
}
