//! The opening handshake (RFC 6455 §4.2), up to the answer. Who may open a socket is the gate's matter.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper::upgrade::OnUpgrade;
use levada_api::{ErrorCode, Problem};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::connection::Line;

/// The one protocol that is spoken here.
pub(super) const PROTOCOL: &str = "levada.v1";
const VERSION: &str = "13";
const KEY_BYTES: usize = 16;

/// A handshake that can be answered.
pub(super) struct Offer {
    /// The answer to the client's key.
    pub(super) accept: HeaderValue,
    /// Whether protocols were offered, ours among them.
    pub(super) names_protocol: bool,
    /// Gives the connection once the answer is out.
    pub(super) upgrade: OnUpgrade,
    /// The connection's place.
    pub(super) line: Line,
}

/// Reads the handshake and takes the connection out of the request.
///
/// # Errors
/// 426 where no WebSocket of version 13 is asked for, 400 where a header is malformed.
pub(super) fn read(parts: &mut Parts) -> Result<Offer, Problem> {
    let headers = &parts.headers;
    if !names(headers, header::UPGRADE, "websocket") || !names(headers, header::CONNECTION, "upgrade") {
        let detail = "this path is a WebSocket; the request has no Connection: Upgrade with Upgrade: websocket";
        return Err(Problem::new(ErrorCode::UpgradeRequired, detail));
    }
    if single(headers, header::SEC_WEBSOCKET_VERSION)? != VERSION {
        return Err(Problem::new(
            ErrorCode::UpgradeRequired,
            "only version 13 of the WebSocket protocol is spoken here",
        ));
    }
    let key = single(headers, header::SEC_WEBSOCKET_KEY)?;
    if STANDARD.decode(key).map_or(0, |bytes| bytes.len()) != KEY_BYTES {
        return Err(malformed("Sec-WebSocket-Key is not 16 bytes as base64"));
    }
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes())).expect("base64 is plain text");
    let names_protocol = headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL);
    if names_protocol && !names(headers, header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        return Err(malformed("Sec-WebSocket-Protocol offers protocols and levada.v1 is none of them"));
    }
    let extensions = &mut parts.extensions;
    let (Some(upgrade), Some(line)) = (extensions.remove::<OnUpgrade>(), extensions.remove::<Line>()) else {
        return Err(malformed("this connection cannot become a WebSocket; HTTP/1.1 can"));
    };
    Ok(Offer { accept, names_protocol, upgrade, line })
}

/// Whether a header that is a list has this word, in whatever case.
fn names(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let mut words = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    words.any(|it| it.trim().eq_ignore_ascii_case(word))
}

/// The one value of a header; empty where it is not there.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<&str, Problem> {
    let mut values = headers.get_all(&name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(""),
        (Some(value), None) => Ok(value.to_str().unwrap_or_default().trim()),
        (Some(_), Some(_)) => Err(malformed(format!("the header {name} comes twice"))),
    }
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, detail)
}
