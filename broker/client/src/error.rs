//! The one error of every call: what the server said, or why there was no answer.

use std::time::Duration;

use levada_api::Problem;
use thiserror::Error;

/// Why a call gave nothing.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The address cannot be used.
    #[error("{url:?} is not an address of a server: {detail}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong and what is right.
        detail: String,
    },
    /// A name that cannot be part of an address (empty, `.` or `..`), so the server cannot even be asked.
    #[error(
        "{name:?} cannot be a name: names have 1 to 249 characters of a-z A-Z 0-9 . _ - and are not \".\" or \"..\""
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// No connection.
    #[error("nothing answers at {url}; is `levada serve` running?")]
    Unreachable {
        /// Where.
        url: String,
        /// What the system said.
        source: reqwest::Error,
    },
    /// The connection ended, or fell silent, before the whole answer was there; a write may have been done.
    #[error("the connection to {url} broke before the answer was complete ({detail})")]
    Broken {
        /// Where.
        url: String,
        /// What happened.
        detail: String,
    },
    /// The server's own refusal (RFC 9457).
    #[error("{}", describe(.problem))]
    Refused {
        /// What the server said.
        problem: Box<Problem>,
        /// Its `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// An answer that Levada does not give: another program listens there, or one of another version.
    #[error("{url} answered with status {status}, but not as Levada does: {detail}")]
    Unexpected {
        /// Where.
        url: String,
        /// The status.
        status: u16,
        /// What was wrong with the answer.
        detail: String,
    },
    /// Records of a transaction may be missing or stored without a word, so it takes no more and is not committed.
    #[error("an earlier produce of transaction {transaction} failed, so it can only be aborted")]
    OnlyAbort {
        /// Which.
        transaction: String,
    },
    /// The request could not be written as JSON.
    #[error("the request cannot be written: {0}")]
    Encode(#[from] serde_json::Error),
}

impl ClientError {
    /// The server's problem, if it was the server that refused.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// Whether the same call may succeed later: no or a broken connection, or a problem that says so.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused { problem, .. } => problem.retryable,
            _ => false,
        }
    }

    /// How long the server asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The problem's own words, and below them the places that are wrong.
fn describe(problem: &Problem) -> String {
    let mut text = if problem.detail.is_empty() { problem.title.to_string() } else { problem.detail.clone() };
    text.push_str(&format!(" ({})", problem.code));
    for fault in problem.errors.iter().take(PLACES_SHOWN_MAX) {
        let pointer = if fault.pointer.is_empty() { "the body" } else { &fault.pointer };
        text.push_str(&format!("\n  {pointer}: {}", fault.detail));
    }
    if problem.errors.len() > PLACES_SHOWN_MAX {
        text.push_str(&format!("\n  and {} more", problem.errors.len() - PLACES_SHOWN_MAX));
    }
    text
}

const PLACES_SHOWN_MAX: usize = 10;
