//! How a transaction is named towards clients: which coordinator, which producer, which epoch.

use std::fmt;
use std::str::FromStr;

use levada_model::{PartitionIndex, ProducerEpoch, ProducerId};
use thiserror::Error;

/// Names one transaction for ever, since each has an epoch of its own (KIP-890). As text it is opaque to clients, needs
/// no escape in a URL, and says which coordinator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionHandle {
    /// The partition of `__transaction_state` that its coordinator keeps.
    pub coordinator: PartitionIndex,
    /// Whose.
    pub producer_id: ProducerId,
    /// The epoch of its records. Its markers carry a higher one.
    pub producer_epoch: ProducerEpoch,
}

/// A text that is no transaction's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no transaction has such an id")]
pub struct HandleError;

impl fmt::Display for TransactionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.coordinator, self.producer_id, self.producer_epoch)
    }
}

impl FromStr for TransactionHandle {
    type Err = HandleError;

    /// Takes exactly what [`Display`](fmt::Display) writes: no transaction has two texts.
    fn from_str(text: &str) -> Result<Self, HandleError> {
        let parts: Vec<_> = text.splitn(3, '-').collect();
        let [coordinator, producer_id, producer_epoch] = parts[..] else { return Err(HandleError) };
        let handle = Self {
            coordinator: PartitionIndex(coordinator.parse().map_err(|_| HandleError)?),
            producer_id: ProducerId(producer_id.parse().map_err(|_| HandleError)?),
            producer_epoch: ProducerEpoch(producer_epoch.parse().map_err(|_| HandleError)?),
        };
        let is_given = handle.producer_id.0 >= 0 && handle.producer_epoch.0 >= 0;
        if is_given && handle.to_string() == text { Ok(handle) } else { Err(HandleError) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(coordinator: u32, producer_id in 0..=i64::MAX, producer_epoch in 0..=i16::MAX) {
            let handle = TransactionHandle {
                coordinator: PartitionIndex(coordinator),
                producer_id: ProducerId(producer_id),
                producer_epoch: ProducerEpoch(producer_epoch),
            };
            assert_eq!(handle.to_string().parse(), Ok(handle));
        }

        #[test]
        fn a_text_that_is_read_is_the_only_one_of_its_transaction(text in "[0-9+-]{1,3}-[0-9+-]{1,3}-[0-9+-]{1,3}") {
            if let Ok(handle) = text.parse::<TransactionHandle>() {
                assert_eq!(handle.to_string(), text);
            }
        }

        #[test]
        fn no_text_stops_the_reader(text in any::<String>()) {
            drop(text.parse::<TransactionHandle>());
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "7",
            "7-100",
            "7-100-",
            "7-100-3-",
            "7-100-3-1",
            "07-100-3",
            "7-+100-3",
            "7--1-3",
            "7-1--3",
            "7-1-32768",
        ] {
            assert_eq!(text.parse::<TransactionHandle>(), Err(HandleError), "{text}");
        }
        assert!("7-100-3".parse::<TransactionHandle>().is_ok());
    }
}
