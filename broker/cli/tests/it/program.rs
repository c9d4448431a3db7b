//! Runs the program: a server of its own for each test, and commands with what they print.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use levada_client::{AcksWord, Client, NewRecord};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;

/// The feed that the demo and many tests use.
pub(crate) const FEED: &str = include_str!("../../data/earthquakes.ndjson");

/// Longest wait for something that must come; only a broken program meets it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program with no setting from the environment of the test.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEVADA_") {
            command.env_remove(name);
        }
    }
    command
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    /// What it printed, if it ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The JSON that it printed, if it ended well.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// What it complained about, if it ended with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.err
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Printed {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // A command may end before it has read all.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("writing does not panic");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("tests print text");
    Printed { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs `levada` without a server.
pub(crate) fn levada(args: &[&str]) -> Printed {
    run(program().args(args), b"")
}

/// A child whose lines can be waited for. Killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let (to, lines) = mpsc::channel();
        thread::spawn(move || out.lines().map_while(Result::ok).all(|line| to.send(line).is_ok()));
        Self { child, lines }
    }

    /// The next line that it prints.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line comes")
    }

    /// Lines until there is none.
    pub(crate) fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is our child");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the program ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A server on a free port.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    own: Option<TempDir>,
}

impl Server {
    /// A server with a directory of its own.
    pub(crate) fn new(flags: &[&str]) -> Self {
        let own = TempDir::new().expect("a temporary directory");
        let server = Self::on(own.path(), flags);
        Self { own: Some(own), ..server }
    }

    /// A server on this directory.
    pub(crate) fn on(dir: &Path, flags: &[&str]) -> Self {
        Self::on_port(dir, 0, flags)
    }

    pub(crate) fn on_port(dir: &Path, port: u16, flags: &[&str]) -> Self {
        let mut command = program();
        command.args(["serve", "--output", "json", "--log-level", "off", "--listen", &format!("127.0.0.1:{port}")]);
        let running = Running::start(command.arg("--data-dir").arg(dir).args(flags));
        let ready: Value = serde_json::from_str(&running.line()).expect("the ready line is JSON");
        let url = ready["url"].as_str().expect("it has a url").to_owned();
        Self { running, url, dir: dir.to_owned(), own: None }
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("the url ends with the port")
    }

    /// A command to this server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.args(args).args(["--url", &self.url]);
        command
    }

    /// Runs a command to this server.
    pub(crate) fn levada(&self, args: &[&str]) -> Printed {
        run(&mut self.command(args), b"")
    }

    /// Runs a command to this server with something to read.
    pub(crate) fn pipe(&self, args: &[&str], input: impl AsRef<[u8]>) -> Printed {
        run(&mut self.command(args), input.as_ref())
    }

    /// Stores records in one request.
    pub(crate) fn store(&self, topic: &str, records: &[NewRecord]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = Client::new(&self.url).expect("a good address");
        runtime.block_on(client.produce(topic, records, AcksWord::All)).expect("they are stored");
    }

    /// Asks the server to end, waits until it has, and answers its directory.
    pub(crate) fn terminate(self) -> (ExitStatus, Option<TempDir>) {
        self.running.signal(Signal::TERM);
        self.ended()
    }

    /// Waits until the server has ended, and answers its directory.
    pub(crate) fn ended(mut self) -> (ExitStatus, Option<TempDir>) {
        (self.running.wait(), self.own.take())
    }
}

/// A terminal: what a person sees and types, and the side that a command is given.
pub(crate) fn terminal() -> (File, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("it is ours");
    let name = ptsname(&screen, Vec::new()).expect("it has a name").into_string().expect("it is text");
    let other = File::options().read(true).write(true).open(name).expect("its other side");
    (File::from(screen), other)
}

/// Writes a file that a command will read.
#[expect(clippy::disallowed_methods, reason = "not a file of the broker")]
pub(crate) fn write_file(path: &Path, bytes: impl AsRef<[u8]>) {
    std::fs::write(path, bytes).expect("a temporary file");
}
