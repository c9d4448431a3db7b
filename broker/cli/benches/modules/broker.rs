//! The program under load, and what is asked of it beside the load.

use std::path::Path;
use std::process::Command;

use reqwest::Method;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::process::Server;

/// `levada serve`, and a client.
pub(crate) struct Broker {
    pub(crate) server: Server,
    runtime: Runtime,
    client: reqwest::Client,
}

impl Broker {
    /// Starts it over `dir` and waits until it is ready.
    pub(crate) fn start(dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
        command.args(["serve", "--output", "json", "--log-level", "off", "--listen", "127.0.0.1:0"]);
        let port = |line: &str| {
            let ready: Value = serde_json::from_str(line).ok()?;
            ready["url"].as_str()?.rsplit(':').next()?.parse().ok()
        };
        let server = Server::spawn(command.arg("--data-dir").arg(dir), port);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { server, runtime, client: reqwest::Client::new() }
    }

    /// Asks, and takes an answer of 2xx alone.
    pub(crate) fn ask(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Value {
        let url = format!("http://127.0.0.1:{}{path}", self.server.port);
        let mut request = self.client.request(method, url);
        if !body.is_empty() {
            request = request.header("Content-Type", kind).body(body);
        }
        let (status, answer) = self.runtime.block_on(async {
            let answer = request.send().await.expect("it answers");
            (answer.status(), answer.text().await.expect("it answers whole"))
        });
        assert!(status.is_success(), "{path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, "", Vec::new())
    }

    pub(crate) fn json(&self, method: Method, path: &str, body: &Value) -> Value {
        self.ask(method, path, "application/json", body.to_string().into_bytes())
    }

    pub(crate) fn module(&self, name: &str, wasm: &[u8]) {
        self.ask(Method::PUT, &format!("/v1/modules/{name}"), "application/wasm", wasm.to_vec());
    }
}
