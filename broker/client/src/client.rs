//! The connection to one server: addresses, sending, and what a failed call means. The other
//! calls are in the files named after what they are about.

use std::time::Duration;

use levada_api::{Cluster, Problem};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;

use crate::ClientError;

/// Longest silence within an answer: above the longest `wait_ms` and several heartbeats of a live stream.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// The same of calls for which the server compiles a module: minutes of CPU time on a busy machine, one module at a time.
const COMPILING_SILENCE_MAX: Duration = Duration::from_secs(1800);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Who asks, as the description of a group shows it.
const USER_AGENT: &str = concat!("levada-client/", env!("CARGO_PKG_VERSION"));

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    compiling: reqwest::Client,
    base: Url,
}

impl Client {
    /// A client of the server at `url`, e.g. `http://127.0.0.1:8080`. Does not connect yet.
    ///
    /// # Errors
    /// When it is not an `http` address.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        let refuse = |detail: &str| ClientError::Url { url: url.to_owned(), detail: detail.to_owned() };
        let base: Url = url.parse().map_err(|_| refuse("write it like http://127.0.0.1:8080"))?;
        match base.scheme() {
            "http" if base.has_host() => {}
            "https" => return Err(refuse("this client speaks http only; put a proxy before the server for https")),
            _ => return Err(refuse("it must begin with http://")),
        }
        let local = base.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
        let http = |silence_max| {
            let builder = reqwest::Client::builder().user_agent(USER_AGENT);
            let builder = builder.connect_timeout(CONNECT_TIMEOUT).read_timeout(silence_max);
            let builder = if local { builder.no_proxy() } else { builder };
            builder.build().map_err(|error| refuse(&error.to_string()))
        };
        Ok(Self { http: http(SILENCE_MAX)?, compiling: http(COMPILING_SILENCE_MAX)?, base })
    }

    /// The address as it is used.
    #[must_use]
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Who answers.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster(&self) -> Result<Cluster, ClientError> {
        self.send_for_json(self.request(Method::GET, &["v1", "cluster"])?).await
    }

    /// Whether the server has recovered, serves, and takes writes.
    ///
    /// # Errors
    /// When it does not, with its reason.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.send(self.request(Method::GET, &["readyz"])?).await.map(drop)
    }

    /// A request to the path of these segments, each escaped.
    pub(crate) fn request(&self, method: Method, segments: &[&str]) -> Result<RequestBuilder, ClientError> {
        Ok(self.http.request(method, self.path(segments)?))
    }

    /// The same for a call that the server may have to compile a module for.
    pub(crate) fn compiling(&self, method: Method, segments: &[&str]) -> Result<RequestBuilder, ClientError> {
        Ok(self.compiling.request(method, self.path(segments)?))
    }

    fn path(&self, segments: &[&str]) -> Result<Url, ClientError> {
        let mut url = self.base.clone();
        // These would be taken for a step in the path, escaped or not.
        if let Some(name) = segments.iter().find(|name| matches!(**name, "" | "." | "..")) {
            return Err(ClientError::Name { name: (*name).to_owned() });
        }
        url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(segments);
        Ok(url)
    }

    /// Sends a request; an answer of status 400 and above is an error.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.failure(error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    /// Sends a request and reads its JSON answer.
    pub(crate) async fn send_for_json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        self.read_json(response).await
    }

    /// Reads a JSON answer.
    pub(crate) async fn read_json<T: DeserializeOwned>(&self, response: Response) -> Result<T, ClientError> {
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|error| self.failure(error))?;
        serde_json::from_slice(&body).map_err(|error| self.unexpected(status, error.to_string()))
    }

    /// All that a list has, page by page; `split` takes a page apart into what it holds and the cursor of the next one.
    pub(crate) async fn pages<P: DeserializeOwned, T>(
        &self,
        segments: &[&str],
        split: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut request = self.request(Method::GET, segments)?;
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let (items, next) = split(self.send_for_json(request).await?);
            all.extend(items);
            match next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// What a failed connection means.
    pub(crate) fn failure(&self, error: reqwest::Error) -> ClientError {
        if error.is_connect() {
            return ClientError::Unreachable { url: self.url().to_owned(), source: error };
        }
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        self.broken(&cause.to_string())
    }

    pub(crate) fn broken(&self, detail: &str) -> ClientError {
        ClientError::Broken { url: self.url().to_owned(), detail: detail.to_owned() }
    }

    pub(crate) fn unexpected(&self, status: u16, detail: String) -> ClientError {
        ClientError::Unexpected { url: self.url().to_owned(), status, detail }
    }

    async fn refusal(&self, response: Response) -> ClientError {
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let is_problem = header(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/problem+json"));
        let retry_after = header(RETRY_AFTER).and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let body = match response.bytes().await {
            Ok(body) => body,
            Err(error) => return self.failure(error),
        };
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if is_problem => ClientError::Refused { problem: Box::new(problem), retry_after },
            _ => self.unexpected(status, format!("{:.200}", String::from_utf8_lossy(&body))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Client;
    use crate::ClientError;
    use reqwest::Method;

    #[test]
    fn addresses_that_cannot_work_are_refused_with_the_right_form() {
        for (url, hint) in
            [("localhost:8080", "begin with http://"), ("https://x", "http only"), ("x y", "write it like")]
        {
            let error = Client::new(url).expect_err(url).to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn names_are_escaped_and_never_become_steps_in_the_path() {
        let client = Client::new("http://127.0.0.1:1/base/").expect("a good address");
        let request = client.request(Method::GET, &["v1", "topics", "a/b ?#ü"]).expect("a good name");
        let url = request.build().expect("it is whole").url().to_string();
        assert_eq!(url, "http://127.0.0.1:1/base/v1/topics/a%2Fb%20%3F%23%C3%BC");
        for name in ["", ".", ".."] {
            assert!(matches!(client.request(Method::GET, &["v1", name]), Err(ClientError::Name { .. })));
        }
    }
}
