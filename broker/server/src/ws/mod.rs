//! `GET /v1/ws`: one socket for subscriptions, commits and produces (protocol `levada.v1`).
//!
//! A socket has one task, its session, which reads frames, answers them and writes; and one task a subscription, which
//! reads the log. A subscription hands over what it wrote through a channel that takes one delivery at a time, so while
//! the socket takes nothing, nothing is read for it. Read on in `session.rs` and `subscription.rs`. Not here: the frames
//! as such (`levada_api`).

mod allowance;
mod backlog;
mod handshake;
mod member;
mod outflow;
mod produce;
mod seat;
mod session;
mod socket;
mod start;
mod subscription;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use levada_model::limits::{WS_ANSWER_BYTES_MAX, WS_INFLIGHT_BYTES_MAX, WS_INFLIGHT_PRODUCES_MAX};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::Params;
use crate::groups;
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};
use session::Session;
use socket::Socket;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(open_socket))
}

/// Open a WebSocket
///
/// Frames are JSON objects whose `type` says what they are: `subscribe`, `credit`, `commit`, `unsubscribe`, `produce` and
/// `ping` from the client; `welcome`, `subscribed`, `records`, `committed`, `produced`, `caught_up`, `gap`, `rebalance`,
/// `unsubscribed`, `error`, `goaway` and `pong` from the server. `broker/docs/formats/websocket.md` has all of them.
#[utoipa::path(get, path = "/v1/ws", operation_id = "open_socket", tag = "WebSocket",
    params(
        ("Upgrade" = Option<String>, Header, description = "`websocket`"),
        ("Connection" = Option<String>, Header, description = "`Upgrade`"),
        ("Sec-WebSocket-Version" = Option<String>, Header, description = "`13`"),
        ("Sec-WebSocket-Key" = Option<String>, Header, description = "16 random bytes as base64"),
        ("Sec-WebSocket-Protocol" = Option<String>, Header, description = "If anything is offered, `levada.v1` must be"),
    ),
    responses(
        (status = 101, description = "The connection is a WebSocket from here on"),
        (status = 400, description = "A header of the handshake is malformed, or `levada.v1` is not among the protocols"),
        (status = 403, description = "`cross-site`: the web page's origin is neither this one nor allowed"),
        (status = 426, description = "`upgrade-required`: the request asks for no WebSocket, or for another version"),
    ))]
async fn open_socket(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    params: Params,
    request: Request,
) -> Result<Response, Refusal> {
    params.finish()?;
    let (mut parts, _) = request.into_parts();
    let offer = handshake::read(&mut parts)?;
    let client = groups::client(&parts.headers);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, offer.accept);
    if offer.names_protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(handshake::PROTOCOL));
    }
    tokio::spawn(async move {
        let _held = offer.line.held;
        match offer.upgrade.await {
            Ok(upgraded) => {
                let open = state.metrics().open_websocket();
                let socket = Socket::new(upgraded, state.limits().bytes_max).await;
                Session::new(socket, &state, engine, who, client).run(offer.line.phase).await;
                drop(open);
            }
            Err(error) => tracing::debug!(%error, "a connection did not become a WebSocket"),
        }
    });
    Ok(response)
}

/// What a socket may cost beyond its largest message; told in `welcome`.
fn limits(state: &AppState) -> levada_api::WsLimits {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    levada_api::WsLimits {
        max_message_bytes: state.limits().bytes_max,
        max_subscriptions: levada_model::limits::WS_SUBSCRIPTIONS_MAX,
        max_subscription_topics: levada_model::limits::WS_SUBSCRIPTION_TOPICS_MAX,
        max_inflight_produces: WS_INFLIGHT_PRODUCES_MAX,
        max_inflight_bytes: WS_INFLIGHT_BYTES_MAX,
        max_answer_bytes: WS_ANSWER_BYTES_MAX,
        ping_interval_ms: ms(state.ws().ping_interval),
        slow_reader_timeout_ms: ms(state.ws().slow_reader_timeout),
    }
}
