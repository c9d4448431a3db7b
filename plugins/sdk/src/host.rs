//! What a module may do besides answering: write lines to its log, and count. In native tests both do nothing.

/// How much a line of the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For the module's author.
    Debug,
    /// Worth knowing.
    Info,
    /// Worth a look.
    Warn,
    /// Something is wrong.
    Error,
}

/// Writes one line to the module's log. The broker cuts lines at 1 KiB, and drops and counts what comes too often.
pub fn log(level: Level, message: &str) {
    imported::log(level, message);
}

/// Adds to one of the module's counters, which its statistics show: at most 64, with names of up to 64 bytes.
pub fn counter(name: &str, delta: u64) {
    imported::counter(name, delta);
}

/// From here on a panic writes its message and place to the module's log before it stops the instance.
#[cfg(target_arch = "wasm32")]
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
}

#[cfg(target_arch = "wasm32")]
mod imported {
    use super::Level;
    use crate::bindings::base::levada::plugin::host;

    pub(super) fn log(level: Level, message: &str) {
        let level = match level {
            Level::Debug => host::Level::Debug,
            Level::Info => host::Level::Info,
            Level::Warn => host::Level::Warn,
            Level::Error => host::Level::Error,
        };
        host::log(level, message);
    }

    pub(super) fn counter(name: &str, delta: u64) {
        host::counter(name, delta);
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod imported {
    use super::Level;

    pub(super) fn log(_: Level, _: &str) {}

    pub(super) fn counter(_: &str, _: u64) {}
}
