//! The seed's exercise of dead letters, literally: a record that always fails goes to the dead letters after three
//! attempts, is logged there as a warning, the group goes on, and once the handler is mended the record is processed.

use levada_api::{GroupPlace, JoinGroup, RejectRecords};
use levada_client::GroupRecord;

use crate::group_support::{Member, describe};
use crate::program::{Running, Server};

const ATTEMPTS: u32 = 3;

/// A consumer of `orders`: a handler, and what became of the records.
struct Shop {
    member: Member,
    handler: fn(&str) -> Result<(), &'static str>,
    processed: Vec<String>,
    tries: u32,
}

impl Shop {
    fn open(server: &Server, handler: fn(&str) -> Result<(), &'static str>) -> Self {
        let member = Member::join(server, "shop", JoinGroup::new(vec!["orders".into()]));
        Self { member, handler, processed: Vec::new(), tries: 0 }
    }

    /// Works until so many records were processed or rejected.
    fn work(&mut self, count: usize) {
        let mut done = 0;
        while done < count {
            let fetched = self.member.fetch(1_000);
            for record in &fetched.records {
                self.process(record);
            }
            done += fetched.records.len();
            self.member.commit();
        }
    }

    fn process(&mut self, record: &GroupRecord) {
        let value = std::str::from_utf8(record.record.value.as_deref().expect("a value")).expect("text");
        let mut reason = "";
        for _ in 0..ATTEMPTS {
            self.tries += 1;
            match (self.handler)(value) {
                Ok(()) => return self.processed.push(value.to_owned()),
                Err(error) => reason = error,
            }
        }
        let place = GroupPlace {
            topic: record.topic.clone(),
            partition: record.record.partition,
            offset: record.record.offset,
        };
        let reason = reason.to_owned();
        self.member.reject(&RejectRecords { records: vec![place], reason, attempts: Some(ATTEMPTS) });
    }
}

fn broken(order: &str) -> Result<(), &'static str> {
    if order.contains("umlaut") { Err("unknown letter ü") } else { Ok(()) }
}

fn mended(_: &str) -> Result<(), &'static str> {
    Ok(())
}

#[test]
fn a_record_that_always_fails_becomes_a_letter_and_is_processed_once_the_handler_is_mended() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "orders", "--partitions", "1"]).ok();
    let lines = "7|{\"n\":0}\n8|{\"n\":1,\"umlaut\":true}\n9|{\"n\":2}\n";
    server.pipe(&["produce", "orders", "--key-separator", "|", "--header", "trace=abc"], lines).ok();

    let mut shop = Shop::open(&server, broken);
    shop.work(3);
    assert_eq!(shop.processed, ["{\"n\":0}", "{\"n\":2}"]);
    assert_eq!(shop.tries, 1 + ATTEMPTS + 1);
    shop.member.leave();
    let offset = &describe(&server, "shop").offsets[0];
    assert_eq!((offset.committed, offset.lag), (3, 0), "the group has moved on");

    let letters = server.levada(&["dlq", "show", "orders.dead-letter", "--output", "json"]).json();
    let letter = &letters[0];
    assert_eq!(letters.as_array().map(Vec::len), Some(1));
    assert_eq!((&letter["original_topic"], &letter["original_partition"]), (&"orders".into(), &0.into()));
    assert_eq!((&letter["original_offset"], &letter["attempts"]), (&1.into(), &ATTEMPTS.into()));
    assert_eq!((&letter["error"], &letter["group"]), (&"unknown letter ü".into(), &"shop".into()));
    assert_eq!((&letter["record"]["key"], &letter["record"]["value"]["n"]), (&"8".into(), &1.into()));

    let log = Running::start(&mut server.command(&["dlq", "consume", "orders.dead-letter", "--group", "alerts"]));
    let line = log.line();
    let expected = "WARN dead letter of orders 0:1 error=\"unknown letter ü\" group=shop attempts=3";
    assert!(line.contains(expected) && line.ends_with("key=\"8\" value={\"n\":1,\"umlaut\":true}"), "{line}");

    // Sent back too early: it fails again, and its letter knows.
    server.levada(&["dlq", "redrive", "orders.dead-letter"]).ok();
    let mut shop = Shop::open(&server, broken);
    shop.work(1);
    shop.member.leave();
    assert!(log.line().contains("dead letter of orders 0:3 "));
    let letters = server.levada(&["dlq", "show", "orders.dead-letter", "--output", "json"]).json();
    assert_eq!((&letters[1]["redrive_count"], &letters[1]["original_offset"]), (&1.into(), &3.into()));

    let printed = server.levada(&["dlq", "redrive", "orders.dead-letter"]);
    assert!(printed.err.contains("1 sent back, 0 skipped, 0 refused"), "{printed:?}");
    let mut shop = Shop::open(&server, mended);
    shop.work(1);
    assert_eq!(shop.processed, ["{\"n\":1,\"umlaut\":true}"]);
    shop.member.leave();
    let last = server.levada(&["consume", "orders", "--from", "tail:1", "--output", "json"]).json();
    let headers = serde_json::json!([["trace", "abc"], ["redrive_count", "2"]]);
    assert_eq!((&last[0]["headers"], &last[0]["key"]), (&headers, &"8".into()));
}
