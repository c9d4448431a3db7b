//! The contract is served as it lies in the repository.

use levada_api::WitPackage;

use crate::harness::Harness;

#[tokio::test]
async fn the_contract_is_one_file_of_text_or_a_list_of_files() {
    let harness = Harness::start(|_| {}).await;
    let text = harness.get("/v1/wit").await.expect(200);
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
    let text = String::from_utf8(text.body.to_vec()).expect("text");
    assert_eq!(text.matches("package levada:plugin@0.1.0;").count(), 1);
    for word in ["interface transform {", "world partitioner-module {", "interface host {"] {
        assert!(text.contains(word), "{word}");
    }

    let request = harness.request(http::Method::GET, "/v1/wit").header("accept", "application/json");
    let package: WitPackage =
        serde_json::from_value(harness.send(request).await.expect(200).json()).expect("a package");
    assert_eq!(package.package, "levada:plugin@0.1.0");
    assert!(package.files.iter().any(|file| file.name == "layouts.md" && file.text.contains("varint")));
    for file in package.files {
        let alone = harness.get(&file.path).await.expect(200);
        assert_eq!(alone.body, file.text.as_bytes(), "{}", file.name);
    }
    assert_eq!(harness.get("/v1/wit/world.wit").await.expect(404).code(), "not-found");
}
