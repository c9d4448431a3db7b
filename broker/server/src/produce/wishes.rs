//! What a produce asks for besides its records: `acks`, and the headers that make it happen once, at one offset, or in a
//! transaction.

use http::HeaderMap;
use levada_api::{AcksWord, ErrorCode, Problem, ResultsWord};
use levada_engine::{Acks, Once, TransactionHandle};
use levada_model::limits::{IDEMPOTENCY_KEY_BYTES_MAX, JSON_INTEGER_MAX};
use levada_model::{Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence};

use crate::extract::{self, Params, digits, no_value};

pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
pub(super) const PRODUCER_ID: &str = "producer-id";
pub(super) const PRODUCER_EPOCH: &str = "producer-epoch";
pub(super) const PRODUCER_SEQUENCE: &str = "producer-sequence";
pub(super) const EXPECTED_OFFSET: &str = "expected-offset";
const TRANSACTION: &str = "transaction";
/// The headers that say how one append is stored.
pub(crate) const OF_ONE_APPEND: [&str; 5] =
    [TRANSACTION, PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE, EXPECTED_OFFSET];

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

/// Refuses those of our headers that this form of a produce does not take.
pub(crate) fn refuse(headers: &HeaderMap, names: &[&'static str], why: &str) -> Result<(), Problem> {
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

/// Reads `Idempotency-Key`, `Transaction` and the three `Producer-` headers.
pub(super) fn once(headers: &HeaderMap, acks: Acks) -> Result<OnceWish, Problem> {
    let transaction = transaction(headers, acks)?;
    let key = key(headers)?;
    let id = number(headers, PRODUCER_ID, JSON_INTEGER_MAX.cast_signed())?;
    let epoch = number(headers, PRODUCER_EPOCH, i16::MAX)?;
    let sequence = number(headers, PRODUCER_SEQUENCE, i32::MAX)?;
    if let Some(transaction) = transaction {
        if key.is_some() {
            let detail = "a request has a Transaction or an Idempotency-Key, not both: \
                Producer-Sequence makes it safe to send records of a transaction again";
            return Err(malformed(detail));
        }
        is_of(transaction, id, epoch)?;
        return Ok(OnceWish(Once::Transaction { transaction, sequence: sequence.map(Sequence) }));
    }
    match (key, id, epoch, sequence) {
        (None, None, None, None) => Ok(OnceWish(Once::No)),
        (Some(key), None, None, None) => Ok(OnceWish(Once::Key { key: key.to_owned(), body_digest: [0; 32] })),
        (None, Some(id), Some(epoch), Some(sequence)) => {
            let (id, epoch, sequence) = (ProducerId(id), ProducerEpoch(epoch), Sequence(sequence));
            Ok(OnceWish(Once::Producer { id, epoch, sequence }))
        }
        (None, ..) => Err(malformed("Producer-Id, Producer-Epoch and Producer-Sequence come all three or not at all")),
        (Some(_), ..) => Err(malformed("a request has an Idempotency-Key or the Producer- headers, not both")),
    }
}

/// Reads `Idempotency-Key`.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let key = text(headers, IDEMPOTENCY_KEY)?;
    match key {
        Some(key) if key.is_empty() || key.len() > IDEMPOTENCY_KEY_BYTES_MAX => {
            let detail = format!(
                "Idempotency-Key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes of visible ASCII; this one has {}",
                key.len()
            );
            Err(malformed(detail))
        }
        key => Ok(key),
    }
}

/// Reads `Transaction`.
pub(super) fn transaction(headers: &HeaderMap, acks: Acks) -> Result<Option<TransactionHandle>, Problem> {
    let transaction = text(headers, TRANSACTION)?.map(extract::transaction).transpose()?;
    if transaction.is_some() && acks != Acks::All {
        // It could be committed without records that nobody heard were lost.
        return Err(malformed("a produce with a Transaction takes acks=all alone, or none that is named"));
    }
    Ok(transaction)
}

/// Whether the producer that is named, as far as it is, is that of the transaction.
fn is_of(transaction: TransactionHandle, id: Option<i64>, epoch: Option<i16>) -> Result<(), Problem> {
    let is_other = id.is_some_and(|id| id != transaction.producer_id.0)
        || epoch.is_some_and(|epoch| epoch != transaction.producer_epoch.0);
    if is_other {
        let detail = format!(
            "Transaction {transaction} is of producer {} with epoch {}, and Producer-Id and Producer-Epoch name another; \
            with a Transaction they may be left out",
            transaction.producer_id, transaction.producer_epoch
        );
        return Err(malformed(detail));
    }
    Ok(())
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
        let wish = once(&headers(&all), Acks::All).expect("well-formed").of_body(|| unreachable!("there is no key"));
        let expected = Once::Producer { id: ProducerId(7), epoch: ProducerEpoch(0), sequence: Sequence(i32::MAX) };
        assert_eq!(wish, expected);
        for missing in 0..3 {
            let some: Vec<_> = (0..3).filter(|at| *at != missing).map(|at| all[at]).collect();
            assert_eq!(once(&headers(&some), Acks::All).expect_err("one is missing").status, 400);
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
            let problem = once(&headers(&[(name, bad)]), Acks::All).expect_err(name);
            assert_eq!(problem.status, 400, "{name}: {bad}");
            assert!(problem.detail.to_lowercase().contains(name), "{}", problem.detail);
        }
        assert!(expected_offset(&headers(&[(EXPECTED_OFFSET, "9007199254740992")])).is_err());
        assert!(once(&headers(&[(IDEMPOTENCY_KEY, "a"), (IDEMPOTENCY_KEY, "b")]), Acks::All).is_err());
        assert!(once(&headers(&[(IDEMPOTENCY_KEY, "a"), (PRODUCER_ID, "1")]), Acks::All).is_err());
    }

    #[test]
    fn a_transaction_needs_no_other_header_and_takes_those_that_agree() {
        let transaction: TransactionHandle = "3-7-2".parse().expect("a transaction");
        for (more, sequence) in [
            (&[][..], None),
            (&[(PRODUCER_SEQUENCE, "5")], Some(Sequence(5))),
            (&[(PRODUCER_ID, "7")], None),
            (&[(PRODUCER_ID, "7"), (PRODUCER_EPOCH, "2"), (PRODUCER_SEQUENCE, "0")], Some(Sequence(0))),
        ] {
            let all = [&[(TRANSACTION, "3-7-2")], more].concat();
            let wish =
                once(&headers(&all), Acks::All).expect("well-formed").of_body(|| unreachable!("there is no key"));
            assert_eq!(wish, Once::Transaction { transaction, sequence }, "{more:?}");
        }
    }

    #[test]
    fn a_transaction_with_what_does_not_agree_is_refused() {
        for more in [(PRODUCER_ID, "8"), (PRODUCER_EPOCH, "1"), (IDEMPOTENCY_KEY, "a"), (TRANSACTION, "3-7-2")] {
            let problem = once(&headers(&[(TRANSACTION, "3-7-2"), more]), Acks::All).expect_err("one of the two");
            assert_eq!(problem.code, ErrorCode::InvalidParameter, "{more:?}");
        }
        for acks in [Acks::Leader, Acks::None] {
            assert!(once(&headers(&[(TRANSACTION, "3-7-2")]), acks).is_err());
        }
        for other in ["", "x", "3-7", "3-7-2-1", "03-7-2", &"9".repeat(5_000)] {
            let problem = once(&headers(&[(TRANSACTION, other)]), Acks::All).expect_err("no transaction has it");
            assert_eq!(problem.code, ErrorCode::TransactionNotFound, "{other}");
            assert!(problem.detail.len() < 300, "{}", problem.detail);
        }
    }
}
