//! A server on an ephemeral port over a fresh directory, and a client that holds every answer against the document.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use levada_doubles::HostHandle;
use levada_engine::{Engine, EngineOptions, OpenError};
use levada_server::{ServeOptions, Server};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::contract::Contract;

/// A running server with its client.
pub(crate) struct Harness {
    /// The server itself.
    pub(crate) server: Server,
    /// What its answers are held against.
    pub(crate) contract: Arc<Contract>,
    /// Its host of modules.
    pub(crate) modules: HostHandle,
    client: reqwest::Client,
    dir: Arc<TempDir>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Reads JSON of any depth: a record's value of the greatest depth lies a little deeper in an answer.
pub(crate) fn read_json(text: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    reader.disable_recursion_limit();
    let value = Value::deserialize(&mut reader)?;
    reader.end().map(|()| value)
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        read_json(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The problem's code; panics where the answer is none.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_else(|| panic!("no problem: {self:?}")).to_owned()
    }

    /// A header's text; empty where it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// Asserts the status, showing the whole answer where it differs.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }
}

/// Options for tests: an ephemeral port on loopback and short waits.
pub(crate) fn options(dir: PathBuf) -> ServeOptions {
    ServeOptions { data_dir: dir, listen: "127.0.0.1:0".parse().expect("an address"), ..ServeOptions::default() }
}

/// Opens engines that run modules on this host.
fn hosting(modules: &HostHandle) -> impl FnOnce(EngineOptions) -> Result<Engine, OpenError> + Send + 'static {
    let host = modules.clone();
    move |options| Engine::open(EngineOptions { modules: Some(Arc::new(host)), ..options })
}

impl Harness {
    /// A server that has opened its engine, with options changed by `change`.
    pub(crate) async fn start(change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::start_under(Arc::new(Contract::load()), change).await
    }

    /// The same with a shared record of what was hit.
    pub(crate) async fn start_under(contract: Arc<Contract>, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let modules = HostHandle::default();
        let mut harness = Self::start_with(contract, change, hosting(&modules)).await;
        harness.modules = modules;
        harness.server.opened().await.expect("the engine opens");
        harness
    }

    /// A server that opens its engine by `open`, not waited for.
    pub(crate) async fn start_with(
        contract: Arc<Contract>,
        change: impl FnOnce(&mut ServeOptions),
        open: impl FnOnce(EngineOptions) -> Result<Engine, OpenError> + Send + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = options(dir.path().to_owned());
        change(&mut options);
        let server = levada_server::start_with(options, open).await.expect("the server starts");
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let (client, modules) = (client.build().expect("a client"), HostHandle::default());
        Self { server, contract, modules, client, dir: Arc::new(dir) }
    }

    /// Shuts the server down and starts it again on the same directory.
    pub(crate) async fn restart(self, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let open = hosting(&self.modules);
        self.restart_with(change, open).await
    }

    /// The same, opening its engine by `open`.
    pub(crate) async fn restart_with(
        self,
        change: impl FnOnce(&mut ServeOptions),
        open: impl FnOnce(EngineOptions) -> Result<Engine, OpenError> + Send + 'static,
    ) -> Self {
        let (dir, contract, modules) = (self.dir, self.contract, self.modules);
        self.server.shutdown().await.expect("clean");
        let mut options = options(dir.path().to_owned());
        change(&mut options);
        let mut server = levada_server::start_with(options, open).await.expect("the server starts");
        server.opened().await.expect("the engine opens");
        Self { server, contract, modules, client: self.client, dir }
    }

    /// The directory, which is removed when the last holder lets go.
    pub(crate) fn dir(&self) -> Arc<TempDir> {
        Arc::clone(&self.dir)
    }

    /// The address as `127.0.0.1:port`.
    pub(crate) fn authority(&self) -> String {
        self.server.address().to_string()
    }

    /// A whole URL.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.authority())
    }

    /// A request to be sent with [`send`](Self::send) or [`stream`](Self::stream).
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, self.url(path))
    }

    /// Sends a request and reads the whole answer, held against the document.
    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let request = request.build().expect("a request");
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = self.client.execute(request).await.expect("an answer");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.expect("a whole body");
        self.contract.check(&method, &path, status, &headers, Some(&body));
        Answer { status, headers, body }
    }

    /// Sends a request and hands over the answer's body as it comes; only the head is held against the document.
    pub(crate) async fn stream(&self, request: reqwest::RequestBuilder) -> reqwest::Response {
        let request = request.build().expect("a request");
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = self.client.execute(request).await.expect("an answer");
        self.contract.check(&method, &path, response.status(), response.headers(), None);
        response
    }

    /// `GET path`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// `DELETE path`.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// A request with a JSON body.
    pub(crate) async fn json(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.send(self.request(method, path).json(body)).await
    }

    /// A request with a body of any type.
    pub(crate) async fn body(&self, method: Method, path: &str, media: &str, body: impl Into<reqwest::Body>) -> Answer {
        self.send(self.request(method, path).header("content-type", media).body(body)).await
    }

    /// Creates a topic of one partition.
    pub(crate) async fn topic(&self, name: &str) {
        self.json(Method::POST, "/v1/topics", &serde_json::json!({ "name": name })).await.expect(201);
    }
}
