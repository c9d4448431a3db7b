//! `levada serve` as a user starts it. What each setting does to the server is shown by the server's tests, how it gets
//! there by `config.rs`.

use std::process::Stdio;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::program::{Running, Server, program, run};

#[test]
fn the_ready_line_names_the_real_port() {
    let dir = TempDir::new().expect("a temporary directory");
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).stderr(Stdio::null());
    let mut server = Running::start(&mut command);
    let line = server.line();
    let url = line.split(" at ").nth(1).expect("it tells the address").to_owned();
    assert!(
        line.starts_with("levada serves ") && url.starts_with("http://127.0.0.1:") && !url.ends_with(":0"),
        "{line}"
    );
    assert_eq!(run(program().args(["topic", "list", "--url", &url]), b"").ok(), "there are no topics\n");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    assert_eq!(server.rest(), Vec::<String>::new());
}

#[test]
fn a_directory_or_port_in_use_is_told() {
    let server = Server::new(&[]);
    let start = |listen: &str, dir: &std::path::Path| {
        run(program().args(["serve", "--listen", listen, "--data-dir"]).arg(dir), b"").failed(1)
    };
    let error = start("127.0.0.1:0", &server.dir);
    assert!(error.contains("in use by another broker"), "{error}");
    let other = TempDir::new().expect("a temporary directory");
    let error = start(&format!("127.0.0.1:{}", server.port()), other.path());
    assert!(error.contains("cannot listen on"), "{error}");
}

#[test]
fn log_lines_have_the_format_and_level_that_were_asked_for() {
    let log = |flags: &[&str]| {
        let dir = TempDir::new().expect("a temporary directory");
        let mut command = program();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path()).args(flags);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut ready = String::new();
        let out = child.stdout.as_mut().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut ready).expect("it is ready");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::INT).expect("it is our child");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("it is text")
    };
    let text = log(&[]);
    assert!(text.contains(" INFO ") && text.contains("shut down"), "{text}");
    let json = log(&["--log-format", "json"]);
    assert!(!json.is_empty());
    for line in json.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(line["level"], "INFO");
    }
    assert_eq!(log(&["--log-level", "error"]), "");
    assert!(log(&["--log-level", "error,levada=info"]).contains("shut down"));
}
