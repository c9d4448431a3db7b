//! Why a module, a config or a job is not taken.

use thiserror::Error;

use super::ModuleWorld;
use crate::{ModuleFault, StopCause};

/// Why bytes are no usable module.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModuleRefusal {
    /// They are no WebAssembly, or not such as is allowed.
    #[error("it is no valid module: {detail}")]
    Invalid {
        /// What is wrong, and where.
        detail: String,
    },
    /// Something of it is larger than allowed.
    #[error("it has {got} {what}, and {max} are allowed")]
    Limit {
        /// Of what, with its unit.
        what: &'static str,
        /// How much.
        got: u64,
        /// The cap.
        max: u64,
    },
    /// It does not export what every module must, or none of the worlds.
    #[error("it does not export {export}")]
    MissingExport {
        /// What it lacks.
        export: String,
    },
    /// An export is not what the contract says.
    #[error("its export {export} has the wrong signature: {detail}")]
    Signature {
        /// Which.
        export: String,
        /// What is expected and found.
        detail: String,
    },
    /// It imports what no module is given.
    #[error("it imports {import}, which modules are not given")]
    Import {
        /// What.
        import: String,
    },
    /// It was stopped at its first steps.
    #[error("it was stopped while it {during}: {reason}")]
    Stopped {
        /// What it was doing: `started` or `described itself`.
        during: &'static str,
        /// What for.
        cause: StopCause,
        /// For people.
        reason: String,
    },
    /// What it says of itself cannot be.
    #[error("its description is not usable: {detail}")]
    Description {
        /// What is wrong.
        detail: String,
    },
    /// The host is at its own limits, or its disk fails; the module may be right.
    #[error("the host cannot take it now: {reason}")]
    Host {
        /// Why.
        reason: String,
    },
}

/// Why there is no extension with a config.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModuleConfigError {
    /// The module is something else.
    #[error("the module is no {world}")]
    World {
        /// What it should be.
        world: ModuleWorld,
    },
    /// The config is not JSON, or not what the module's schema says.
    #[error("the config is not what the module's schema says: {detail}")]
    Schema {
        /// What is wrong, and where.
        detail: String,
    },
    /// The module says no.
    #[error("the module refuses the config: {reason}")]
    Refused {
        /// In its words.
        reason: String,
    },
    /// The module was stopped over it.
    #[error("the module was stopped while it was set up: {reason}")]
    Stopped {
        /// What for.
        cause: StopCause,
        /// For people.
        reason: String,
    },
    /// The host is at its limits; the config may be right.
    #[error(transparent)]
    Busy(#[from] ModuleBusy),
}

/// The host has no room for a call now: too many wait, or modules hold all of the memory. The same call may succeed later.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct ModuleBusy {
    /// For people.
    pub reason: String,
}

impl ModuleRefusal {
    /// Whether the host is to blame and not the module.
    #[must_use]
    pub fn is_hosts(&self) -> bool {
        matches!(self, Self::Host { .. })
    }
}

impl From<ModuleConfigError> for ModuleFault {
    /// When an instance must be set up anew in the middle of its work.
    fn from(error: ModuleConfigError) -> Self {
        match error {
            ModuleConfigError::Stopped { cause, reason } => Self::Stopped { cause, reason },
            ModuleConfigError::Busy(busy) => Self::Busy(busy),
            error @ (ModuleConfigError::World { .. }
            | ModuleConfigError::Schema { .. }
            | ModuleConfigError::Refused { .. }) => Self::Failed { reason: error.to_string() },
        }
    }
}
