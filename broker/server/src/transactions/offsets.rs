//! `POST …/{transaction}/offsets`: offsets of a group go into a transaction.

use axum::Json;
use levada_api::{PendingOffsets, Problem, TransactionOffsets};
use levada_engine::TransactionOffset;
use levada_model::{GroupName, MemberId};

use super::refusal::{OfOffsets, refuse_with};
use crate::extract::{JsonBody, NoParams, TransactionPath};
use crate::groups::{places_of, read_partitions};
use crate::refusal::{Refusal, group_name, unknown_member};
use crate::state::{Caller, OpenEngine};

/// Commit offsets of a group with a transaction
///
/// They count once the transaction is committed, and never if it is aborted; until then the group's offsets are as they
/// were. With `member_id` they are judged as the member's own commit; without one the group must have no members. Later
/// offsets of a partition take the place of earlier ones of the same transaction.
#[utoipa::path(post, path = "/v1/transactions/{transaction}/offsets", operation_id = "add_transaction_offsets", tag = "Transactions",
    params(("transaction" = String, Path, description = "The transaction's id")),
    request_body = TransactionOffsets,
    responses(
        (status = 200, description = "They are in the transaction", body = PendingOffsets),
        (status = 403, description = "`producer-fenced`: its producer was started anew, which aborted it"),
        (status = 404, description = "`transaction-not-found`; `unknown-member`: join again"),
        (status = 409, description = "`transaction-ended`; `illegal-generation`: the member does not hold the partitions; \
            `group-not-empty`: the group has members, and none is named"),
        (status = 422, description = "`invalid-field`; `invalid-offset`: no such topic or partition, or beyond its end"),
    ))]
pub(super) async fn add_offsets(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    TransactionPath(transaction): TransactionPath,
    JsonBody(offsets): JsonBody<TransactionOffsets>,
) -> Result<Json<PendingOffsets>, Refusal> {
    let wanted = wanted(&offsets, "")?;
    let place = OfOffsets { group: &wanted.group.clone(), at: "" };
    engine
        .add_transaction_offsets(&who, transaction, wanted)
        .await
        .map_err(|error| refuse_with(error, Some(&place)))?;
    Ok(Json(PendingOffsets { pending: offsets.offsets }))
}

/// The offsets in the engine's words, or what is wrong with them; their object is at `at` of the request.
pub(super) fn wanted(offsets: &TransactionOffsets, at: &str) -> Result<levada_engine::TransactionOffsets, Problem> {
    let group = GroupName::new(&offsets.group)
        .map_err(|error| group_name(&error).at(format!("{at}/group"), error.to_string()))?;
    // What cannot be an id is that of no member.
    let member_id = offsets.member_id.as_deref().map(|id| {
        let unknown = |_| {
            let problem = unknown_member(&group, id);
            let detail = problem.detail.clone();
            problem.at(format!("{at}/member_id"), detail)
        };
        MemberId::new(id).map_err(unknown)
    });
    let member_id = member_id.transpose()?;
    let list = format!("{at}/offsets");
    let places = read_partitions(list.trim_start_matches('/'), places_of(&offsets.offsets))?;
    let offset = |(topic, partition, offset)| TransactionOffset { topic, partition, offset };
    Ok(levada_engine::TransactionOffsets { group, member_id, offsets: places.into_iter().map(offset).collect() })
}
