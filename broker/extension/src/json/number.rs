//! Numbers of JSON: integers of 64 bits as they are, the rest as doubles.

use std::cmp::Ordering;

/// A number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JsonNumber {
    /// Between -2^63 and 2^64 - 1.
    Integer(i128),
    /// Everything else; a number beyond the range of doubles is infinite.
    Double(f64),
}

impl JsonNumber {
    /// The number that JSON text says, if it is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return None;
        }
        let signed = text.parse::<i64>().map(i128::from);
        match signed.or_else(|_| text.parse::<u64>().map(i128::from)) {
            Ok(integer) => Some(Self::Integer(integer)),
            Err(_) => text.parse().ok().map(Self::Double),
        }
    }

    /// The same of a number that is read already.
    pub(crate) fn of(number: &serde_json::Number) -> Self {
        let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
        integer.map_or_else(|| Self::Double(number.as_f64().unwrap_or(f64::INFINITY)), Self::Integer)
    }

    /// Compares by value, exactly; an integer is never rounded for it.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
            (Self::Integer(a), Self::Double(b)) => compare_mixed(a, b),
            (Self::Double(a), Self::Integer(b)) => compare_mixed(b, a).reverse(),
        }
    }
}

fn compare_mixed(integer: i128, double: f64) -> Ordering {
    let whole = double.trunc();
    // The conversion saturates, and beyond 2^64 that changes no order.
    integer.cmp(&(whole as i128)).then_with(|| 0.0.partial_cmp(&(double - whole)).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &str, b: &str) -> Ordering {
        let parse = |text| JsonNumber::parse(text).expect(text);
        parse(a).compare(parse(b))
    }

    #[test]
    fn numbers_compare_by_value_and_without_rounding() {
        let ascending = [
            "-1e400",
            "-9223372036854775808",
            "-2.5",
            "-2",
            "-1.5",
            "0",
            "0.5",
            "1",
            "1.5",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "18446744073709551615",
            "1e300",
            "1e400",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} and {b}");
            }
        }
        assert_eq!(compare("1", "1.0"), Ordering::Equal);
        assert_eq!(compare("-0", "0.0"), Ordering::Equal);
        assert_eq!(compare("10", "1e1"), Ordering::Equal);
    }

    #[test]
    fn what_is_no_number_in_json_is_none_here() {
        for text in ["true", "null", "\"1\"", "[1]", "inf", "NaN", "+1", ""] {
            assert!(JsonNumber::parse(text).is_none(), "{text}");
        }
    }
}
