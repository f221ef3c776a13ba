//! The schemas of models, as their backends tell them.

use crate::control_kit::{TestControl, TestFile};
use crate::stub_server::{StubServer, reply};

const DOCUMENT: &str = r#"{"components": {"schemas": {"Input": {}}}}"#;

fn file(url: &str, endpoint: &str) -> TestFile {
    TestFile::new(&format!(
        "[probe]\ninterval = \"1h\"\n\
         [[model]]\nname = \"m\"\n[[model.endpoint]]\nurl = \"{url}\"\n{endpoint}\n"
    ))
}

/// A server that answers only the path with the document.
async fn server_with(path: &'static str, document: &'static str) -> StubServer {
    StubServer::start(move |request| match request.path == path {
        true => reply(200, document),
        false => reply(404, "{}"),
    })
    .await
}

#[tokio::test]
async fn the_backend_of_a_form_is_asked_once() {
    for (config, path) in [
        ("kind = \"cog\"", "/openapi.json"),
        ("kind = \"tidegate\"", "/models/m/openapi.json"),
        (
            "kind = \"tidegate\"\nupstream_model = \"ann/echo\"",
            "/models/ann/echo/openapi.json",
        ),
    ] {
        let server = server_with(path, DOCUMENT).await;
        let fleet = TestControl::start(file(&server.url(), config).input()).unwrap();
        for _ in 0..3 {
            let document = fleet.control.model_schema("m").await;
            assert_eq!(document.as_deref(), Some(DOCUMENT.as_bytes()), "{config}");
        }
        let asked = server.paths();
        let asked = asked.iter().filter(|asked| *asked == path).count();
        assert_eq!(asked, 1, "{config}");
    }
}

#[tokio::test]
async fn without_a_schema_there_is_no_document() {
    let path = "/openapi.json";
    for (config, document) in [
        ("kind = \"openai\"", DOCUMENT),
        ("kind = \"cog\"", "no JSON"),
        ("kind = \"cog\"", "{}"),
    ] {
        let server = server_with(path, document).await;
        let fleet = TestControl::start(file(&server.url(), config).input()).unwrap();
        assert_eq!(fleet.control.model_schema("m").await, None, "{config}");
        assert_eq!(fleet.control.model_schema("unknown").await, None);
    }
}
