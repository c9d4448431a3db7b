//! The servers under load, each a process of its own, so that its processor time and memory can be told from the client's.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// The port it listens on.
    pub(crate) port: u16,
    /// Seconds from its start until it said that it is ready.
    pub(crate) ready_seconds: f64,
}

impl Server {
    /// Starts this program again as `role` (`bare` or `levada`) over `dir` and waits until it is ready.
    pub(crate) fn start(role: &str, dir: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.env("LEVADA_BENCH_ROLE", role).env("LEVADA_BENCH_DIR", dir);
        Self::spawn(&mut command, |line| line.trim().parse().ok())
    }

    /// Starts a server whose first line says, when it is ready, which port it listens on.
    pub(crate) fn spawn(command: &mut Command, port: impl Fn(&str) -> Option<u16>) -> Self {
        let start = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it was asked for"));
        output.read_line(&mut line).expect("the server says its port");
        let port = port(&line).unwrap_or_else(|| panic!("the server said {line:?} instead of its port"));
        Self { child, port, ready_seconds: start.elapsed().as_secs_f64() }
    }

    /// Processor time so far, of all its threads.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it lives");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().expect("utime") + fields[12].parse::<f64>().expect("stime");
        ticks / 100.0
    }

    /// Resident memory now, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number of KiB")
    }

    /// Ends it at once, as kill -9 does.
    pub(crate) fn kill(mut self) {
        self.end(rustix::process::Signal::KILL);
    }

    /// Asks it to shut down, and waits.
    pub(crate) fn stop(mut self) {
        self.end(rustix::process::Signal::TERM);
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it takes signals");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end(rustix::process::Signal::KILL);
        }
    }
}
