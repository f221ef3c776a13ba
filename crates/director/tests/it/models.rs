//! Models that are offered and registered.

use tidegate_director::DirectorError;

use crate::harness::{Harness, Options, eventually, version};

#[tokio::test]
async fn a_model_is_registered_with_its_schema_once() {
    let harness = Harness::start(Options::default()).await;
    let beats = harness.api.calls().heartbeats.len();
    eventually(|| harness.api.calls().heartbeats.len() > beats + 2).await;
    let calls = harness.api.calls();
    assert_eq!(calls.registered.len(), 1);
    let model = &calls.registered[0].models[0];
    assert_eq!(
        (model.model.as_str(), &model.version),
        ("ann/echo", &version())
    );
    assert!(model.schema.starts_with(b"{\"components\""));
    let offer = &calls.heartbeats[0].models[0];
    assert_eq!(offer.slots, 1);
    assert_eq!(offer.schema_hash.as_ref().map(String::len), Some(64));
}

#[tokio::test]
async fn a_director_whose_only_model_is_refused_ends_with_the_reason() {
    let harness = Harness::start_unconnected(Options::default()).await;
    harness.api.refuse_models();
    let error = harness.ended().await.unwrap_err();
    assert!(matches!(error, DirectorError::ModelRefused { .. }));
    assert!(error.to_string().contains("another schema"), "{error}");
}
