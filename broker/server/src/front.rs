//! What surrounds every request, whatever becomes of it: its id, the gate, CORS, panics, problems in place of bare
//! error statuses, safety headers, numbers and the access log.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use levada_api::media::PROBLEM;
use levada_api::{ErrorCode, Problem};
use tower::util::{BoxCloneSyncService, ServiceExt};
use tower::{Layer, service_fn};
use tower_http::cors::{AllowHeaders, AllowOrigin, Cors, CorsLayer};
use uuid::Uuid;

use crate::AppState;
use crate::gate::Gate;
use crate::refusal::Refusal;

/// The header that carries a request's id, taken over from the client and told in the answer.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over from a client.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// How long a browser may remember a preflight's answer.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(600);

type Inner = BoxCloneSyncService<Request, Response, std::convert::Infallible>;

/// The whole service, as connections call it.
pub(crate) struct Front {
    state: AppState,
    gate: Arc<Gate>,
    router: Router,
    /// The same router for pages of allowed origins.
    cors: Cors<Inner>,
}

impl Front {
    pub(crate) fn new(router: Router, gate: Gate, state: AppState) -> Self {
        let gate = Arc::new(gate);
        let cors = cors_layer(&gate);
        let (inner, guard) = (router.clone(), Arc::clone(&gate));
        let inner = BoxCloneSyncService::new(service_fn(move |request: Request| {
            let (router, guard) = (inner.clone(), Arc::clone(&guard));
            async move { Ok(guarded(router, &guard, request).await) }
        }));
        Self { state, gate, router, cors: cors.layer(inner) }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let started = Instant::now();
        let running = self.state.metrics().running();
        let id = request_id(request.headers());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let mut response = if self.gate.allows_origin(request.headers()) {
            self.cors.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
        } else {
            guarded(self.router.clone(), &self.gate, request).await
        };
        self.finish(&mut response, uri.path(), id.clone());
        let route = response.extensions_mut().remove::<MatchedPath>();
        let elapsed = started.elapsed();
        drop(running);
        self.state.metrics().answered(&method, route, response.status(), elapsed);
        log(&method, uri.path(), response.status(), &id, elapsed);
        response
    }

    fn finish(&self, response: &mut Response, path: &str, id: HeaderValue) {
        let headers = response.headers_mut();
        headers.insert(X_REQUEST_ID, id);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if path.starts_with("/v1") {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if !self.gate.origins().is_empty() && !headers.contains_key(header::VARY) {
            headers.insert(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

/// The gate, then the router, with panics caught and every refusal told as a problem.
async fn guarded(router: Router, gate: &Gate, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(problem) = gate.check(&parts) {
        return Refusal(problem).into_response();
    }
    let (method, uri) = (parts.method.clone(), parts.uri.clone());
    let answer = router.oneshot(Request::from_parts(parts, body));
    let response = match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(answered) => answered.unwrap_or_else(|never| match never {}),
        Err(_) => {
            tracing::error!(%method, path = uri.path(), "a handler panicked; this is a bug of the broker");
            let detail = "the broker failed to answer; the request's id finds the place in its log";
            Refusal(Problem::new(ErrorCode::Internal, detail)).into_response()
        }
    };
    as_problem(response, &method, &uri)
}

/// Tells a bare error status of the frameworks as a problem; keeps its headers, such as `Allow`.
fn as_problem(response: Response, method: &Method, uri: &Uri) -> Response {
    let (status, path) = (response.status(), uri.path());
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|media| media.as_bytes().starts_with(PROBLEM.as_bytes()));
    if !(status.is_client_error() || status.is_server_error()) || is_problem {
        return response;
    }
    let problem = match status {
        StatusCode::NOT_FOUND => not_found(path),
        StatusCode::METHOD_NOT_ALLOWED => {
            let allow = response.headers().get(header::ALLOW).and_then(|allow| allow.to_str().ok());
            let detail = format!("{path} does not take {method}; it takes {}", allow.unwrap_or("nothing"));
            Problem::new(ErrorCode::MethodNotAllowed, detail)
        }
        StatusCode::BAD_REQUEST => Problem::new(ErrorCode::InvalidRequest, "the request is malformed"),
        _ => {
            tracing::error!(%status, %method, path, "an answer without a problem; this is a bug of the broker");
            Problem::new(ErrorCode::Internal, format!("the broker failed with status {status}"))
        }
    };
    let mut told = Refusal(problem).into_response();
    if let Some(allow) = response.headers().get(header::ALLOW) {
        told.headers_mut().insert(header::ALLOW, allow.clone());
    }
    if let Some(route) = response.extensions().get::<MatchedPath>() {
        told.extensions_mut().insert(route.clone());
    }
    told
}

/// Nothing is there; a topic name that a path cannot even hold is told as such.
fn not_found(path: &str) -> Problem {
    if path.strip_prefix("/v1/topics/").is_some_and(|rest| rest.starts_with('/') || rest.is_empty()) {
        let error = levada_model::TopicName::new("").expect_err("the empty name is refused");
        return crate::refusal::topic_name(&error);
    }
    Problem::new(ErrorCode::NotFound, format!("there is nothing at {path}; /docs lists what there is"))
}

/// Remembers the route's template for the numbers, which are kept outside of the router.
pub(crate) async fn note_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}

/// Answers what no route matches.
pub(crate) async fn nothing_here() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn cors_layer(gate: &Gate) -> CorsLayer {
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    let exposed = [
        header::ALLOW,
        header::ETAG,
        header::LOCATION,
        header::RETRY_AFTER,
        X_REQUEST_ID,
        header::CONTENT_DISPOSITION,
        HeaderName::from_static("accept-post"),
        HeaderName::from_static("idempotent-replayed"),
        HeaderName::from_static("levada-next-offset"),
        HeaderName::from_static("levada-high-watermark"),
        HeaderName::from_static("levada-last-stable-offset"),
        HeaderName::from_static("levada-log-start-offset"),
        HeaderName::from_static("levada-gaps"),
        HeaderName::from_static("levada-aborted-transactions"),
    ];
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(gate.origins().iter().cloned()))
        .allow_methods(methods)
        // `Record-Header-NAME` has no list of names.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(exposed)
        .max_age(PREFLIGHT_MAX_AGE)
}

/// The client's id where it is short and plain, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=');
    let sane = |id: &&HeaderValue| (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(plain);
    headers.get(X_REQUEST_ID).filter(sane).cloned().unwrap_or_else(new_request_id)
}

/// An id that no other request has: random for the process (asking the system each time costs a call), then a count.
fn new_request_id() -> HeaderValue {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| Uuid::new_v4().as_u64_pair().0);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let id = format!("{:016x}-{:x}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::try_from(id).expect("digits are plain text")
}

fn log(method: &Method, path: &str, status: StatusCode, id: &HeaderValue, elapsed: Duration) {
    let (status, id) = (status.as_u16(), id.to_str().unwrap_or_default());
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    match status {
        500 => tracing::error!(target: "levada::access", %method, path, status, id, micros, "answered"),
        400.. => tracing::info!(target: "levada::access", %method, path, status, id, micros, "answered"),
        _ => tracing::debug!(target: "levada::access", %method, path, status, id, micros, "answered"),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use http_body_util::BodyExt;
    use levada_api::Effect;

    use super::*;
    use crate::ServeOptions;

    fn front(router: Router) -> Front {
        let state = AppState::new(&ServeOptions::default(), String::new());
        Front::new(router, Gate::new(&ServeOptions::default()).expect("the defaults are valid"), state)
    }

    async fn ask(front: &Front, path: &str) -> (StatusCode, HeaderMap, Problem) {
        let request = Request::builder().uri(path).header(header::HOST, "localhost").body(Body::empty());
        let (parts, body) = front.answer(request.expect("valid")).await.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        (parts.status, parts.headers, serde_json::from_slice(&body).expect("a problem"))
    }

    #[tokio::test]
    async fn a_panic_is_answered_and_the_next_request_too() {
        async fn broken() {
            panic!("a bug");
        }
        let front = front(Router::new().route("/v1/broken", get(broken)));
        for _ in 0..2 {
            let (status, headers, problem) = ask(&front, "/v1/broken").await;
            assert_eq!((status.as_u16(), problem.code, problem.effect), (500, ErrorCode::Internal, Effect::Possible));
            assert!(headers.contains_key(X_REQUEST_ID) && !problem.detail.contains("a bug"));
        }
    }

    #[tokio::test]
    async fn a_bare_error_status_becomes_a_problem() {
        let front = front(Router::new().route("/v1/bare", get(|| async { StatusCode::NOT_FOUND })));
        let (status, headers, problem) = ask(&front, "/v1/bare").await;
        assert_eq!((status.as_u16(), problem.code), (404, ErrorCode::NotFound));
        assert_eq!(headers[header::CONTENT_TYPE], "application/problem+json");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    }

    #[test]
    fn only_short_plain_request_ids_are_taken_over() {
        let id = |text: &str| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::try_from(text).expect("a value"))]);
            request_id(&headers)
        };
        assert_eq!(id("abc-1.2:3"), "abc-1.2:3");
        for odd in ["", "a b", "a\"b", "é", &"a".repeat(129)] {
            assert_ne!(id(odd), odd, "a new one in place of {odd}");
        }
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
