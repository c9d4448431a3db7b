//! Names that users choose, checked once and valid from then on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::NAME_BYTES_MAX;

/// Why a name was refused; its text states the whole rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{kind} names have 1 to {NAME_BYTES_MAX} characters of a-z A-Z 0-9 . _ - and are not \".\" or \"..\"; {name:?} {fault}"
)]
pub struct NameError {
    kind: &'static str,
    name: String,
    fault: String,
}

fn check(kind: &'static str, name: &str) -> Result<Arc<str>, NameError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fault = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("has {} bytes", name.len())
    } else if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        format!("has {c:?}")
    } else if name == "." || name == ".." {
        "is reserved".to_owned()
    } else {
        return Ok(name.into());
    };
    let shown = name.chars().take(NAME_BYTES_MAX + 1).collect();
    Err(NameError { kind, name: shown, fault })
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `name` against the rule.
            ///
            /// # Errors
            /// When it breaks the rule; the error's text states it.
            pub fn new(name: &str) -> Result<Self, NameError> {
                check($kind, name).map(Self)
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(&name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }
    };
}

name! {
    /// A topic's name (Kafka's rule). Never used as a file name.
    TopicName, "topic"
}
name! {
    /// A consumer group's name; the same rule as for topics.
    GroupName, "group"
}

impl TopicName {
    /// Whether the topic is the broker's own (`__consumer_offsets` and its like): closed to producers.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.as_str().starts_with("__")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_within_the_rule_are_taken() {
        for good in ["a", "x.y", "x_y", "A-9", "...", &"a".repeat(249)] {
            assert_eq!(TopicName::new(good).expect(good).as_str(), good);
        }
    }

    #[test]
    fn names_outside_the_rule_are_refused_with_the_rule() {
        for bad in ["", ".", "..", "a/b", "a%2Fb", "a b", "ümlaut", "日本", "a\0", &"a".repeat(250)] {
            let error = TopicName::new(bad).expect_err(bad).to_string();
            assert!(error.contains("1 to 249 characters of a-z A-Z 0-9 . _ -"), "{error}");
        }
    }
}
