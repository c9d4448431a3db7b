//! One instance of a module in a store of its own, and a call of it under its limits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_extension::{LogLevel, ModuleBusy, ModuleFault, ModuleRefusal, Moment, StopCause};
use levada_model::Timestamp;
use levada_model::limits::{
    MODULE_ANSWER_BYTES_MAX, MODULE_DRY_RUN_CPU_MS_MAX, MODULE_DRY_RUN_INSTRUCTIONS_MAX, MODULE_INIT_MS_MAX,
    MODULE_REASON_BYTES_MAX,
};
use wasmtime::component::InstancePre;
use wasmtime::{Store, Trap, UpdateDeadline};

use crate::budget::{Budget, Place};
use crate::contract::{Exports, cut};
use crate::engine::{Beat, Meter, Pulse};
use crate::idle::Idle;
use crate::journal::{Ending, Journal};
use crate::state::{Denied, State};

/// The time and the seed of an instance's first steps: the same for each, so that it can be made again.
const BEGINNING: Moment = Moment { time: Timestamp(0), seed: 0 };
/// What a guest may hand over at once, as it lies in the host's memory; what is more is a trap before it is copied.
const HANDED_BYTES_MAX: usize = MODULE_ANSWER_BYTES_MAX + (1 << 20);

/// What instances are made of.
#[derive(Clone)]
pub(crate) struct Template {
    pub(crate) pre: InstancePre<State>,
    pub(crate) meter: Meter,
    pub(crate) journal: Arc<Journal>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) idle: Weak<Idle>,
    pub(crate) pulse: Arc<Pulse>,
    /// Most memory of one instance.
    pub(crate) memory_bytes_max: usize,
}

/// An instance.
pub(crate) struct Instance {
    store: Store<State>,
    exports: Exports,
    meter: Meter,
    pulse: Arc<Pulse>,
    /// Given back after the store has given its slots back.
    _place: Place,
}

/// What a call may take, and when it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) cpu: Duration,
    pub(crate) moment: Moment,
}

/// What a call took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) cpu: Duration,
    pub(crate) instructions: Option<u64>,
    /// Memory of the instance.
    pub(crate) memory_bytes: u64,
}

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Halt {
    /// The instance is no longer of use.
    Stopped { cause: StopCause, reason: String },
    /// Others hold what it needs.
    Busy(ModuleBusy),
}

/// Why there is no instance.
#[derive(Clone, Debug)]
pub(crate) enum NoInstance {
    Halted(Halt, Spent),
    Refused(ModuleRefusal),
}

impl Halt {
    /// How the call ended.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::Busy(_) => Ending::OfItself,
            Self::Stopped { cause: StopCause::Deadline, .. } => Ending::TookTooLong,
            Self::Stopped { .. } => Ending::Trapped,
        }
    }
}

impl Allowance {
    /// For an instance's first steps, and for its config.
    pub(crate) fn beginning() -> Self {
        Self { cpu: Duration::from_millis(MODULE_INIT_MS_MAX), moment: BEGINNING }
    }
}

impl Instance {
    /// Starts an instance.
    pub(crate) fn start(template: &Template) -> Result<(Self, Spent), NoInstance> {
        let Some(place) = place(template) else {
            let reason = "as many instances run as there may be".to_owned();
            return Err(NoInstance::Halted(Halt::Busy(ModuleBusy { reason }), Spent::default()));
        };
        let Template { pre, meter, pulse, .. } = template;
        let mut store = Store::new(pre.engine(), State::new(template, BEGINNING));
        store.limiter(|state| &mut state.holding);
        store.set_hostcall_fuel(HANDED_BYTES_MAX);
        store.epoch_deadline_callback(|mut store| match store.data_mut().watch.tick() {
            false => Ok(UpdateDeadline::Continue(1)),
            true => Err(wasmtime::Error::msg("it took too long")),
        });
        let run = Run::begin(&mut store, *meter, pulse, Allowance::beginning());
        let instance = pre.instantiate(&mut store).map_err(|error| run.halt(&mut store, &error));
        let spent = run.end(&mut store);
        let instance = instance.map_err(|halt| NoInstance::Halted(halt, spent))?;
        let exports = Exports::find(&mut store, &instance).map_err(NoInstance::Refused)?;
        Ok((Self { store, exports, meter: *meter, pulse: Arc::clone(pulse), _place: place }, spent))
    }

    /// Calls it. After a [`Halt`] it is not to be called again.
    pub(crate) fn call<R>(
        &mut self,
        allowance: Allowance,
        call: impl FnOnce(&mut Store<State>, &Exports) -> wasmtime::Result<R>,
    ) -> (Result<R, Halt>, Spent) {
        let run = Run::begin(&mut self.store, self.meter, &self.pulse, allowance);
        let answer = call(&mut self.store, &self.exports);
        let answer = answer.map_err(|error| run.halt(&mut self.store, &error));
        let spent = run.end(&mut self.store);
        (answer, spent)
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.exports
    }

    /// Whether another call would find little memory left: then a fresh instance is better.
    pub(crate) fn is_full(&self) -> bool {
        self.store.data().holding.bytes() > self.store.data().holding.bytes_max() / 2
    }
}

/// A place for one more instance. Those that wait make way.
fn place(template: &Template) -> Option<Place> {
    loop {
        if let Ok(place) = template.budget.take_place() {
            return Some(place);
        }
        if !template.idle.upgrade().is_some_and(|idle| idle.end_oldest()) {
            return None;
        }
    }
}

/// A call under way.
struct Run {
    meter: Meter,
    _beat: Beat,
}

impl Run {
    fn begin(store: &mut Store<State>, meter: Meter, pulse: &Pulse, allowance: Allowance) -> Self {
        let cpu = match meter {
            Meter::Time => allowance.cpu,
            Meter::Instructions => {
                store.set_fuel(MODULE_DRY_RUN_INSTRUCTIONS_MAX).expect("this engine counts instructions");
                Duration::from_millis(MODULE_DRY_RUN_CPU_MS_MAX)
            }
        };
        store.data_mut().begin(allowance.moment, cpu);
        store.set_epoch_deadline(1);
        Self { meter, _beat: pulse.call() }
    }

    fn end(self, store: &mut Store<State>) -> Spent {
        store.data_mut().end();
        let left = || store.get_fuel().expect("this engine counts instructions");
        let instructions = match self.meter {
            Meter::Time => None,
            Meter::Instructions => Some(MODULE_DRY_RUN_INSTRUCTIONS_MAX - left()),
        };
        let State { watch, holding, .. } = store.data();
        Spent { cpu: watch.used(), instructions, memory_bytes: holding.bytes() as u64 }
    }

    /// What an error means, which the module's log shows to its author.
    fn halt(&self, store: &mut Store<State>, error: &wasmtime::Error) -> Halt {
        let state = store.data_mut();
        let trap = error.downcast_ref::<Trap>();
        let late = state.watch.late || trap == Some(&Trap::OutOfFuel);
        // What is denied at the start is an error; later the module is told, and where it cannot go on it gives up, which is
        // this trap. Any other has another cause.
        let gave_up = trap.is_none_or(|trap| *trap == Trap::UnreachableCodeReached);
        let (cause, reason) = match (late, state.holding.denied.filter(|_| gave_up)) {
            (true, _) => (StopCause::Deadline, self.too_long(trap)),
            (false, Some(Denied::Shared)) => {
                return Halt::Busy(ModuleBusy { reason: "modules hold all the memory that they may".to_owned() });
            }
            (false, Some(Denied::Own)) => {
                let max = state.holding.bytes_max();
                (StopCause::Memory, format!("it wanted more than {max} bytes of memory"))
            }
            (false, None) => (StopCause::Trap, format!("it trapped: {}", error.root_cause())),
        };
        let reason = cut(reason, MODULE_REASON_BYTES_MAX);
        state.end();
        state.journal.line(LogLevel::Error, format!("stopped: {error:?}"));
        Halt::Stopped { cause, reason }
    }

    fn too_long(&self, trap: Option<&Trap>) -> String {
        match (self.meter, trap) {
            (Meter::Time, _) => "it took too long".to_owned(),
            (Meter::Instructions, Some(Trap::OutOfFuel)) => {
                format!("it took more than {MODULE_DRY_RUN_INSTRUCTIONS_MAX} instructions")
            }
            // The one end of a dry run that may come elsewhere on another machine.
            (Meter::Instructions, _) => {
                format!("it took more than {MODULE_DRY_RUN_CPU_MS_MAX} ms of the processor for few instructions")
            }
        }
    }
}

impl From<Halt> for ModuleFault {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Stopped { cause, reason } => Self::Stopped { cause, reason },
            Halt::Busy(busy) => Self::Busy(busy),
        }
    }
}
