//! What an answer says when something is wrong: one list of codes, and RFC 9457 problems made from them.
//!
//! Not here: which error of the engine becomes which code (the server's `refusal.rs`).

use std::borrow::Cow;

use levada_model::limits::{DETAIL_CHARS_MAX, ECHO_CHARS_MAX, PROBLEM_ERRORS_MAX};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ModuleUse, RefusedCommit};

/// What became of the request's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing was changed.
    None,
    /// It may have been done; look before trying again.
    Possible,
    /// Part of it was done.
    Partial,
}

/// What a code decides.
struct Rule {
    text: &'static str,
    status: u16,
    retryable: bool,
    effect: Effect,
    title: &'static str,
}

macro_rules! codes {
    ($($name:ident = $text:literal, $status:literal, $retry:ident, $title:literal;)+) => {
        /// What went wrong. The code alone decides status, title, whether a retry may help, and the usual effect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum ErrorCode {
            $(
                #[doc = $title]
                $name,
            )+
        }

        impl ErrorCode {
            /// All codes, by status.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            fn rule(self) -> Rule {
                match self {
                    $(Self::$name => Rule {
                        text: $text,
                        status: $status,
                        retryable: codes!(@retryable $retry),
                        effect: codes!(@effect $retry),
                        title: $title,
                    },)+
                }
            }
        }
    };
    (@retryable final) => { false };
    (@retryable retry) => { true };
    (@retryable soon) => { true };
    (@retryable broken) => { false };
    (@effect final) => { Effect::None };
    (@effect retry) => { Effect::None };
    (@effect soon) => { Effect::None };
    (@effect broken) => { Effect::Possible };
}

codes! {
    InvalidJson = "invalid-json", 400, final, "The body is not JSON.";
    InvalidBody = "invalid-body", 400, final, "The body ends early or cannot be unpacked.";
    InvalidRequest = "invalid-request", 400, final, "The request line or a header is malformed.";
    InvalidParameter = "invalid-parameter", 400, final, "A query parameter, path segment or header has a value that it does not take, or comes twice.";
    UnknownParameter = "unknown-parameter", 400, final, "There is no such query parameter.";
    InvalidTopicName = "invalid-topic-name", 400, final, "The topic name breaks the rule.";
    InvalidGroupName = "invalid-group-name", 400, final, "The group name breaks the rule.";
    InvalidModuleName = "invalid-module-name", 400, final, "The module name breaks the rule.";
    InvalidProcessorName = "invalid-processor-name", 400, final, "The processor name breaks the rule.";
    InvalidCursor = "invalid-cursor", 400, final, "The cursor was not given out by this broker.";
    Denied = "denied", 403, final, "That is not allowed.";
    CrossSite = "cross-site", 403, final, "A web page of another site may not write here.";
    InternalTopic = "internal-topic", 403, final, "The topic is the broker's own and is not changed from outside.";
    InternalGroup = "internal-group", 403, final, "The group is a processor's and is not changed from outside.";
    ProducerFenced = "producer-fenced", 403, final, "A newer epoch of the producer has written, or was given out.";
    NotFound = "not-found", 404, final, "There is nothing at this path.";
    TopicNotFound = "topic-not-found", 404, final, "There is no such topic.";
    PartitionNotFound = "partition-not-found", 404, final, "The topic has no such partition.";
    GroupNotFound = "group-not-found", 404, final, "The group has no members and has committed nothing.";
    UnknownMember = "unknown-member", 404, final, "The group has no such member (any more): join again.";
    UnknownSubscription = "unknown-subscription", 404, final, "The socket has no subscription of this id.";
    TransactionNotFound = "transaction-not-found", 404, final, "There is no such transaction.";
    ModuleNotFound = "module-not-found", 404, final, "There is no such module, or it has no such version.";
    ProcessorNotFound = "processor-not-found", 404, final, "There is no such processor.";
    NoRecord = "no-record", 404, final, "There is no record at this offset.";
    MethodNotAllowed = "method-not-allowed", 405, final, "The path does not take this method.";
    NotAcceptable = "not-acceptable", 406, final, "The answer has none of the accepted media types.";
    RequestTimeout = "request-timeout", 408, retry, "The request's body did not come in time.";
    TopicExists = "topic-exists", 409, final, "There is a topic of this name.";
    SubscriptionExists = "subscription-exists", 409, final, "The socket has a subscription of this id.";
    TooManySubscriptions = "too-many-subscriptions", 409, final, "The socket has as many subscriptions as it may.";
    KeylessRecords = "keyless-records", 409, final, "The topic holds records without a key, so it cannot be compacted.";
    NotCompacted = "not-compacted", 409, final, "The topic's cleanup.policy does not compact.";
    PartitionRetiring = "partition-retiring", 409, final, "The partition takes no new records.";
    OutOfOrderSequence = "out-of-order-sequence", 409, final, "The producer's sequence has a gap, or is a repeat too old to be recognised.";
    FencedInstance = "fenced-instance", 409, final, "Another member came with this member's instance id and took its place.";
    IllegalGeneration = "illegal-generation", 409, final, "The member does not hold the partitions, or lost them since the records were delivered.";
    GroupNotEmpty = "group-not-empty", 409, final, "The group has active members.";
    GroupFull = "group-full", 409, final, "The group takes no more members.";
    InconsistentProtocol = "inconsistent-protocol", 409, final, "The group's members speak another protocol.";
    TransactionEnded = "transaction-ended", 409, final, "The transaction has ended, or was ended the other way.";
    ConcurrentTransactions = "concurrent-transactions", 409, soon, "The producer's transaction before is still being ended.";
    TransactionOpen = "transaction-open", 409, final, "The producer has a transaction open here, and the records are not of it.";
    ModuleInUse = "module-in-use", 409, final, "Topics or processors use the module.";
    ModulesFull = "modules-full", 409, final, "There are as many modules, or versions of this one, as there may be.";
    ModulesOff = "modules-off", 409, final, "This broker runs no modules.";
    ProcessorRunning = "processor-running", 409, final, "The processor runs, and must stand still for that.";
    ProcessorsFull = "processors-full", 409, final, "There are as many processors as there may be.";
    OffsetOutOfRange = "offset-out-of-range", 410, final, "The offset is below the log start: its record is gone.";
    CursorGone = "cursor-gone", 410, final, "The cursor belongs to another topic or group, or to a topic that was deleted.";
    PreconditionFailed = "precondition-failed", 412, final, "The topic is at another version than If-Match names.";
    OffsetMismatch = "offset-mismatch", 412, final, "The expected offset is not the next.";
    BodyTooLarge = "body-too-large", 413, final, "The body is larger than the server takes.";
    RecordTooLarge = "record-too-large", 413, final, "A record or batch is larger than its limit.";
    TransactionTooLarge = "transaction-too-large", 413, final, "A transaction has more partitions or groups, or an answer that is longer, than its limit.";
    UnsupportedMediaType = "unsupported-media-type", 415, final, "The body's media type is not taken here.";
    UnsupportedEncoding = "unsupported-encoding", 415, final, "The body's Content-Encoding is not taken.";
    OffsetBeyondEnd = "offset-beyond-end", 416, final, "The offset is beyond the end of the partition.";
    MisdirectedRequest = "misdirected-request", 421, final, "This server does not answer for that Host.";
    InvalidField = "invalid-field", 422, final, "A field of the body is missing, unknown, repeated, or has a value that it does not take.";
    IntegerTooLarge = "integer-too-large", 422, final, "An integer is larger than 2^53 - 1.";
    UnknownConfig = "unknown-config", 422, final, "There is no such topic setting.";
    InvalidConfig = "invalid-config", 422, final, "A topic setting has a value that it does not take.";
    ReservedTopicName = "reserved-topic-name", 422, final, "Names that begin with __ are kept for the broker.";
    InvalidPartitionCount = "invalid-partition-count", 422, final, "A topic cannot have this many partitions.";
    InvalidOffset = "invalid-offset", 422, final, "An offset lies where there is nothing.";
    NoDeadLetters = "no-dead-letters", 422, final, "The topic can have no dead letters.";
    InvalidRecord = "invalid-record", 422, final, "A record breaks a rule.";
    KeyRequired = "key-required", 422, final, "The topic is compacted, so every record needs a key.";
    RecordRejected = "record-rejected", 422, final, "The topic's validator does not let a record pass.";
    InvalidModule = "invalid-module", 422, final, "The bytes are no usable module.";
    InvalidModuleConfig = "invalid-module-config", 422, final, "The module is not of the world that is wanted, or does not take the config.";
    InvalidBatch = "invalid-batch", 422, final, "The bytes are not record batches that can be stored.";
    IdempotencyKeyReused = "idempotency-key-reused", 422, final, "The idempotency key came before with another body.";
    UnknownProducer = "unknown-producer", 422, final, "The producer id was not given out by this cluster, or not for this.";
    TransactionalIdsFull = "transactional-ids-full", 422, final, "There are as many transactional ids as there may be.";
    UpgradeRequired = "upgrade-required", 426, final, "This path is for WebSockets.";
    HeadersTooLarge = "headers-too-large", 431, final, "The request has too many or too large headers.";
    Internal = "internal", 500, broken, "The broker has a bug; its log says more.";
    Starting = "starting", 503, retry, "The broker is starting.";
    ShuttingDown = "shutting-down", 503, retry, "The broker is shutting down.";
    LogFenced = "log-fenced", 503, retry, "The disk failed or is full: no writes are taken until a restart; reads go on.";
    Overloaded = "overloaded", 503, retry, "Too much waits already.";
    ModuleFailed = "module-failed", 503, retry, "A module gave no usable answer: it trapped, or answered nonsense.";
    ModuleTimeout = "module-timeout", 503, retry, "A module took too long to answer, so it was stopped.";
    NotEnoughReplicas = "not-enough-replicas", 503, retry, "Fewer replicas are in sync than the topic asks for.";
    CoordinatorLoading = "coordinator-loading", 503, retry, "The coordinator is loading; what was asked for may have been done.";
    StorageFailed = "storage-failed", 503, retry, "The disk could not be read.";
    CompactionFailed = "compaction-failed", 503, retry, "A partition could not be compacted; its log is as it was.";
}

impl ErrorCode {
    /// The code as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.rule().text
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        self.rule().status
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(self) -> bool {
        self.rule().retryable
    }

    /// What it means, as a sentence.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.rule().title
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in the request that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer (RFC 6901) into the request's body; empty is the whole.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

/// An RFC 9457 problem: the body of every answer of status 400 and above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URN that ends in the code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Box<str>,
    /// The code's meaning; the same for every answer with the code.
    #[schema(value_type = String)]
    pub title: Box<str>,
    /// The HTTP status again.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// What went wrong, for programs.
    pub code: ErrorCode,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What became of the request's effect.
    pub effect: Effect,
    /// Places in the request's body that are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// What else the code tells.
    #[serde(flatten)]
    pub members: Box<Members>,
}

/// Extension members of a [`Problem`]; which ones come with which code is told by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Members {
    /// The topic of the record over which a filter failed (`module-failed`, `module-timeout`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// Its partition (likewise).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u32>,
    /// Its offset (likewise): all before it was delivered, and the next one may be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// First offset there is (`offset-out-of-range`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub log_start_offset: Option<u64>,
    /// The end of the partition (`offset-beyond-end`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub high_watermark: Option<u64>,
    /// The offset that would have been right (`offset-mismatch`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_offset: Option<u64>,
    /// The sequence that would have been right (`out-of-order-sequence`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expected_sequence: Option<i32>,
    /// The setting whose limit was met (413, 431, and wherever a limit is named).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub limit: Option<String>,
    /// The value of that limit, in bytes unless its name says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub limit_value: Option<u64>,
    /// Partitions whose commit was refused (`illegal-generation`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedCommit>,
    /// Who uses the module (`module-in-use`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<ModuleUse>,
    /// What would have been taken (406, 415).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<String>,
}

impl Problem {
    /// A problem of this code; `detail` says what happened this time, in words of the interface.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let rule = code.rule();
        Self {
            kind: format!("urn:levada:problem:{}", rule.text).into(),
            title: rule.title.into(),
            status: rule.status,
            detail: cut(detail.into(), DETAIL_CHARS_MAX),
            code,
            retryable: rule.retryable,
            effect: rule.effect,
            errors: Vec::new(),
            members: Box::default(),
        }
    }

    /// The same with another effect than the code's usual one.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// The same with one more place that is wrong.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (cut(pointer.into(), DETAIL_CHARS_MAX), cut(detail.into(), DETAIL_CHARS_MAX));
        self.errors.push(FieldError { pointer, detail });
        self
    }

    /// The same with all these places (pointer and detail), or the first of them and how many there were.
    #[must_use]
    pub fn at_each(mut self, places: impl ExactSizeIterator<Item = (String, String)>) -> Self {
        let count = places.len();
        if count > PROBLEM_ERRORS_MAX {
            self.detail.push_str(&format!(" ({count} places are wrong; errors has the first {PROBLEM_ERRORS_MAX})"));
        }
        places.take(PROBLEM_ERRORS_MAX).fold(self, |problem, (pointer, detail)| problem.at(pointer, detail))
    }

    /// The same, naming the setting whose limit was met, and its value.
    #[must_use]
    pub fn limited(self, setting: &str, value: u64) -> Self {
        self.with(|m| (m.limit, m.limit_value) = (Some(setting.to_owned()), Some(value)))
    }

    /// The same with extension members, e.g. `.with(|m| m.next_offset = Some(12))`.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Members)) -> Self {
        set(&mut self.members);
        self
    }
}

/// A name or value of a request as a problem repeats it: the beginning of a long one.
#[must_use]
pub fn echo(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(ECHO_CHARS_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Takes the middle out of a text that is too long: what happened stands at its end as often as at its beginning.
fn cut(text: String, chars_max: usize) -> String {
    // A character has at least one byte.
    if text.len() <= chars_max {
        return text;
    }
    let count = text.chars().count();
    if count <= chars_max {
        return text;
    }
    let half = chars_max / 2;
    text.chars().take(half).chain(['…']).chain(text.chars().skip(count - half)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_distinct_kebab_case_and_what_serde_writes() {
        let texts: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let text = code.as_str();
            assert!(text.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{text}");
            assert_eq!(serde_json::to_value(code).expect("a string"), text);
            assert!((400..600).contains(&code.status()), "{text}");
        }
        assert!(ErrorCode::ALL.is_sorted_by_key(|code| code.status()));
    }

    #[test]
    fn only_a_retryable_code_has_a_status_that_invites_a_retry() {
        for code in ErrorCode::ALL {
            // The one conflict that passes by itself.
            let passes = *code == ErrorCode::ConcurrentTransactions;
            assert_eq!(code.retryable(), passes || matches!(code.status(), 408 | 429 | 503 | 504), "{code}");
        }
    }

    #[test]
    fn a_problem_repeats_little_of_a_request_and_counts_what_it_leaves_out() {
        let long = "é".repeat(5_000);
        let problem = Problem::new(ErrorCode::InvalidField, format!("begin {long} end")).at(&long, &long);
        assert!(problem.detail.starts_with("begin é") && problem.detail.ends_with("é end"), "{}", problem.detail);
        for text in [&problem.detail, &problem.errors[0].pointer, &problem.errors[0].detail] {
            assert_eq!(text.chars().count(), DETAIL_CHARS_MAX + 1);
        }
        assert_eq!(echo(&long), format!("{}…", "é".repeat(ECHO_CHARS_MAX)));
        assert_eq!(echo(&long[..2 * ECHO_CHARS_MAX]), long[..2 * ECHO_CHARS_MAX]);

        let places = |count: usize| (0..count).map(|at| (format!("/{at}"), "wrong".to_owned()));
        let all = Problem::new(ErrorCode::InvalidField, "some").at_each(places(PROBLEM_ERRORS_MAX));
        assert_eq!((all.errors.len(), all.detail.as_str()), (PROBLEM_ERRORS_MAX, "some"));
        let some = Problem::new(ErrorCode::InvalidField, "some").at_each(places(PROBLEM_ERRORS_MAX + 1));
        assert_eq!(some.errors, all.errors);
        assert!(some.detail.contains("101 places"), "{}", some.detail);
    }

    #[test]
    fn a_problem_has_the_members_of_rfc_9457_and_ours_beside_them() {
        let problem = Problem::new(ErrorCode::OffsetMismatch, "the next offset is 7")
            .with(|m| m.next_offset = Some(7))
            .at("/offset", "is not 7");
        let json = serde_json::to_value(&problem).expect("serializes");
        let expected = serde_json::json!({
            "type": "urn:levada:problem:offset-mismatch", "title": "The expected offset is not the next.",
            "status": 412, "detail": "the next offset is 7", "code": "offset-mismatch", "retryable": false,
            "effect": "none", "errors": [{"pointer": "/offset", "detail": "is not 7"}], "next_offset": 7
        });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<Problem>(json).expect("reads back"), problem);
    }
}
