//! wasmtime as the host uses it: one engine that limits time, and one, made when it is first needed, that counts
//! instructions.

mod pulse;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use levada_model::limits::{MODULE_MEMORY_BYTES, MODULES_INSTANCES_MAX};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::inspect::TABLE_ELEMENTS_MAX;

use pulse::TICK;
pub(crate) use pulse::{Beat, Pulse};

/// Wasm's share of a thread's stack; recursion beyond it traps.
const WASM_STACK_BYTES: usize = 512 << 10;
/// Core instances of one component; Python's needs about twenty.
const CORE_INSTANCES_MAX: u32 = 64;
/// Memories of one component, all its core instances together. Toolchains make one.
const MEMORIES_MAX: u32 = 4;
/// Tables of the same. Toolchains make one, another for reference types, and one to tie core modules together.
const TABLES_MAX: u32 = 8;
/// What of a component's and an instance's bookkeeping fits a slot of the pool.
const INSTANCE_BYTES_MAX: usize = 4 << 20;

/// What limits a module's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meter {
    /// The CPU time of its thread.
    Time,
    /// Instructions, which are the same everywhere.
    Instructions,
}

/// The engines.
pub(crate) struct Engines {
    both: Arc<Both>,
    /// Instances that there is room for.
    instances_max: usize,
    pulse: Arc<Pulse>,
}

struct Both {
    timed: Engine,
    metered: OnceLock<Engine>,
}

/// How long a call takes: by the clock on the wall until the first tick, which short calls do not see, and by the CPU
/// time of its thread from there on, so that a busy machine does not stop modules. To ask for that at every call would be
/// half the price of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    began: Instant,
    cpu_max: Duration,
    /// What was used up to the first tick, and the thread's CPU time at it.
    first_tick: Option<(Duration, Duration)>,
    /// The call was stopped by its deadline.
    pub(crate) late: bool,
}

impl Watch {
    pub(crate) fn start(cpu_max: Duration) -> Self {
        Self { began: Instant::now(), cpu_max, first_tick: None, late: false }
    }

    /// Looks at a tick whether the time is over.
    pub(crate) fn tick(&mut self) -> bool {
        let before = self.began.elapsed().min(TICK);
        let (before, at) = *self.first_tick.get_or_insert_with(|| (before, thread_cpu()));
        self.late = before + thread_cpu().saturating_sub(at) >= self.cpu_max;
        self.late
    }

    pub(crate) fn used(&self) -> Duration {
        match self.first_tick {
            None => self.began.elapsed(),
            Some((before, at)) => before + thread_cpu().saturating_sub(at),
        }
    }
}

impl Engines {
    pub(crate) fn new() -> wasmtime::Result<Self> {
        let (timed, instances_max) = pooled()?;
        let both = Arc::new(Both { timed, metered: OnceLock::new() });
        let ticking = Arc::clone(&both);
        let pulse = Pulse::start(move || {
            ticking.timed.increment_epoch();
            if let Some(metered) = ticking.metered.get() {
                metered.increment_epoch();
            }
        })?;
        Ok(Self { both, instances_max, pulse: Arc::new(pulse) })
    }

    /// What calls tell that they are under way.
    pub(crate) fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// How many instances the engine that limits time has room for.
    pub(crate) fn instances_max(&self) -> usize {
        self.instances_max
    }

    pub(crate) fn get(&self, meter: Meter) -> &Engine {
        match meter {
            Meter::Time => &self.both.timed,
            Meter::Instructions => self.both.metered.get_or_init(|| {
                let mut config = config();
                config.consume_fuel(true);
                Engine::new(&config).expect("a configuration that the other engine took but for its pool")
            }),
        }
    }
}

/// An engine with slots for all instances, each with 4 GiB of addresses so that code needs no bounds checks; where there
/// are not so many addresses, with fewer slots. Says for how many instances: each has all of what one may have, so that who has
/// a place finds the rest.
fn pooled() -> wasmtime::Result<(Engine, usize)> {
    let mut instances = u32::try_from(MODULES_INSTANCES_MAX).expect("a small number");
    loop {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances)
            .total_core_instances(CORE_INSTANCES_MAX * instances)
            .max_core_instances_per_component(CORE_INSTANCES_MAX)
            .total_memories(MEMORIES_MAX * instances)
            .max_memories_per_component(MEMORIES_MAX)
            .max_memories_per_module(MEMORIES_MAX)
            .total_tables(TABLES_MAX * instances)
            .max_tables_per_component(TABLES_MAX)
            .max_tables_per_module(TABLES_MAX)
            // What one instance may have is watched at its growth.
            .max_memory_size(*MODULE_MEMORY_BYTES.end())
            .table_elements(usize::try_from(TABLE_ELEMENTS_MAX).expect("a small number"))
            .max_core_instance_size(INSTANCE_BYTES_MAX)
            .max_component_instance_size(INSTANCE_BYTES_MAX);
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        match Engine::new(&config) {
            Err(error) if instances > 8 => {
                tracing::warn!(instances, "no room for so many instances of modules: {error:#}");
                instances /= 4;
            }
            engine => return Ok((engine?, instances as usize)),
        }
    }
}

/// What both engines share. Whatever a module computes is the same on every machine.
fn config() -> Config {
    let mut config = Config::new();
    config
        .max_wasm_stack(WASM_STACK_BYTES)
        .epoch_interruption(true)
        .wasm_memory64(false)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    config
}

/// CPU time of the calling thread so far.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
