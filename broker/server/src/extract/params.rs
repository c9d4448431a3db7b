//! Query parameters: taken one by one by name, and what is left over is refused by name.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use http::request::Parts;
use levada_api::{ErrorCode, Problem, echo};
use levada_model::limits::JSON_INTEGER_MAX;
use percent_encoding::percent_decode_str;

use crate::refusal::Refusal;

/// The query of a request. Take what the endpoint knows, then call [`finish`](Self::finish).
#[derive(Debug)]
pub(crate) struct Params {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default())?)
    }
}

/// For endpoints without query parameters: refuses all, before a body is read.
pub(crate) struct NoParams;

impl<S: Sync> FromRequestParts<S> for NoParams {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        Params::from_request_parts(parts, state).await?.finish()?;
        Ok(Self)
    }
}

impl Params {
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut left: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if left.iter().any(|(other, _)| *other == name) {
                return Err(invalid(format!("the query parameter {:?} comes twice", echo(&name))));
            }
            left.push((name, value));
        }
        Ok(Self { left, known: Vec::new() })
    }

    /// The text of `name`, if it is there.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let at = self.left.iter().position(|(other, _)| other == name)?;
        Some(self.left.swap_remove(at).1)
    }

    /// The value of `name`, read by `read`, whose error states what it takes.
    pub(crate) fn value<T, E: Display>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        read(&text).map(Some).map_err(|rule| no_value(name, rule, &text))
    }

    /// An integer from 0 to 2^53 - 1.
    pub(crate) fn integer(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        self.value(name, |text| json_integer(text).ok_or_else(|| format!("an integer from 0 to {JSON_INTEGER_MAX}")))
    }

    /// An integer that is cut to `most`; `default` where there is none. `least` and below are refused by name.
    pub(crate) fn clamped(&mut self, name: &'static str, least: u64, default: u64, most: u64) -> Result<u64, Problem> {
        let read = |text: &str| if is_too_large(text) { Some(JSON_INTEGER_MAX) } else { json_integer(text) };
        let rule = || format!("an integer from {least} on");
        let n = self.value(name, |text| read(text).ok_or_else(rule))?.unwrap_or(default);
        if n < least {
            return Err(invalid(format!("{name} takes an integer from {least} on; {n} is not")));
        }
        Ok(n.min(most))
    }

    /// `true` (or nothing at all, as in `?raw`) or `false`.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        let flag = self.value(name, |text| match text {
            "" | "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false"),
        })?;
        Ok(flag.unwrap_or(false))
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        let detail = format!("there is no query parameter {:?} here; there is: {known}", echo(name));
        Err(Problem::new(ErrorCode::UnknownParameter, detail))
    }
}

fn invalid(detail: String) -> Problem {
    Problem::new(ErrorCode::InvalidParameter, detail)
}

/// The refusal of a value that a parameter, path segment or header does not take; larger integers than JSON holds have
/// their own status.
pub(crate) fn no_value(name: &str, rule: impl Display, text: &str) -> Problem {
    // `time:MS` and `tail:N` have their number at the end.
    let number = text.rsplit(':').next().unwrap_or(text);
    let code = if is_too_large(number) { ErrorCode::IntegerTooLarge } else { ErrorCode::InvalidParameter };
    Problem::new(code, format!("{name} takes {rule}; {:?} is not", echo(text)))
}

/// Plain decimal digits beyond 2^53 - 1, however many.
fn is_too_large(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && json_integer(text).is_none()
}

/// Plain decimal digits only: Rust's parser would take a leading `+` as well.
pub(crate) fn digits<T: FromStr>(text: &str) -> Option<T> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// Plain decimal digits from 0 to 2^53 - 1, as JSON keeps them exact everywhere.
pub(crate) fn json_integer(text: &str) -> Option<u64> {
    digits(text).filter(|n| *n <= JSON_INTEGER_MAX)
}

/// Decodes a name or value once; unlike browsers', a `%` that begins no escape is refused.
fn decode(text: &str) -> Result<String, Problem> {
    let escaped =
        |at: usize| text.as_bytes().get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    if let Some((at, _)) = text.match_indices('%').find(|(at, _)| !escaped(*at)) {
        return Err(invalid(format!("the query has a % without two hexadecimal digits: {:?}", echo(&text[at..]))));
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.map(Into::into).map_err(|_| invalid(format!("the query is not UTF-8 after decoding: {:?}", echo(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_once_and_what_is_left_is_refused_by_name() {
        let mut params = Params::parse("limit=5&cursor=a%252Fb+c&x=1").expect("well-formed");
        assert_eq!(params.clamped("limit", 1, 100, 3).expect("a number"), 3);
        assert_eq!(params.text("cursor").as_deref(), Some("a%2Fb c"));
        let problem = params.finish().expect_err("x is not known");
        assert_eq!(problem.code, ErrorCode::UnknownParameter);
        assert!(problem.detail.contains("\"x\"") && problem.detail.contains("limit, cursor"), "{}", problem.detail);
    }

    #[test]
    fn what_is_cut_is_cut_from_any_integer_and_others_beyond_json_are_unacceptable() {
        for large in ["4", "9007199254740992", "99999999999999999999999999"] {
            let mut params = Params::parse(&format!("limit={large}")).expect("well-formed");
            assert_eq!(params.clamped("limit", 1, 2, 3).expect("it is cut"), 3, "{large}");
        }
        for bad in ["limit=0", "limit=-1", "limit=", "limit=1e3", "limit=9007199254740992x"] {
            let problem = Params::parse(bad).expect("well-formed").clamped("limit", 1, 2, 3).expect_err(bad);
            assert_eq!((problem.status, problem.detail.starts_with("limit takes")), (400, true), "{bad}");
        }
        for (text, status) in [
            ("9007199254740992", 422),
            ("99999999999999999999999999", 422),
            ("time:9007199254740992", 422),
            ("-9007199254740992", 400),
            ("9007199254740992.5", 400),
            ("", 400),
        ] {
            assert_eq!(no_value("n", "an integer", text).status, status, "{text}");
        }
    }

    #[test]
    fn a_long_name_or_value_is_repeated_in_part() {
        let long = "x".repeat(100_000);
        let problems = [
            Params::parse(&format!("{long}=1")).expect("well-formed").finish().expect_err("unknown"),
            Params::parse(&format!("n={long}")).expect("well-formed").integer("n").expect_err("no integer"),
            Params::parse(&format!("{long}&{long}")).expect_err("twice"),
            Params::parse(&format!("%{long}")).expect_err("no escape"),
        ];
        for problem in problems {
            assert!(problem.detail.len() < 300, "{}", problem.detail);
        }
    }

    #[test]
    fn repeated_and_malformed_parameters_are_refused_by_name() {
        for bad in ["a=1&a=2", "a=%zz", "a=%", "a=%ff"] {
            assert_eq!(Params::parse(bad).expect_err(bad).code, ErrorCode::InvalidParameter);
        }
        for bad in ["n=", "n=-1", "n=+1", "n=1.5", "n=9007199254740992", "n=99999999999999999999"] {
            let problem = Params::parse(bad).expect("well-formed").integer("n").expect_err(bad);
            assert!(problem.detail.starts_with("n takes"), "{}", problem.detail);
        }
    }
}
