//! The modules that the tests run.

use levada_plugin::{
    Aggregator, Assignor, AssignorInput, Emitted, Fault, Fields, Filter, Group, KeyRecord, Module, NoConfig,
    Partitioner, Record, TopicPartition, Transform, Verdict, default_partition,
};
use serde::{Deserialize, Serialize};

/// Keeps records whose number `n` is at least something; implements everything else too, so that one module is all.
#[derive(Deserialize)]
pub(crate) struct Everything {
    pub(crate) at_least: f64,
}

#[derive(Deserialize)]
struct Body<'a> {
    n: f64,
    #[serde(borrow)]
    s: Option<&'a str>,
}

impl Module for Everything {
    type Config = Self;
    const FIELDS: Fields = Fields::KEY.union(Fields::VALUE).union(Fields::HEADERS);
    const CONFIG_SCHEMA: Option<&'static str> =
        Some(r#"{"type":"object","properties":{"at_least":{"type":"number"}}}"#);
    const STATE_VERSION: u32 = 3;

    fn new(config: Self) -> Result<Self, String> {
        if config.at_least.is_finite() { Ok(config) } else { Err("at_least is beyond all numbers".to_owned()) }
    }
}

impl Filter for Everything {
    fn keep(&self, record: &Record<'_>) -> bool {
        record.json::<Body<'_>>().is_ok_and(|body| body.n >= self.at_least)
    }
}

impl Transform for Everything {
    fn transform(&self, record: &Record<'_>) -> Verdict {
        match record.json::<Body<'_>>() {
            Err(_) if record.value.is_none() => Verdict::Pass,
            Err(error) => Verdict::Reject(format!("not what was agreed: {error}")),
            Ok(body) if body.n < 0.0 => Verdict::Drop,
            Ok(Body { s: Some(s), n }) => {
                let whole = Emitted::new().value(s).headers(vec![("n".to_owned(), Some(n.to_string().into_bytes()))]);
                Verdict::Emit(vec![whole, Emitted::new().no_key().tombstone().timestamp_ms(record.timestamp_ms + 1)])
            }
            Ok(body) => Verdict::Replace(Emitted::new().key("k").json(&body.n)),
        }
    }
}

impl Partitioner for Everything {
    fn partition(&self, record: &KeyRecord<'_>, partition_count: u32) -> u32 {
        default_partition(record, partition_count)
    }
}

impl Assignor for Everything {
    fn assign(&self, input: &AssignorInput) -> Result<Vec<Vec<TopicPartition>>, Fault> {
        let mut lists = vec![Vec::new(); input.members.len()];
        for (topic, partitions) in (0..).zip(&input.topics) {
            let reads = |member: &usize| input.members[*member].subscribed.contains(&topic);
            let readers: Vec<usize> = (0..lists.len()).filter(reads).collect();
            for (i, partition) in partitions.partitions.iter().enumerate() {
                if let Some(reader) = readers.get(i % readers.len().max(1)) {
                    lists[*reader].push(TopicPartition { topic, partition: partition.partition });
                }
            }
        }
        Ok(lists)
    }
}

#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Totals {
    count: u64,
    sum: f64,
}

impl Aggregator for Everything {
    type Accumulator = Totals;
    type Value = f64;

    fn add(&self, totals: &mut Totals, record: &Record<'_>, _: &Group<'_>) {
        if let Ok(body) = record.json::<Body<'_>>() {
            totals.count += 1;
            totals.sum += body.n;
        }
    }

    fn value(&self, totals: &Totals, _: &Group<'_>) -> Option<f64> {
        (totals.count > 0).then_some(totals.sum)
    }

    fn merge(&self, totals: &mut Totals, later: Totals) -> Result<(), Fault> {
        totals.count += later.count;
        totals.sum += later.sum;
        Ok(())
    }

    fn remove(&self, totals: &mut Totals, record: &Record<'_>, _: &Group<'_>) -> Result<(), Fault> {
        if let Ok(body) = record.json::<Body<'_>>() {
            totals.count -= 1;
            totals.sum -= body.n;
        }
        Ok(())
    }
}

levada_plugin::export!(Everything: filter, partitioner, assignor, aggregator);

/// A transform, exported beside the filter: one module cannot be both.
pub(crate) struct Bare;

impl Module for Bare {
    type Config = NoConfig;
    const FIELDS: Fields = Fields::empty();

    fn new(_: NoConfig) -> Result<Self, String> {
        Ok(Self)
    }
}

impl Transform for Bare {
    fn transform(&self, record: &Record<'_>) -> Verdict {
        match (record.key, record.value, record.headers().next()) {
            (None, None, None) => Verdict::Replace(Emitted::new().headers(vec![])),
            _ => Verdict::Reject("it was given what it did not declare".to_owned()),
        }
    }
}

impl Aggregator for Bare {
    type Accumulator = u64;
    type Value = u64;

    fn add(&self, count: &mut u64, _: &Record<'_>, _: &Group<'_>) {
        *count += 1;
    }

    fn value(&self, count: &u64, _: &Group<'_>) -> Option<u64> {
        Some(*count)
    }
}
