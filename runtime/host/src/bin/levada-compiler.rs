//! The compiler's process by itself. The broker's own program offers the same; this one is for the host's tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    levada_host::run_compiler()
}
