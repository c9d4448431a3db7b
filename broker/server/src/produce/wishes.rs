//! What a produce asks for besides its records: `acks`, and the headers that make it happen once or at one offset.

use http::HeaderMap;
use levada_api::{AcksWord, ErrorCode, Problem, ResultsWord};
use levada_engine::{Acks, Once};
use levada_model::limits::{IDEMPOTENCY_KEY_BYTES_MAX, JSON_INTEGER_MAX};
use levada_model::{Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence};

use crate::extract::{Params, digits, no_value};

pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
pub(super) const PRODUCER_ID: &str = "producer-id";
pub(super) const PRODUCER_EPOCH: &str = "producer-epoch";
pub(super) const PRODUCER_SEQUENCE: &str = "producer-sequence";
pub(super) const EXPECTED_OFFSET: &str = "expected-offset";
const TRANSACTION: &str = "transaction";

/// What the query of a produce says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) acks: Acks,
    pub(super) results: Option<ResultsWord>,
    pub(super) partition: Option<PartitionIndex>,
}

impl Query {
    /// Reads the query of a produce of records, whatever its form.
    pub(super) fn read(mut params: Params) -> Result<Self, Problem> {
        let acks = acks(&mut params)?;
        let results = params.value("results", ResultsWord::read)?;
        let partition = partition(&mut params)?;
        params.finish()?;
        Ok(Self { acks, results, partition })
    }

    /// Refuses a parameter that this form of a produce does not take.
    pub(super) fn refuse(name: &'static str, is_there: bool, form: &str) -> Result<(), Problem> {
        if is_there {
            return Err(Problem::new(ErrorCode::UnknownParameter, format!("{form} takes no query parameter {name}")));
        }
        Ok(())
    }
}

/// Reads `partition=`.
pub(super) fn partition(params: &mut Params) -> Result<Option<PartitionIndex>, Problem> {
    let rule = || format!("an integer from 0 to {}", u32::MAX);
    params.value("partition", |text| digits(text).map(PartitionIndex).ok_or_else(rule))
}

/// Reads `acks=`.
pub(super) fn acks(params: &mut Params) -> Result<Acks, Problem> {
    let acks = params.value("acks", AcksWord::read)?;
    Ok(match acks.unwrap_or_default() {
        AcksWord::All => Acks::All,
        AcksWord::Leader => Acks::Leader,
        AcksWord::None => Acks::None,
    })
}

/// Refuses those of our headers that this form of a produce does not take; `Transaction` none does.
pub(super) fn refuse(headers: &HeaderMap, names: &[&'static str], why: &str) -> Result<(), Problem> {
    if headers.contains_key(TRANSACTION) {
        return Err(malformed("the header Transaction is not taken: this broker has no transactions"));
    }
    match names.iter().find(|name| headers.contains_key(**name)) {
        Some(name) => Err(malformed(format!("the header {name} is not taken {why}"))),
        None => Ok(()),
    }
}

/// How a produce is to be stored once, before its body has come.
#[derive(Debug)]
pub(super) struct OnceWish(Once);

impl OnceWish {
    /// What the engine is asked; `digest` of the body is needed only where there is an `Idempotency-Key`.
    pub(super) fn of_body(self, digest: impl FnOnce() -> [u8; 32]) -> Once {
        match self.0 {
            Once::Key { key, .. } => Once::Key { key, body_digest: digest() },
            other => other,
        }
    }
}

/// Reads `Idempotency-Key` and the three `Producer-` headers.
pub(super) fn once(headers: &HeaderMap) -> Result<OnceWish, Problem> {
    let key = text(headers, IDEMPOTENCY_KEY)?;
    let id = number(headers, PRODUCER_ID, JSON_INTEGER_MAX.cast_signed())?;
    let epoch = number(headers, PRODUCER_EPOCH, i16::MAX)?;
    let sequence = number(headers, PRODUCER_SEQUENCE, i32::MAX)?;
    match (key, id, epoch, sequence) {
        (None, None, None, None) => Ok(OnceWish(Once::No)),
        (Some(key), None, None, None) if key.is_empty() || key.len() > IDEMPOTENCY_KEY_BYTES_MAX => {
            let detail = format!(
                "Idempotency-Key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes of visible ASCII; this one has {}",
                key.len()
            );
            Err(malformed(detail))
        }
        (Some(key), None, None, None) => Ok(OnceWish(Once::Key { key: key.to_owned(), body_digest: [0; 32] })),
        (None, Some(id), Some(epoch), Some(sequence)) => {
            let (id, epoch, sequence) = (ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
            Ok(OnceWish(Once::Producer { id, epoch, sequence }))
        }
        (None, ..) => Err(malformed("Producer-Id, Producer-Epoch and Producer-Sequence come all three or not at all")),
        (Some(_), ..) => Err(malformed("a request has an Idempotency-Key or the Producer- headers, not both")),
    }
}

/// Reads `Expected-Offset`.
pub(super) fn expected_offset(headers: &HeaderMap) -> Result<Option<Offset>, Problem> {
    Ok(number(headers, EXPECTED_OFFSET, JSON_INTEGER_MAX)?.map(Offset))
}

/// The one value of a header, as visible ASCII text.
fn text<'h>(headers: &'h HeaderMap, name: &'static str) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(malformed(format!("the header {name} comes twice")));
    }
    let text = value.to_str().map_err(|_| malformed(format!("the header {name} is not visible ASCII text")))?;
    Ok(Some(text.trim()))
}

/// A header of plain digits from 0 to `max`.
fn number<T>(headers: &HeaderMap, name: &'static str, max: T) -> Result<Option<T>, Problem>
where
    T: Copy + PartialOrd + std::str::FromStr + std::fmt::Display,
{
    let Some(text) = text(headers, name)? else { return Ok(None) };
    let number = digits(text).filter(|n| *n <= max);
    number.map(Some).ok_or_else(|| no_value(name, format_args!("an integer from 0 to {max}"), text))
}

fn malformed(detail: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::InvalidParameter, detail)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_str(value).expect("a header"));
        }
        headers
    }

    #[test]
    fn the_producer_headers_come_all_three_or_not_at_all() {
        let all = [(PRODUCER_ID, "7"), (PRODUCER_EPOCH, "0"), (PRODUCER_SEQUENCE, "2147483647")];
        let wish = once(&headers(&all)).expect("well-formed").of_body(|| unreachable!("there is no key"));
        let expected = Once::Producer { id: ProducerId(7), epoch: ProducerEpoch(0), sequence: Sequence(i32::MAX) };
        assert_eq!(wish, expected);
        for missing in 0..3 {
            let some: Vec<_> = (0..3).filter(|at| *at != missing).map(|at| all[at]).collect();
            assert_eq!(once(&headers(&some)).expect_err("one is missing").status, 400);
        }
    }

    #[test]
    fn malformed_headers_are_refused_by_name() {
        for (name, bad) in [
            (PRODUCER_ID, "-1"),
            (PRODUCER_EPOCH, "32768"),
            (PRODUCER_SEQUENCE, "2147483648"),
            (PRODUCER_SEQUENCE, "+1"),
            (PRODUCER_ID, ""),
            (IDEMPOTENCY_KEY, ""),
            (IDEMPOTENCY_KEY, &"k".repeat(256)),
        ] {
            let problem = once(&headers(&[(name, bad)])).expect_err(name);
            assert_eq!(problem.status, 400, "{name}: {bad}");
            assert!(problem.detail.to_lowercase().contains(name), "{}", problem.detail);
        }
        assert!(expected_offset(&headers(&[(EXPECTED_OFFSET, "9007199254740992")])).is_err());
        assert!(once(&headers(&[(IDEMPOTENCY_KEY, "a"), (IDEMPOTENCY_KEY, "b")])).is_err());
        assert!(once(&headers(&[(IDEMPOTENCY_KEY, "a"), (PRODUCER_ID, "1")])).is_err());
        assert!(refuse(&headers(&[(TRANSACTION, "x")]), &[], "").is_err());
    }
}
