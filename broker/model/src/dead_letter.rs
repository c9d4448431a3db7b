//! The words of dead letters: how their topics and headers are named, and which headers of a letter are the broker's. Not
//! here: how letters are made, found and sent back.

/// What the topic of a topic's dead letters adds to its name.
pub const SUFFIX: &str = ".dead-letter";

/// Header: why the record could not be processed.
pub const ERROR: &str = "error";
/// Header: the topic that the record comes from.
pub const ORIGINAL_TOPIC: &str = "original_topic";
/// Header: its partition there.
pub const ORIGINAL_PARTITION: &str = "original_partition";
/// Header: its offset there.
pub const ORIGINAL_OFFSET: &str = "original_offset";
/// Header: its time there, in milliseconds since 1970.
pub const ORIGINAL_TIMESTAMP: &str = "original_timestamp";
/// Header: the consumer group that rejected it.
pub const GROUP: &str = "group";
/// Header: the module that could not process it.
pub const MODULE: &str = "module";
/// Header: how often it was tried.
pub const ATTEMPTS: &str = "attempts";
/// Header: how often the record was sent back already. It is the record's own and stays with it, so that it is there when
/// the record fails again.
pub const REDRIVE_COUNT: &str = "redrive_count";

/// What the broker adds to a record that goes to the dead letters, behind the record's own headers.
pub const ADDED: [&str; 8] =
    [ERROR, ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, ORIGINAL_TIMESTAMP, GROUP, MODULE, ATTEMPTS];

/// How many of the last headers the broker has added; 0 if the record is no letter of the broker.
///
/// They stand in one run at the end, each once, [`ERROR`] first and [`ORIGINAL_TOPIC`] among them. A record may have
/// headers of its own under the same names before it.
#[must_use]
pub fn added_count<'a>(names: impl DoubleEndedIterator<Item = &'a str>) -> usize {
    let mut run: Vec<&str> = Vec::with_capacity(ADDED.len());
    for name in names.rev() {
        if !ADDED.contains(&name) || run.contains(&name) {
            break;
        }
        run.push(name);
        if name == ERROR {
            break;
        }
    }
    if run.contains(&ORIGINAL_TOPIC) { run.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(names: &[&str]) -> usize {
        added_count(names.iter().copied())
    }

    #[test]
    fn the_broker_s_headers_are_the_run_at_the_end_and_no_others() {
        let run = [ERROR, ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET, ORIGINAL_TIMESTAMP, GROUP];
        assert_eq!(count(&run), 6);
        let own = [ORIGINAL_TOPIC, ERROR, MODULE, ATTEMPTS];
        assert_eq!(count(&[&own[..], &run].concat()), 6, "the record's own stand before it");
        assert_eq!(count(&[&run[..], &["trace"]].concat()), 0, "nothing of the broker stands before others");
        assert_eq!(count(&[ERROR, GROUP, ATTEMPTS]), 0, "who has no original topic is no letter");
        assert_eq!(count(&[GROUP, ORIGINAL_TOPIC, ATTEMPTS, ORIGINAL_TOPIC]), 2, "each is there once");
        assert_eq!(count(&[]), 0);
    }
}
