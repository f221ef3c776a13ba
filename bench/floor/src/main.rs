//! The floor: the least that two processes of this shape can cost.
//!
//! An axum server hands the body of each `POST /predictions` over one Unix socket to a bare Python
//! loop (`loop.py`) and returns what comes back. No validation, no ids, no states: what tidegate
//! costs above this is ours to explain.

mod link;

use std::path::PathBuf;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use axum::routing::post;
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use tokio::net::{TcpListener, UnixListener};
use tokio::process::Command;

use crate::link::Links;

/// Serve the bare Python loop
#[derive(Debug, Parser)]
struct Floor {
    /// The port on 127.0.0.1
    #[arg(long)]
    port: u16,
    /// How the Python loop waits, and what it answers
    #[arg(long, value_enum, default_value = "sync")]
    kind: Kind,
    /// How many sockets lead to it; more than one needs `async`
    #[arg(long, default_value_t = 1)]
    sockets: usize,
    /// The interpreter
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// The loop
    #[arg(long = "loop", default_value = "bench/floor/loop.py")]
    script: PathBuf,
}

/// Which loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// One blocking socket; the answer is the input.
    Sync,
    /// asyncio, one task per socket; the answer is the input.
    Async,
    /// One blocking socket; the answer is 1,000 tokens.
    Stream,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let floor = Floor::parse();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("floor");
    let socket = UnixListener::bind(&path)?;
    let kind = floor
        .kind
        .to_possible_value()
        .context("every kind has a name")?;
    let mut child = Command::new(&floor.python);
    child
        .arg("-u")
        .arg(&floor.script)
        .arg(kind.get_name())
        .arg(&path)
        .arg(floor.sockets.to_string());
    let _child = child
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start `{}`", floor.python.display()))?;
    let links = Links::accept(&socket, floor.sockets).await?;

    let route = match floor.kind {
        Kind::Sync | Kind::Async => post(echo),
        Kind::Stream => post(stream),
    };
    let faces = Router::new()
        .route("/predictions", route)
        .layer(DefaultBodyLimit::disable())
        .with_state(links);
    let listener = TcpListener::bind(("127.0.0.1", floor.port))
        .await?
        .tap_io(|stream| {
            // Without it the connection works too, only more slowly.
            stream.set_nodelay(true).ok();
        });
    axum::serve(listener, faces).await?;
    Ok(())
}

async fn echo(State(links): State<Links>, body: Bytes) -> Response<Body> {
    let answer = links
        .take()
        .await
        .exchange(&body)
        .await
        .expect("the loop lives as long as the server");
    typed("application/json", Body::from(answer))
}

async fn stream(State(links): State<Links>, body: Bytes) -> Response<Body> {
    typed(
        "text/event-stream",
        Body::from_stream(link::stream(links.take().await, body)),
    )
}

fn typed(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
