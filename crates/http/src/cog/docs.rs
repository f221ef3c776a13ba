//! `GET /docs`: a page that shows the inputs of the model and runs it.

use axum::response::Html;

pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}
