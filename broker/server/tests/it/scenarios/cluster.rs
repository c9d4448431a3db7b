//! The cluster and its health.

use crate::harness::Harness;

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    assert_eq!(harness.get("/healthz").await.expect(200).json(), serde_json::json!({ "status": "alive" }));
    assert_eq!(harness.get("/readyz").await.expect(200).json(), serde_json::json!({ "status": "ready" }));
    let cluster = harness.get("/v1/cluster").await.expect(200).json();
    assert_eq!(cluster["nodes"][0]["address"], harness.authority());
    assert_eq!(cluster["controller"], cluster["nodes"][0]["id"]);
    assert_eq!(cluster["version"], env!("CARGO_PKG_VERSION"));
    let page = harness.get("/metrics").await.expect(200);
    let page = String::from_utf8(page.body.to_vec()).expect("text");
    for line in [
        "levada_http_requests_total{method=\"GET\",route=\"/v1/cluster\",status=\"200\"} ",
        "levada_http_request_duration_seconds_count{method=\"GET\",route=\"/v1/cluster\"} ",
        "levada_http_connections ",
        "levada_ready 1",
        "levada_syncs_total ",
    ] {
        assert!(page.lines().any(|is| is.starts_with(line)), "{line} is not in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"));
}
