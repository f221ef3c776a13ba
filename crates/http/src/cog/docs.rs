//! `GET /docs`: a page that shows what the model takes and lets a person try it.

use axum::response::Html;

pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}
