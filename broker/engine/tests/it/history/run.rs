//! One run: a load on an engine that ends and comes back again and again, and what the judge says of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_engine::Engine;
use levada_history::{Dice, Event, Partition, Setting, View, Violation, Workload};
use levada_log::{CrashPlan, PlantedFaults};
use levada_model::{GroupName, Offset};
use serde_json::json;
use tokio::task::{JoinSet, yield_now};

use super::node::{End, Node};
use crate::support::{create, name, p, produce, to};

const PRODUCERS: u32 = 6;
/// Some transactions hang until then; now and then it hits others, too.
const TIMEOUT_MS: u64 = 300;
/// Ends of the engine in a run.
const ENDS: u64 = 6;
/// Transactions between two of them.
const PACE: u64 = 30;
/// Offsets of the topic that groups read.
const SOURCE_END: u64 = 4_000;

/// How the engine of a run may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Power cuts, too: all topics are synced.
    Any,
    /// One of the topics is in the page cache only.
    NoPowerCuts,
}

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    pub(crate) ends: Ends,
    pub(crate) faults: PlantedFaults,
    /// How long it may take; only something broken takes so long.
    pub(crate) patience: Duration,
}

impl Run {
    /// The judge finds nothing.
    pub(crate) async fn holds(self) {
        let found = self.violations().await;
        let shown: String = found.iter().take(5).map(|violation| format!("\n{violation}")).collect();
        assert!(found.is_empty(), "seed {}, {:?}: {} violations{shown}", self.seed, self.ends, found.len());
    }

    /// What the judge finds.
    pub(crate) async fn violations(self) -> Vec<Violation> {
        let node = Node::start(self.faults);
        let setting = self.prepare(&node.engine().await).await;
        let load = Workload::new(node, setting).into();
        let is_over = tokio::select! {
            () = self.work(&load) => true,
            () = time_passes(&load, self.patience) => false,
        };
        if !is_over {
            load.history().note(Event::Unexpected("the load does not come to an end".to_owned()));
            tokio::select! { () = load.read_to_end() => (), () = time_passes(&load, self.patience) => () };
        }
        load.history().check()
    }

    /// Lets the load work over all ends of the engine, and come to its own.
    async fn work(self, load: &Arc<Workload<Node>>) {
        let tasks = self.tasks(load);
        let mut dice = Dice::new(self.seed);
        for end in 1..=ENDS {
            while load.ended().0 + load.ended().1 < end * PACE {
                yield_now().await;
            }
            let how = self.end(end, &mut dice);
            load.broker().restart(how, load.history()).await;
        }
        load.stop();
        tasks.join_all().await;
        load.settle(PRODUCERS).await;
        let (committed, aborted) = load.ended();
        assert!(committed > PACE && aborted > 5, "it was about something: {committed} and {aborted}");
    }

    fn end(self, number: u64, dice: &mut Dice) -> End {
        match dice.below(10) {
            0 => End::Close,
            1..4 => End::Kill,
            _ if self.ends == Ends::NoPowerCuts => End::Kill,
            4 => End::PowerCut(CrashPlan::all_lost()),
            _ => End::PowerCut(CrashPlan::seeded(self.seed * ENDS + number, 512)),
        }
    }

    async fn prepare(self, engine: &Engine) -> Setting {
        let durability = if self.ends == Ends::Any { "fsync" } else { "page-cache" };
        let small = ("segment.bytes", json!(4_096));
        create(engine, "a", 2, std::slice::from_ref(&small)).await;
        create(engine, "b", 2, &[small, ("durability", json!(durability))]).await;
        create(engine, "source", 1, &[]).await;
        produce(engine, "source", (0..SOURCE_END).map(|_| to(0, "x")).collect()).await;
        let of = |topic: &str, index| Partition { topic: name(topic), index: p(index) };
        Setting {
            partitions: vec![of("a", 0), of("a", 1), of("b", 0), of("b", 1)],
            groups: ["g", "h"].map(|group| GroupName::new(group).expect("a name")).to_vec(),
            source: of("source", 0),
            source_end: Offset(SOURCE_END),
            timeout_ms: TIMEOUT_MS,
        }
    }

    fn tasks(self, load: &Arc<Workload<Node>>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for producer in 0..PRODUCERS {
            let load = load.clone();
            tasks.spawn(async move { load.produce(producer, (self.seed << 8) + u64::from(producer)).await });
        }
        for number in 0..2 {
            let load = load.clone();
            tasks.spawn(async move { load.execute((self.seed << 8) + 100 + number).await });
        }
        for partition in load.setting().partitions.clone() {
            for view in [View::Committed, View::Uncommitted] {
                let (load, partition) = (load.clone(), partition.clone());
                tasks.spawn(async move { load.read(view, &partition, self.seed).await });
            }
        }
        tasks
    }
}

/// Keeps the engine's clock, for so long.
async fn time_passes(load: &Workload<Node>, duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        load.broker().keep_time();
        yield_now().await;
    }
}
