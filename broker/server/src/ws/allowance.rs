//! How much a subscription may still send. It starts at nothing, adds up, and is apart from commits.

use levada_api::Credit;

/// What is left of the credit that was granted. What was never named does not limit; while nothing was, nothing is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    records: Option<u64>,
    bytes: Option<u64>,
}

impl Allowance {
    /// Adds a grant. Naming a number, be it 0, makes it count from then on.
    pub(super) fn add(&mut self, credit: Credit) {
        let add = |left: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *left = Some(left.unwrap_or(0).saturating_add(more));
            }
        };
        add(&mut self.records, credit.records);
        add(&mut self.bytes, credit.bytes);
    }

    /// Whether anything may be sent.
    pub(super) fn is_open(self) -> bool {
        let was_granted = self.records.is_some() || self.bytes.is_some();
        was_granted && self.records != Some(0) && self.bytes != Some(0)
    }

    /// Takes so many records of so many bytes out, if they may be sent. What is larger than the bytes that are left goes
    /// all the same where it would be `alone` in its frame, and takes all that is left.
    pub(super) fn spend(&mut self, records: u64, bytes: u64, alone: bool) -> bool {
        let fits = |left: Option<u64>, n: u64| left.is_none_or(|left| left >= n);
        let is_whole = fits(self.records, records) && fits(self.bytes, bytes);
        if !self.is_open() || !(is_whole || alone) {
            return false;
        }
        let take = |left: &mut Option<u64>, n: u64| *left = left.map(|left| left.saturating_sub(n));
        take(&mut self.records, records);
        take(&mut self.bytes, bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn granted(records: Option<u64>, bytes: Option<u64>) -> Allowance {
        let mut allowance = Allowance::default();
        allowance.add(Credit { records, bytes });
        allowance
    }

    #[test]
    fn credit_starts_at_nothing_and_what_was_never_named_does_not_limit() {
        assert!(!Allowance::default().is_open());
        assert!(!granted(Some(0), None).is_open());
        assert!(!granted(Some(0), Some(7)).is_open(), "a zero was named, so it counts");
        assert!(granted(Some(1), None).is_open() && granted(None, Some(1)).is_open());
    }

    #[test]
    fn a_record_larger_than_the_bytes_left_goes_alone_and_takes_them_all() {
        let mut allowance = granted(Some(3), Some(10));
        assert!(allowance.spend(1, 4, true));
        assert!(!allowance.spend(1, 7, false), "it waits for a frame of its own");
        assert!(allowance.spend(1, 7, true));
        assert_eq!(allowance, granted(Some(1), Some(0)));
        assert!(!allowance.spend(1, 1, true));
    }

    #[test]
    fn sums_saturate() {
        let mut allowance = granted(Some(u64::MAX - 1), None);
        allowance.add(Credit { records: Some(7), bytes: None });
        assert_eq!(allowance, granted(Some(u64::MAX), None));
    }

    proptest! {
        #[test]
        fn no_more_records_are_sent_than_were_granted(
            steps in prop::collection::vec(prop_oneof![
                (0..5_u64).prop_map(|n| (Some(n), 0)),
                (1..100_u64).prop_map(|bytes| (None, bytes)),
            ], 0..60),
        ) {
            let (mut allowance, mut granted, mut sent) = (Allowance::default(), 0, 0);
            for (grant, bytes) in steps {
                match grant {
                    Some(n) => {
                        granted += n;
                        allowance.add(Credit { records: Some(n), bytes: None });
                    }
                    None => sent += u64::from(allowance.spend(1, bytes, true)),
                }
                prop_assert!(sent <= granted);
                prop_assert_eq!(allowance.is_open(), sent < granted);
            }
        }

        #[test]
        fn bytes_are_overdrawn_by_one_record_at_most(
            grants in prop::collection::vec(1..50_u64, 1..5),
            sizes in prop::collection::vec(1..100_u64, 0..40),
        ) {
            let mut allowance = Allowance::default();
            for bytes in &grants {
                allowance.add(Credit { records: None, bytes: Some(*bytes) });
            }
            let (granted, mut sent) = (grants.iter().sum::<u64>(), 0);
            for size in sizes {
                let fits = sent + size <= granted;
                prop_assert_eq!(allowance.spend(1, size, false), fits, "beside others");
                if !fits {
                    prop_assert_eq!(allowance.spend(1, size, true), sent < granted, "alone");
                    break;
                }
                sent += size;
            }
        }
    }
}
