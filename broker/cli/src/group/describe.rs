//! A group in words: how it stands, its members, and how far behind it is.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use levada_api::{GroupDescription, GroupLag, GroupMember, MemberState};

use super::partitions_text;
use crate::output::{one_line, table, time_text};

/// Where there is nothing to tell.
const NOTHING: &str = "-";

pub(super) fn text(group: &GroupDescription) -> String {
    let mut text = format!("group {}, {}, generation {}", group.group, group.state.as_str(), group.generation);
    text.extend(group.assignor.iter().map(|assignor| format!(", assignor {}", one_line(assignor.as_bytes()))));
    text.extend(group.assignor_config.iter().map(|config| format!(" with {}", one_line(config.as_str().as_bytes()))));
    text.extend(group.fallback.iter().map(|fallback| {
        let [assignor, reason] = [&fallback.assignor, &fallback.reason].map(|text| one_line(text.as_bytes()));
        format!(
            "\nassigned by the built-in assignor in generation {}, not by {assignor}: {reason}",
            fallback.generation
        )
    }));
    text.push_str("\n\n");
    text.push_str(&members(&group.members));
    text.push_str("\n\n");
    text.push_str(&partitions(group));
    text
}

fn members(members: &[GroupMember]) -> String {
    if members.is_empty() {
        return "it has no members".to_owned();
    }
    let mut rows = vec![["MEMBER", "INSTANCE", "CLIENT", "STATE", "HOLDS", "GIVES UP"].map(str::to_owned).to_vec()];
    rows.extend(members.iter().map(|member| {
        let held = |partitions: &[_]| {
            if partitions.is_empty() { NOTHING.to_owned() } else { partitions_text(partitions) }
        };
        // What a client or an instance calls itself is whatever it likes.
        let instance = member.instance_id.as_deref().map_or_else(|| NOTHING.to_owned(), |id| one_line(id.as_bytes()));
        vec![
            member.member_id.clone(),
            instance,
            one_line(member.client.as_bytes()),
            member.state.as_str().to_owned(),
            held(&member.assignment),
            held(&member.revoked),
        ]
    }));
    let mut text = table(&rows);
    if members.iter().any(|member| member.state == MemberState::Idle) {
        text.push_str("\nAn idle member holds nothing, since there are more members than partitions.");
    }
    text
}

/// What is known of a partition.
#[derive(Default)]
struct Partition<'a> {
    offset: Option<&'a GroupLag>,
    member: Option<&'a str>,
}

/// What is committed, and what is held without having been committed.
fn partitions(group: &GroupDescription) -> String {
    let mut all: BTreeMap<(&str, u32), Partition<'_>> = BTreeMap::new();
    for offset in &group.offsets {
        all.entry((&offset.topic, offset.partition)).or_default().offset = Some(offset);
    }
    for member in &group.members {
        for held in member.assignment.iter().chain(&member.revoked) {
            all.entry((&held.topic, held.partition)).or_default().member = Some(&member.member_id);
        }
    }
    if all.is_empty() {
        return "it has committed nothing".to_owned();
    }
    let head = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG IN TIME", "COMMITTED AT", "MEMBER"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(all.into_iter().map(|((topic, partition), Partition { offset, member })| {
        let mut row = vec![topic.to_owned(), partition.to_string()];
        row.extend(match offset {
            Some(offset) => [
                offset.committed.to_string(),
                offset.high_watermark.to_string(),
                offset.lag.to_string(),
                offset.lag_ms.map_or_else(|| NOTHING.to_owned(), span_text),
                time_text(offset.committed_at),
            ],
            None => [NOTHING; 5].map(str::to_owned),
        });
        row.push(member.unwrap_or(NOTHING).to_owned());
        row
    }));
    table(&rows)
}

/// A span of time as people read it: `1h 2m 3s`; below a minute with milliseconds.
fn span_text(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let ms = if ms < 60_000 { ms } else { ms / 1_000 * 1_000 };
    format!("{:#}", SignedDuration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::{span_text, text};
    use levada_api::{
        AssignorFallback, GroupDescription, GroupLag, GroupMember, GroupPartition, GroupState, MemberState,
    };

    fn member(id: &str, held: &[u32]) -> GroupMember {
        let place = |partition: &u32| GroupPartition { topic: "orders".into(), partition: *partition };
        GroupMember {
            member_id: id.into(),
            instance_id: None,
            client: "curl/8\u{1b}[2J".into(),
            topics: vec!["orders".into()],
            assignment: held.iter().map(place).collect(),
            revoked: Vec::new(),
            state: if held.is_empty() { MemberState::Idle } else { MemberState::Stable },
        }
    }

    #[test]
    fn a_description_tells_members_idle_ones_too_the_fallback_and_the_lag() {
        let fallback = AssignorFallback { generation: 4, assignor: "module:mine".into(), reason: "it trapped".into() };
        let offset = GroupLag {
            topic: "orders".into(),
            partition: 0,
            committed: 5,
            high_watermark: 9,
            lag: 4,
            lag_ms: Some(3_723_004),
            committed_at: 1_700_000_000_123,
        };
        let group = GroupDescription {
            group: "billing".into(),
            state: GroupState::Stable,
            generation: 4,
            assignor: Some("cooperative-sticky".into()),
            assignor_config: Some("{\"a\":1}".parse().expect("an object")),
            fallback: Some(fallback),
            members: vec![member("m1", &[0, 1]), member("m2", &[])],
            offsets: vec![offset],
        };
        let text = text(&group);
        let expected = "\
group billing, stable, generation 4, assignor cooperative-sticky with {\"a\":1}
assigned by the built-in assignor in generation 4, not by module:mine: it trapped

MEMBER  INSTANCE  CLIENT           STATE   HOLDS       GIVES UP
m1      -         curl/8\\u{1b}[2J  stable  orders 0 1  -
m2      -         curl/8\\u{1b}[2J  idle    -           -
An idle member holds nothing, since there are more members than partitions.

TOPIC   PARTITION  COMMITTED  END  LAG  LAG IN TIME  COMMITTED AT              MEMBER
orders  0          5          9    4    1h 2m 3s     2023-11-14T22:13:20.123Z  m1
orders  1          -          -    -    -            -                         m1";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_span_is_told_in_the_units_that_people_use() {
        assert_eq!([0, 1_500, 61_999].map(span_text), ["0s", "1s 500ms", "1m 1s"]);
    }
}
