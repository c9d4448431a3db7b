//! SIGTERM and SIGINT (Ctrl-C): what asks a running command to end.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// What a shell tells of a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// The signals that ask to end.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The first signal lets a command end with care. A second one ends it at once, also where it waits for whoever reads its
/// output.
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Signals::new()?;
        let (asked, stop) = watch::channel(false);
        tokio::spawn(async move {
            signals.next().await;
            asked.send_replace(true);
            signals.next().await;
            std::process::exit(INTERRUPTED);
        });
        Ok(Self(stop))
    }

    /// Waits for the first signal, which may have been long ago.
    pub(crate) async fn asked(&mut self) {
        if self.0.wait_for(|asked| *asked).await.is_err() {
            // Nobody listens any more; the runtime is about to end.
            pending().await
        }
    }
}
