//! One instance of a module in a store of its own, and a call of it under its limits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_extension::{LogLevel, ModuleBusy, ModuleFault, ModuleRefusal, Moment, StopCause};
use levada_model::Timestamp;
use levada_model::limits::{
    MODULE_ANSWER_BYTES_MAX, MODULE_DRY_RUN_INSTRUCTIONS_MAX, MODULE_INIT_MS_MAX, MODULE_MEMORY_BYTES_MAX,
    MODULE_REASON_BYTES_MAX,
};
use wasmtime::component::InstancePre;
use wasmtime::{PoolConcurrencyLimitError, Store, Trap, UpdateDeadline};

use crate::budget::Budget;
use crate::contract::{Exports, cut};
use crate::engine::Meter;
use crate::idle::Idle;
use crate::journal::Journal;
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
}

/// An instance.
pub(crate) struct Instance {
    store: Store<State>,
    exports: Exports,
    meter: Meter,
}

/// What a call may take, and when it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    pub(crate) cpu: Duration,
    pub(crate) moment: Moment,
}

/// What a call took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    pub(crate) cpu: Duration,
    pub(crate) instructions: Option<u64>,
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
    Halted(Halt),
    Refused(ModuleRefusal),
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
        let mut place = template.budget.take_instance();
        while place.is_err() && template.idle.upgrade().is_some_and(|idle| idle.end_oldest()) {
            place = template.budget.take_instance();
        }
        if place.is_err() {
            let reason = "as many instances run as there may be".to_owned();
            return Err(NoInstance::Halted(Halt::Busy(ModuleBusy { reason })));
        }
        let Template { pre, meter, journal, budget, idle } = template.clone();
        let mut store = Store::new(pre.engine(), State::new(budget, idle, journal, BEGINNING));
        store.limiter(|state| &mut state.holding);
        store.set_hostcall_fuel(HANDED_BYTES_MAX);
        store.epoch_deadline_callback(|mut store| match store.data_mut().watch.tick() {
            false => Ok(UpdateDeadline::Continue(1)),
            true => Err(wasmtime::Error::msg("it took too long")),
        });
        let run = Run::begin(&mut store, meter, Allowance::beginning());
        let instance = match pre.instantiate(&mut store) {
            Ok(instance) => instance,
            Err(error) => return Err(NoInstance::Halted(run.halt(&mut store, &error))),
        };
        let spent = run.end(&mut store);
        let exports = Exports::find(&mut store, &instance).map_err(NoInstance::Refused)?;
        Ok((Self { store, exports, meter }, spent))
    }

    /// Calls it. After a [`Halt`] it is not to be called again.
    pub(crate) fn call<R>(
        &mut self,
        allowance: Allowance,
        call: impl FnOnce(&mut Store<State>, &Exports) -> wasmtime::Result<R>,
    ) -> (Result<R, Halt>, Spent) {
        let run = Run::begin(&mut self.store, self.meter, allowance);
        let answer = call(&mut self.store, &self.exports);
        let answer = answer.map_err(|error| run.halt(&mut self.store, &error));
        let spent = run.end(&mut self.store);
        (answer, spent)
    }

    pub(crate) fn exports(&self) -> &Exports {
        &self.exports
    }

    /// What its memories and tables hold.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.store.data().holding.bytes() as u64
    }

    /// Whether another call would find little memory left: then a fresh instance is better.
    pub(crate) fn is_full(&self) -> bool {
        self.store.data().holding.bytes() > MODULE_MEMORY_BYTES_MAX / 2
    }
}

/// A call under way.
#[derive(Clone, Copy)]
struct Run {
    meter: Meter,
}

impl Run {
    fn begin(store: &mut Store<State>, meter: Meter, allowance: Allowance) -> Self {
        store.data_mut().begin(allowance.moment, allowance.cpu);
        match meter {
            Meter::Time => store.set_epoch_deadline(1),
            Meter::Instructions => {
                store.set_fuel(MODULE_DRY_RUN_INSTRUCTIONS_MAX).expect("this engine counts instructions");
            }
        }
        Self { meter }
    }

    fn end(self, store: &mut Store<State>) -> Spent {
        store.data_mut().end();
        let left = || store.get_fuel().expect("this engine counts instructions");
        let instructions = match self.meter {
            Meter::Time => None,
            Meter::Instructions => Some(MODULE_DRY_RUN_INSTRUCTIONS_MAX - left()),
        };
        Spent { cpu: store.data().watch.used(), instructions }
    }

    /// What an error means, which the module's log shows to its author.
    fn halt(self, store: &mut Store<State>, error: &wasmtime::Error) -> Halt {
        let state = store.data_mut();
        let trap = error.downcast_ref::<Trap>();
        let late = state.watch.late || trap == Some(&Trap::OutOfFuel);
        let (cause, reason) = match (late, state.holding.denied) {
            (true, _) => (StopCause::Deadline, "it took too long".to_owned()),
            (false, Some(Denied::Shared)) => {
                return Halt::Busy(ModuleBusy { reason: "modules hold all the memory that they may".to_owned() });
            }
            (false, Some(Denied::Own)) => {
                (StopCause::Memory, format!("it wanted more than {MODULE_MEMORY_BYTES_MAX} bytes of memory"))
            }
            (false, None) if error.is::<PoolConcurrencyLimitError>() => {
                return Halt::Busy(ModuleBusy { reason: "as many instances run as there may be".to_owned() });
            }
            (false, None) => (StopCause::Trap, format!("it trapped: {}", error.root_cause())),
        };
        let reason = cut(reason, MODULE_REASON_BYTES_MAX);
        state.end();
        state.journal.line(LogLevel::Error, format!("stopped: {error:?}"));
        Halt::Stopped { cause, reason }
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
