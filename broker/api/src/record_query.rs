//! The words that query parameters of produce and read take.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a word was not taken: the words that are, for the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord(&'static str);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// When a produce is answered (`acks`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AcksWord {
    /// When all in-sync replicas have it.
    #[default]
    All,
    /// When the leader has it.
    Leader,
    /// At once.
    None,
}

impl AcksWord {
    /// The word as it stands in a query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Leader => "leader",
            Self::None => "none",
        }
    }

    /// # Errors
    /// When it is no such word.
    pub fn read(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "all" => Ok(Self::All),
            "leader" => Ok(Self::Leader),
            "none" => Ok(Self::None),
            _ => Err(UnknownWord("all, leader or none")),
        }
    }
}

/// Which lines of an NDJSON produce are answered (`results`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultsWord {
    /// Every line.
    #[default]
    All,
    /// Those that were refused.
    Refused,
    /// None of them; the last line, with the sum, always comes.
    None,
}

impl ResultsWord {
    /// # Errors
    /// When it is no such word.
    pub fn read(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "all" => Ok(Self::All),
            "refused" => Ok(Self::Refused),
            "none" => Ok(Self::None),
            _ => Err(UnknownWord("all, refused or none")),
        }
    }
}

/// What a reader sees of transactions (`isolation`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationWord {
    /// Only what is decided.
    #[default]
    ReadCommitted,
    /// Everything.
    ReadUncommitted,
}

impl IsolationWord {
    /// # Errors
    /// When it is no such word.
    pub fn read(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "read_committed" => Ok(Self::ReadCommitted),
            "read_uncommitted" => Ok(Self::ReadUncommitted),
            _ => Err(UnknownWord("read_committed or read_uncommitted")),
        }
    }
}

/// The form that values are forced into (`format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FormatWord {
    /// UTF-8 as `value_text`, the rest as `value_base64`.
    Text,
    /// All as `value_base64`.
    Base64,
}

impl FormatWord {
    /// # Errors
    /// When it is no such word.
    pub fn read(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "text" => Ok(Self::Text),
            "base64" => Ok(Self::Base64),
            _ => Err(UnknownWord("text or base64")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn same<T: Serialize>(words: &[&str], read: fn(&str) -> Result<T, UnknownWord>) {
        for word in words {
            let value = serde_json::to_value(read(word).expect(word)).expect("a word");
            assert_eq!(value, Value::from(*word));
        }
        for other in ["", "ALL", "read-committed", "json"] {
            let Err(known) = read(other) else { panic!("{other} is no word") };
            assert!(words.iter().all(|word| known.to_string().contains(word)), "{known}");
        }
    }

    #[test]
    fn words_are_read_as_the_document_spells_them() {
        same(&["all", "leader", "none"], AcksWord::read);
        same(&["all", "refused", "none"], ResultsWord::read);
        same(&["read_committed", "read_uncommitted"], IsolationWord::read);
        same(&["text", "base64"], FormatWord::read);
        assert_eq!(json!(AcksWord::default()), "all");
        for word in [AcksWord::All, AcksWord::Leader, AcksWord::None] {
            assert_eq!(AcksWord::read(word.as_str()), Ok(word));
        }
    }
}
