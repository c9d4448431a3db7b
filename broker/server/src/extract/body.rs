//! Request bodies: unpacked, counted and timed while they come. Nothing is allocated by a declared size.
//!
//! A whole body that is compressed is measured before it is unpacked, so that a bomb costs no more memory than what
//! came over the wire.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use levada_api::media::WASM;
use levada_api::{ErrorCode, Problem};
use levada_engine::{Work, compute};
use tokio::time::timeout;

use super::media::{content_type, unsupported_media_type};
use super::unpack::{Damaged, Encoding, Unpacker};
use crate::AppState;
use crate::refusal::Refusal;
use crate::state::BodyLimits;

/// What is reserved of a declared size, as a multiple of what has come.
const AHEAD_FACTOR: usize = 4;
/// Most bytes of one piece of an unpacked stream.
const PIECE_BYTES: usize = 64 << 10;

/// A whole body, unpacked: at most `--max-body-bytes`.
pub(crate) struct BodyBytes(pub(crate) Bytes);

/// A whole module, unpacked: at most `--max-module-bytes`.
pub(crate) struct ModuleBytes(pub(crate) Bytes);

impl FromRequest<AppState> for BodyBytes {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        whole(request, state.limits()).await.map(Self)
    }
}

impl FromRequest<AppState> for ModuleBytes {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        if content_type(request.headers()).as_deref() != Some(WASM) {
            return Err(unsupported_media_type(request.headers(), &[WASM]).into());
        }
        whole(request, state.module_limits()).await.map(Self)
    }
}

async fn whole(request: Request, limits: BodyLimits) -> Result<Bytes, Refusal> {
    let (parts, body) = request.into_parts();
    let encoding = encoding(&parts.headers)?;
    // The declared length is believed only where it refuses: before `100 Continue` is granted.
    if body.size_hint().lower() > limits.bytes_max as u64 {
        return Err(too_large(limits).into());
    }
    let wire = collect(body, limits).await?;
    let Some(encoding) = encoding else { return Ok(wire) };
    let size_bytes = wire.len();
    let unpack = move || unpack_whole(&wire, encoding, limits);
    Ok(compute(Work::Unpack, size_bytes, unpack).await?.freeze())
}

/// Puts the pieces together; a body that comes in one is not copied.
async fn collect(mut body: Body, limits: BodyLimits) -> Result<Bytes, Problem> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut first = next_piece(&mut body, limits).await?.unwrap_or_default();
    let mut whole = BytesMut::new();
    let mut size = first.len();
    if size > limits.bytes_max {
        return Err(too_large(limits));
    }
    while !body.is_end_stream() {
        let Some(piece) = next_piece(&mut body, limits).await? else { break };
        if piece.len() > limits.bytes_max - size {
            return Err(too_large(limits));
        }
        size += piece.len();
        if whole.is_empty() {
            whole.reserve(declared.min(AHEAD_FACTOR * size).max(size));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// The next bytes from the wire; none at the end.
async fn next_piece(body: &mut Body, limits: BodyLimits) -> Result<Option<Bytes>, Problem> {
    loop {
        let frame = timeout(limits.timeout, body.frame()).await.map_err(|_| {
            let detail = format!("nothing more of the body came within {} ms", limits.timeout.as_millis());
            Problem::new(ErrorCode::RequestTimeout, detail)
        })?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => {
                return Err(Problem::new(ErrorCode::InvalidBody, format!("the body broke off: {error}")));
            }
            // Trailers are no part of the body; they are passed over.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                Err(_) => {}
            },
        }
    }
}

fn unpack_whole(wire: &[u8], encoding: Encoding, limits: BodyLimits) -> Result<BytesMut, Problem> {
    let size =
        unpack_into(wire, encoding, |size, _| if size > limits.bytes_max { Err(too_large(limits)) } else { Ok(()) })?;
    let mut whole = BytesMut::with_capacity(size);
    unpack_into(wire, encoding, |_, piece| {
        whole.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(whole)
}

/// Unpacks `wire` piece by piece, telling `take` the size so far and the piece; gives the size.
fn unpack_into(
    mut wire: &[u8],
    encoding: Encoding,
    mut take: impl FnMut(usize, &[u8]) -> Result<(), Problem>,
) -> Result<usize, Problem> {
    let mut unpacker = Unpacker::new(encoding);
    let mut piece = BytesMut::new();
    let mut size = 0;
    loop {
        let more = unpacker.step(&mut wire, &mut piece, PIECE_BYTES).map_err(damaged)?;
        size += piece.len();
        take(size, &piece)?;
        piece.clear();
        if wire.is_empty() && !more {
            break;
        }
    }
    unpacker.finish().map_err(damaged)?;
    Ok(size)
}

/// A body as it comes, unpacked, of any length. Each piece has at most some 100 KiB or what came in one read.
pub(crate) struct BodyStream {
    body: Body,
    limits: BodyLimits,
    unpacker: Option<Unpacker>,
    /// Packed bytes that are still to be unpacked.
    wire: Bytes,
    /// Whether the unpacker holds more than fitted into the last piece.
    more: bool,
}

impl FromRequest<AppState> for BodyStream {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let unpacker = encoding(&parts.headers)?.map(Unpacker::new);
        Ok(Self { body, limits: state.limits(), unpacker, wire: Bytes::new(), more: false })
    }
}

impl BodyStream {
    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// 408 where nothing comes in time, 400 where the body breaks off or is damaged. Nothing more comes then.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(unpacker) = &mut self.unpacker else {
            return next_piece(&mut self.body, self.limits).await;
        };
        loop {
            while !self.wire.is_empty() || self.more {
                let mut piece = BytesMut::new();
                let mut rest = &self.wire[..];
                self.more = unpacker.step(&mut rest, &mut piece, PIECE_BYTES).map_err(damaged)?;
                self.wire = self.wire.slice(self.wire.len() - rest.len()..);
                if !piece.is_empty() {
                    return Ok(Some(piece.freeze()));
                }
            }
            match next_piece(&mut self.body, self.limits).await? {
                Some(wire) => self.wire = wire,
                None => {
                    unpacker.finish().map_err(damaged)?;
                    self.unpacker = None;
                    return Ok(None);
                }
            }
        }
    }
}

/// How the body is packed; none: not at all.
fn encoding(headers: &HeaderMap) -> Result<Option<Encoding>, Problem> {
    let mut found = None;
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.to_str().unwrap_or("?").split(',').map(str::trim) {
            let next = match name.to_ascii_lowercase().as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Encoding::Gzip,
                "zstd" => Encoding::Zstd,
                _ => return Err(unsupported(value)),
            };
            if found.replace(next).is_some() {
                return Err(unsupported(value));
            }
        }
    }
    Ok(found)
}

fn unsupported(got: &HeaderValue) -> Problem {
    let detail = format!("Content-Encoding {got:?} is not taken; taken: gzip, zstd, one of them and once");
    Problem::new(ErrorCode::UnsupportedEncoding, detail).with(|m| m.accepted = vec!["gzip".into(), "zstd".into()])
}

fn too_large(BodyLimits { bytes_max, setting, .. }: BodyLimits) -> Problem {
    let detail = format!("the body has more than {bytes_max} bytes (after decompression); the setting is {setting}");
    Problem::new(ErrorCode::BodyTooLarge, detail).limited(setting, bytes_max as u64)
}

fn damaged(Damaged(detail): Damaged) -> Problem {
    Problem::new(ErrorCode::InvalidBody, format!("the body cannot be unpacked: {detail}"))
}
