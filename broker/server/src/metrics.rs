//! Numbers for Prometheus: of HTTP, kept here, and of the engine, asked for when somebody looks.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use axum::extract::MatchedPath;
use http::{Method, StatusCode};
use levada_engine::{Engine, GroupStats, Health};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper ends of the latency buckets, in seconds: from a page-cache append to a long poll.
const BUCKETS: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The HTTP numbers, and the registry that shows them.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    in_flight: Gauge,
    connections: Gauge,
    websockets: Gauge,
    subscriptions: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: Verb,
    route: Route,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: Verb,
    route: Route,
}

/// A method that is routed, or any other: clients cannot make series by inventing methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Verb(&'static str);

impl From<&Method> for Verb {
    fn from(method: &Method) -> Self {
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        Self(known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other"))
    }
}

impl EncodeLabelValue for Verb {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

/// The template of a route, or none where nothing matched.
#[derive(Clone, Debug)]
struct Route(Option<MatchedPath>);

impl Route {
    fn as_str(&self) -> &str {
        self.0.as_ref().map_or("none", MatchedPath::as_str)
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        self.as_str().encode(encoder)
    }
}

/// How groups stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabels {
    state: GroupWord,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GroupWord(&'static str);

impl EncodeLabelValue for GroupWord {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

/// Something that is counted while it lives.
pub(crate) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("levada");
        let requests = Family::default();
        let durations = Family::new_with_constructor(histogram as fn() -> Histogram);
        let (in_flight, connections) = (Gauge::default(), Gauge::default());
        let (websockets, subscriptions) = (Gauge::default(), Gauge::default());
        registry.register("http_requests", "Answered requests", requests.clone());
        registry.register("http_request_duration_seconds", "From a request's head to its answer's", durations.clone());
        registry.register("http_requests_in_flight", "Requests without an answer's head yet", in_flight.clone());
        registry.register("http_connections", "Open connections", connections.clone());
        registry.register("websockets", "Open WebSockets, which are connections too", websockets.clone());
        registry.register("websocket_subscriptions", "Subscriptions through WebSockets", subscriptions.clone());
        Self { registry, requests, durations, in_flight, connections, websockets, subscriptions }
    }

    /// Counts one answer.
    pub(crate) fn answered(&self, method: &Method, route: Option<MatchedPath>, status: StatusCode, took: Duration) {
        let (method, route) = (Verb::from(method), Route(route));
        let labels = RouteLabels { method, route: route.clone() };
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { method, route, status: status.as_u16() }).inc();
    }

    /// Counts a request as running for as long as the guard lives.
    pub(crate) fn running(&self) -> Running {
        self.in_flight.inc();
        Running(self.in_flight.clone())
    }

    /// Counts a WebSocket as open for as long as the guard lives.
    pub(crate) fn open_websocket(&self) -> Running {
        self.websockets.inc();
        Running(self.websockets.clone())
    }

    /// Counts a subscription for as long as the guard lives.
    pub(crate) fn subscription(&self) -> Running {
        self.subscriptions.inc();
        Running(self.subscriptions.clone())
    }

    /// Counts open connections.
    pub(crate) fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// The page that Prometheus reads; without the engine's numbers while it opens.
    pub(crate) fn page(&self, engine: Option<&Engine>) -> String {
        let mut page = String::new();
        encode_registry(&mut page, &self.registry).expect("a string takes everything");
        if let Some(engine) = engine {
            encode_registry(&mut page, &engine_registry(engine)).expect("a string takes everything");
        }
        encode_eof(&mut page).expect("a string takes everything");
        page
    }
}

fn engine_registry(engine: &Engine) -> Registry {
    let stats = engine.stats();
    let modules = engine.module_usage().unwrap_or_default();
    let serving = u64::from(engine.health() == Health::Serving);
    let mut registry = Registry::with_prefix("levada");
    for (name, help, value) in [
        ("ready", "Whether writes are taken", serving),
        ("topics", "Topics", stats.topics),
        ("partitions", "Partitions", stats.partitions),
        ("log_bytes", "Bytes of all log segments", stats.log_bytes),
        ("tail_cache_bytes", "Bytes of recent batches in memory", stats.tail_cache_bytes),
        ("damaged_ranges", "Stretches of offsets lost to damage", stats.damaged_ranges),
        ("compaction_failing", "Partitions whose last pass of compaction failed", stats.compaction_failing),
        ("group_members", "Members of consumer groups", stats.groups.members),
        ("transactions_open", "Transactions that are open or being ended", stats.transactions_open),
        ("modules", "Modules", stats.modules),
        ("module_instances", "Instances of modules", modules.instances),
        ("module_memory_bytes", "Memory that instances of modules hold", modules.memory_bytes),
        ("module_memory_bytes_max", "Memory that they may hold", modules.memory_bytes_max),
        ("module_jobs_running", "Calls of modules that run", modules.running),
        ("module_jobs_waiting", "Calls of modules that wait", modules.waiting),
        ("processors", "Processors", stats.processors),
        ("processors_failed", "Processors that stand still over a record or fault", stats.processors_failed),
    ] {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
    registry.register("groups", "Consumer groups", groups(&stats.groups));
    for (name, help, value) in [
        ("appended_records", "Records appended", stats.appended_records),
        ("appended_bytes", "Bytes of batches appended", stats.appended_bytes),
        ("groups_written", "Groups of batches written", stats.groups_written),
        ("syncs", "Syncs of segment files", stats.syncs),
        ("duplicates", "Appends recognised as duplicates", stats.duplicates),
        ("read_bytes", "Bytes of batches read", stats.read_bytes),
        ("tail_cache_hits", "Reads answered from memory", stats.tail_cache_hits),
        ("file_reads", "Reads that went to a file", stats.file_reads),
        ("segments_removed", "Segments that retention removed", stats.segments_removed),
        ("compaction_passes", "Passes of compaction that were put in place", stats.compaction_passes),
        ("compaction_read_bytes", "Bytes of segments that compaction read", stats.compaction_read_bytes),
        ("compaction_written_bytes", "Bytes of segments that compaction wrote", stats.compaction_written_bytes),
        ("compaction_failures", "Passes of compaction that failed", stats.compaction_failures),
        ("group_rebalances", "Rebalances that consumer groups have begun", stats.group_rebalances),
        ("dead_letters", "Records that were copied to dead letters", stats.dead_letters),
        (
            "partitioner_fallbacks",
            "Requests whose records murmur2 placed since the topic's module did not",
            stats.partitioner_fallbacks,
        ),
        ("records_rejected", "Records that validators rejected", stats.records_rejected),
        ("processor_records_in", "Records that processors have taken in", stats.processor_records_in),
        ("processor_records_out", "Records that processors have stored in their sinks", stats.processor_records_out),
        ("processor_records_skipped", "Records that processors passed over", stats.processor_skipped),
        ("processor_errors", "Records that failed in processors", stats.processor_errors),
        ("transactions_begun", "Transactions that began", stats.transactions_begun),
        ("transactions_committed", "Transactions whose commit stands", stats.transactions_committed),
        ("transactions_aborted", "Transactions whose abort stands, whoever wanted it", stats.transactions_aborted),
        (
            "transactions_timed_out",
            "Transactions that were aborted since their time was over",
            stats.transactions_timed_out,
        ),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    registry
}

fn groups(stats: &GroupStats) -> Family<GroupLabels, Gauge> {
    let groups = Family::<GroupLabels, Gauge>::default();
    for (state, count) in [
        ("empty", stats.empty),
        ("assigning", stats.assigning),
        ("reconciling", stats.reconciling),
        ("stable", stats.stable),
    ] {
        let labels = GroupLabels { state: GroupWord(state) };
        groups.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    groups
}
