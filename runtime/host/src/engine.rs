//! wasmtime as the host uses it: one engine that limits time, and one, made when it is first needed, that counts
//! instructions.

use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use levada_model::limits::{MODULE_MEMORY_BYTES_MAX, MODULES_INSTANCES_MAX};
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::inspect::TABLE_ELEMENTS_MAX;

/// How often running modules are asked whether their time is over.
const TICK: Duration = Duration::from_millis(5);
/// Wasm's share of a thread's stack; recursion beyond it traps.
const WASM_STACK_BYTES: usize = 512 << 10;
/// Core instances of one component; Python's needs about twenty.
const CORE_INSTANCES_MAX: u32 = 64;
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
    timed: Engine,
    metered: OnceLock<Engine>,
    /// Its end stops the ticker.
    _ticker: SyncSender<()>,
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

impl Meter {
    /// As the compiler's process is told.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Time => b'T',
            Self::Instructions => b'I',
        }
    }

    /// The one of this code.
    pub(crate) fn of_code(code: u8) -> Option<Self> {
        [Self::Time, Self::Instructions].into_iter().find(|meter| meter.code() == code)
    }
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
        let timed = pooled()?;
        let (ticker, stopped) = sync_channel(0);
        let engine = timed.weak();
        // A thread of the system: a busy runtime would tick late.
        let tick = move || {
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        };
        thread::Builder::new().name("levada-epochs".to_owned()).spawn(tick)?;
        Ok(Self { timed, metered: OnceLock::new(), _ticker: ticker })
    }

    pub(crate) fn get(&self, meter: Meter) -> &Engine {
        match meter {
            Meter::Time => &self.timed,
            Meter::Instructions => self.metered.get_or_init(|| {
                let mut config = config();
                config.consume_fuel(true);
                Engine::new(&config).expect("a configuration that the other engine took but for its pool")
            }),
        }
    }
}

/// An engine with slots for all instances, each with 4 GiB of addresses so that code needs no bounds checks; where there
/// are not so many addresses, with fewer slots.
fn pooled() -> wasmtime::Result<Engine> {
    let mut instances = u32::try_from(MODULES_INSTANCES_MAX).expect("a small number");
    loop {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(instances)
            .total_core_instances(CORE_INSTANCES_MAX * instances)
            .max_core_instances_per_component(CORE_INSTANCES_MAX)
            .total_memories(2 * instances)
            .total_tables(4 * instances)
            .max_memory_size(MODULE_MEMORY_BYTES_MAX)
            .table_elements(usize::try_from(TABLE_ELEMENTS_MAX).expect("a small number"))
            .max_core_instance_size(INSTANCE_BYTES_MAX)
            .max_component_instance_size(INSTANCE_BYTES_MAX);
        let mut config = config();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool)).epoch_interruption(true);
        match Engine::new(&config) {
            Err(error) if instances > 8 => {
                tracing::warn!(instances, "no room for so many instances of modules: {error:#}");
                instances /= 4;
            }
            engine => return engine,
        }
    }
}

/// What both engines share. Whatever a module computes is the same on every machine.
fn config() -> Config {
    let mut config = Config::new();
    config
        .max_wasm_stack(WASM_STACK_BYTES)
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
