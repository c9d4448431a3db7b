//! Media types of bodies and answers (RFC 9110 §8.3, §12.5.1).

use std::borrow::Cow;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, header};
use levada_api::media::JSON;
use levada_api::{ErrorCode, Problem};

use crate::refusal::Refusal;

/// The media type of the body, in lower case and without parameters; none where the header is absent or empty.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let text = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let media = text.split(';').next().unwrap_or_default().trim();
    let is_lower = !media.bytes().any(|byte| byte.is_ascii_uppercase());
    let media = if is_lower { Cow::Borrowed(media) } else { Cow::Owned(media.to_ascii_lowercase()) };
    (!media.is_empty()).then_some(media)
}

/// The refusal of a body whose type is none of `accepted`.
pub(crate) fn unsupported_media_type(headers: &HeaderMap, accepted: &[&str]) -> Problem {
    let list = accepted.join(", ");
    let detail = match headers.get(header::CONTENT_TYPE) {
        None => format!("the body has no Content-Type; taken here: {list}"),
        Some(got) => format!("Content-Type {got:?} is not taken here; taken: {list}"),
    };
    Problem::new(ErrorCode::UnsupportedMediaType, detail)
        .with(|m| m.accepted = accepted.iter().map(|&media| media.to_owned()).collect())
}

/// Which of `offered` (the first is the default) the client likes best by its `Accept`.
///
/// # Errors
/// 406 where it likes none.
pub(crate) fn accepts(headers: &HeaderMap, offered: &[&'static str]) -> Result<&'static str, Problem> {
    let mut ranges = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        ranges.extend(value.to_str().unwrap_or_default().split(',').filter_map(Range::read));
    }
    if ranges.is_empty() {
        return Ok(offered[0]);
    }
    // Of equal weights the first offered wins, so the search keeps the earlier one.
    let mut best: Option<(&'static str, u16)> = None;
    for &media in offered {
        let weight = weight(&ranges, media);
        if weight > best.map_or(0, |(_, weight)| weight) {
            best = Some((media, weight));
        }
    }
    best.map(|(media, _)| media).ok_or_else(|| {
        let detail = format!("the answer comes as {}; Accept allows none of them", offered.join(", "));
        Problem::new(ErrorCode::NotAcceptable, detail)
            .with(|m| m.accepted = offered.iter().map(|&media| media.to_owned()).collect())
    })
}

/// For routes that answer nothing but JSON: refuses who does not accept it. A deletion answers nothing at all.
pub(crate) async fn answers_json(request: Request, next: Next) -> Response {
    if request.method() != Method::DELETE
        && let Err(problem) = accepts(request.headers(), &[JSON])
    {
        return Refusal(problem).into_response();
    }
    next.run(request).await
}

/// One media range with its weight in thousandths.
struct Range<'h> {
    media: &'h str,
    weight: u16,
}

impl<'h> Range<'h> {
    fn read(text: &'h str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next()?;
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |text| text.parse::<f32>().unwrap_or(1.0).clamp(0.0, 1.0));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1000")]
        (!media.is_empty()).then_some(Self { media, weight: (weight * 1000.0) as u16 })
    }

    /// How exactly the range names `media`; none where it does not.
    fn matches(&self, media: &str) -> Option<u8> {
        let (kind, _) = media.split_once('/').expect("offered types have a slash");
        match self.media.split_once('/') {
            _ if self.media.eq_ignore_ascii_case(media) => Some(2),
            Some((range, "*")) if range.eq_ignore_ascii_case(kind) => Some(1),
            Some(("*", "*")) => Some(0),
            _ => None,
        }
    }
}

/// The weight that the most exact range gives to `media`.
fn weight(ranges: &[Range<'_>], media: &str) -> u16 {
    let exact = ranges.iter().filter_map(|range| Some((range.matches(media)?, range.weight)));
    exact.max_by_key(|(exactness, _)| *exactness).map_or(0, |(_, weight)| weight)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const OFFERED: [&str; 2] = ["application/json", "application/x-ndjson"];

    fn best(accept: &'static str) -> Option<&'static str> {
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
        accepts(&headers, &OFFERED).ok()
    }

    #[test]
    fn the_heaviest_range_wins_and_the_first_offer_of_equals() {
        assert_eq!(accepts(&HeaderMap::new(), &OFFERED).expect("no wish"), OFFERED[0]);
        assert_eq!(best("*/*"), Some(OFFERED[0]));
        assert_eq!(best("application/x-ndjson, application/json"), Some(OFFERED[0]));
        assert_eq!(best("application/json;q=0.5, application/*"), Some(OFFERED[1]));
        assert_eq!(best("text/html, */*;q=0.1"), Some(OFFERED[0]));
    }

    #[test]
    fn what_is_weighed_zero_or_not_named_is_refused() {
        assert_eq!(best("text/html"), None);
        assert_eq!(best("application/json;q=0, text/html"), None);
        assert_eq!(best("application/json;q=0, */*"), Some(OFFERED[1]));
    }
}
