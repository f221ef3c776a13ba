//! `GET /docs`: a page that shows the inputs of the model and an example request, and runs the model.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::response::Html;
use serde_json::{Value, json};

use super::AppState;
use super::example::ExampleRequest;

/// The page, with a place for the example.
const PAGE: &str = include_str!("docs.html");
const EXAMPLE: &str = "<!-- example -->";
/// The host of the example for a request without one.
const DEFAULT_HOST: &str = "127.0.0.1:5000";

pub(super) async fn page(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Html<String> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let base = format!("http://{}{}", host.unwrap_or(DEFAULT_HOST), state.root);
    let example = state.jobs().schema().map_or_else(String::new, |schema| {
        let document = serde_json::from_slice(&schema.document).unwrap_or_default();
        let folder = state.model.current().folder.clone();
        example(&ExampleRequest::new(&document, &folder), &base)
    });
    Html(PAGE.replace(EXAMPLE, &example))
}

/// The command for people, and the request for the script of the page, which replaces `base` by the
/// address that the browser uses.
fn example(request: &ExampleRequest, base: &str) -> String {
    let data = json!({ "base": base, "path": request.path, "input": request.body.get("input") });
    format!(
        "<h2>Example</h2>\n<pre id=\"curl\">{}</pre>\n<script type=\"application/json\" id=\"example\">{}</script>",
        escape(&request.curl(base, "")),
        in_script(&data)
    )
}

/// Text as content of an HTML element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// JSON inside of a `script` element: no text in it can end the element.
fn in_script(data: &Value) -> String {
    data.to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_cannot_break_out_of_the_page() {
        let request = ExampleRequest {
            path: "/predictions",
            body: json!({"input": {"text": "</script><b>&"}}),
        };
        let page = example(&request, "http://<host>");
        assert!(page.contains("http://&lt;host&gt;/predictions"), "{page}");
        assert_eq!(page.matches("</script>").count(), 1);
        assert_eq!(page.matches("<b>").count(), 0);
        assert!(PAGE.contains(EXAMPLE));
    }
}
