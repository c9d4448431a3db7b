//! Names that users choose, checked once and valid from then on.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{
    INSTANCE_ID_CHARS_MAX, MEMBER_ID_CHARS_MAX, NAME_BYTES_MAX, PROCESSOR_NAME_CHARS_MAX, TRANSACTIONAL_ID_CHARS_MAX,
};
use crate::{PartitionIndex, TopicId};

/// Why a name was refused; its text states the whole rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} have 1 to {} characters{}; {name:?} {fault}", rule.kind, rule.chars_max, rule.rest)]
pub struct NameError {
    rule: &'static Rule,
    name: String,
    fault: String,
}

/// The rule of one kind of names.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// What they are, as a plural.
    kind: &'static str,
    chars_max: usize,
    alphabet: Alphabet,
    reserved: &'static [&'static str],
    /// What [`NameError`] says after the length.
    rest: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum Alphabet {
    /// ASCII letters and digits, and these.
    AsciiAnd(&'static [char]),
    /// All but control characters.
    Printable,
}

const TOPIC: Rule = Rule {
    kind: "topic names",
    chars_max: NAME_BYTES_MAX,
    alphabet: Alphabet::AsciiAnd(&['.', '_', '-']),
    reserved: &[".", ".."],
    rest: " of a-z A-Z 0-9 . _ - and are not \".\" or \"..\"",
};
const GROUP: Rule = Rule { kind: "group names", ..TOPIC };
const MODULE: Rule = Rule { kind: "module names", ..TOPIC };
const PROCESSOR: Rule = Rule { kind: "processor names", chars_max: PROCESSOR_NAME_CHARS_MAX, ..TOPIC };
/// What the names of the groups and the transactional ids of processors begin with.
const OF_PROCESSORS: &str = "__processor.";
const MEMBER: Rule = Rule {
    kind: "member ids",
    chars_max: MEMBER_ID_CHARS_MAX,
    alphabet: Alphabet::AsciiAnd(&['_', '-']),
    reserved: &[],
    rest: " of a-z A-Z 0-9 _ -",
};
const INSTANCE: Rule = Rule {
    kind: "instance ids",
    chars_max: INSTANCE_ID_CHARS_MAX,
    alphabet: Alphabet::Printable,
    reserved: &[],
    rest: ", none of them a control character",
};
const TRANSACTIONAL: Rule = Rule { kind: "transactional ids", chars_max: TRANSACTIONAL_ID_CHARS_MAX, ..INSTANCE };

impl Rule {
    fn check(&'static self, name: &str) -> Result<Arc<str>, NameError> {
        let chars = name.chars().count();
        let fault = if chars == 0 {
            "is empty".to_owned()
        } else if chars > self.chars_max {
            format!("has {chars} characters")
        } else if let Some(c) = name.chars().find(|c| !self.alphabet.has(*c)) {
            format!("has {c:?}")
        } else if self.reserved.contains(&name) {
            "is reserved".to_owned()
        } else {
            return Ok(name.into());
        };
        let shown = name.chars().take(self.chars_max + 1).collect();
        Err(NameError { rule: self, name: shown, fault })
    }
}

impl Alphabet {
    fn has(&self, c: char) -> bool {
        match self {
            Self::AsciiAnd(more) => c.is_ascii_alphanumeric() || more.contains(&c),
            Self::Printable => !c.is_control(),
        }
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $rule:ident) => {
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
                $rule.check(name).map(Self)
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
    TopicName, TOPIC
}
name! {
    /// A consumer group's name; the same rule as for topics.
    GroupName, GROUP
}
name! {
    /// A module's name; the same rule as for topics.
    ModuleName, MODULE
}
name! {
    /// A processor's name; the rule of topics, but shorter, since its group is named after it.
    ProcessorName, PROCESSOR
}
name! {
    /// The id that the broker gives to a member of a group. Opaque to the member; safe within a URL.
    MemberId, MEMBER
}
name! {
    /// The identity that a member of a group keeps over its restarts (KIP-345), such as `pod-0/a`.
    InstanceId, INSTANCE
}
name! {
    /// The identity that a producer of transactions keeps over its restarts (KIP-98), such as `billing-1`.
    TransactionalId, TRANSACTIONAL
}

/// A module as settings and requests name it: `NAME`, its active version, or `NAME@2`, that one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModuleRef {
    /// Its name.
    pub name: ModuleName,
    /// The version, from 1; none: the active one at each moment.
    pub version: Option<u32>,
}

impl ModuleRef {
    /// The module that a setting names as `module:NAME` or `module:NAME@2`; none if it is no such text.
    #[must_use]
    pub fn in_setting(text: &str) -> Option<Self> {
        Self::new(text.strip_prefix("module:")?).ok()
    }

    /// Reads `NAME` or `NAME@2`.
    ///
    /// # Errors
    /// When the name breaks the rule, or the version is no positive number without leading zeros.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let Some((name, digits)) = text.split_once('@') else {
            return Ok(Self { name: ModuleName::new(text)?, version: None });
        };
        let version = digits.parse().ok().filter(|version: &u32| *version > 0 && version.to_string() == digits);
        let fault =
            || NameError { rule: &MODULE, name: text.to_owned(), fault: "has no version 1, 2, .. behind @".to_owned() };
        Ok(Self { name: ModuleName::new(name)?, version: Some(version.ok_or_else(fault)?) })
    }
}

impl fmt::Display for ModuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => self.name.fmt(f),
        }
    }
}

impl TryFrom<String> for ModuleRef {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<ModuleRef> for String {
    fn from(module: ModuleRef) -> Self {
        module.to_string()
    }
}

impl TopicName {
    /// Whether the topic is the broker's own (`__consumer_offsets` and its like): closed to producers.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.as_str().starts_with("__")
    }
}

impl GroupName {
    /// The group in which the positions of a processor are committed.
    #[must_use]
    pub fn of_processor(processor: &ProcessorName) -> Self {
        Self::new(&format!("{OF_PROCESSORS}{processor}")).expect("a processor's name is short enough")
    }

    /// Whether it is a processor's: it can be seen by users, and is changed by the broker alone.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.as_str().starts_with(OF_PROCESSORS)
    }
}

impl TransactionalId {
    /// Under which a processor's outputs of one source partition are stored.
    #[must_use]
    pub fn of_processor(processor: &ProcessorName, source: TopicId, partition: PartitionIndex) -> Self {
        let id = format!("{OF_PROCESSORS}{processor}.{}.{partition}", source.0.simple());
        Self::new(&id).expect("a processor's name is short enough")
    }

    /// Whether it is one of the broker's own: closed to users.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.as_str().starts_with("__")
    }

    /// Whether it is the broker's own for transactions of one request.
    #[must_use]
    pub fn is_of_requests(&self) -> bool {
        self.is_internal() && !self.as_str().starts_with(OF_PROCESSORS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PARTITIONS_MAX;

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
            assert!(error.starts_with("topic names have 1 to 249 characters of a-z A-Z 0-9 . _ - and"), "{error}");
        }
    }

    #[test]
    fn member_ids_are_short_and_need_no_escape_in_a_url() {
        for good in ["m", "B_7-x", &"a".repeat(64)] {
            assert_eq!(MemberId::new(good).expect(good).as_str(), good);
        }
        for bad in ["", "a.b", "a/b", "a b", "ü", &"a".repeat(65)] {
            let error = MemberId::new(bad).expect_err(bad).to_string();
            assert!(error.starts_with("member ids have 1 to 64 characters of a-z A-Z 0-9 _ -;"), "{error}");
        }
    }

    #[test]
    fn instance_ids_are_any_printable_text_counted_in_characters() {
        for good in ["pod-0/a", "日本 1", ".", &"ü".repeat(255)] {
            assert_eq!(InstanceId::new(good).expect(good).as_str(), good);
        }
        for bad in ["", "a\0", "a\nb", "\u{85}", &"ü".repeat(256)] {
            let error = InstanceId::new(bad).expect_err(bad).to_string();
            let rule = "instance ids have 1 to 255 characters, none of them a control character;";
            assert!(error.starts_with(rule), "{error}");
        }
    }

    #[test]
    fn whatever_a_processor_is_called_its_group_and_transactional_ids_keep_their_rules() {
        let longest = ProcessorName::new(&"p".repeat(PROCESSOR_NAME_CHARS_MAX)).expect("within the rule");
        assert!(ProcessorName::new(&"p".repeat(PROCESSOR_NAME_CHARS_MAX + 1)).is_err());
        assert!(GroupName::of_processor(&longest).is_internal());
        let id = TransactionalId::of_processor(&longest, TopicId(uuid::Uuid::max()), PartitionIndex(PARTITIONS_MAX));
        assert!(id.is_internal() && !id.is_of_requests());
        let execute = TransactionalId::new("__execute-1").expect("within the rule");
        assert!(execute.is_of_requests() && !GroupName::new("__x").expect("within the rule").is_internal());
    }

    #[test]
    fn transactional_ids_are_any_printable_text_and_some_are_the_brokers_own() {
        for good in ["billing-1", "日本 1", "_", &"ü".repeat(255)] {
            assert!(!TransactionalId::new(good).expect(good).is_internal());
        }
        assert!(TransactionalId::new("__execute-1").expect("within the rule").is_internal());
        for bad in ["", "a\0", &"a".repeat(256)] {
            let error = TransactionalId::new(bad).expect_err(bad).to_string();
            let rule = "transactional ids have 1 to 255 characters, none of them a control character;";
            assert!(error.starts_with(rule), "{error}");
        }
    }
}
