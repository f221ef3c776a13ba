//! `tidegate serve`: a model over HTTP.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::chain;
use tidegate_http::cog::{self, Build};
use tidegate_http::edge::{Edge, Tls, descriptors};
use tidegate_service::{Jobs, ModelSchema};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::{LogFormat, Serve};
use crate::compat::CogEnv;
use crate::failure::Usage;
use crate::model::Model;
use crate::progress::Progress;
use crate::shutdown::{self, Cause, Signals};
use crate::wiring::{self, Setting};
use crate::{build_info, exit, inputs};

pub(crate) async fn serve(args: &Serve, env: &CogEnv, format: LogFormat) -> anyhow::Result<ExitCode> {
    let model = Model::read(&args.dir, &args.model, env)?;
    let mut signals = Signals::listen(args.await_explicit_shutdown)?;
    let edge = edge(args)?;
    let listener = listen(&args.host, args.port).await?;
    let scheme = if edge.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", listener.local_addr()?);

    // Emptied in the end: the desk holds the runtime, which holds the progress, which holds this.
    let jobs: Arc<Mutex<Option<Jobs>>> = Arc::default();
    let greeting = Arc::clone(&jobs);
    let greeting_url = url.clone();
    let on_ready = move || {
        let jobs = greeting.lock().unwrap_or_else(PoisonError::into_inner);
        Some(greet(&greeting_url, &*jobs.as_ref()?.schema()?))
    };
    let progress = Arc::new(Progress::new(args.progress, format, args.workers.into(), Box::new(on_ready)));
    progress.announce(&model, &url);

    let observer = Arc::clone(&progress);
    let setting = setting(args);
    let wired = wiring::wire(&model, &args.model, env, &setting, observer)?;
    *jobs.lock().unwrap_or_else(PoisonError::into_inner) = Some(wired.jobs.clone());
    let _emptied = Emptied(jobs);

    let (stop, goodbye, asked) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let faces = cog::routes(wired.jobs.clone(), face_config(args, env), asked.clone());
    let http = tidegate_http::edge::serve(listener, faces, edge, stop.clone(), goodbye.clone());
    tokio::pin!(http);
    let cause = tokio::select! {
        () = &mut http => unreachable!("the listener ends only when it is told to"),
        cause = signals.next() => cause,
        () = asked.cancelled() => Cause::Asked,
    };
    tracing::info!(?cause, "shutting down");
    stop.cancel();
    tokio::select! {
        () = shutdown::drain(&wired.jobs, &wired.runtime, args.drain_timeout, &goodbye, http) => {}
        second = signals.next() => {
            tracing::warn!("a second signal: ending at once");
            return Ok(ExitCode::from(if second == Cause::Interrupt { exit::INTERRUPTED } else { exit::TERMINATED }));
        }
    }
    Ok(ExitCode::from(cause.exit_code()))
}

/// Forgets the desk when the server is over, however it ends.
struct Emptied(Arc<Mutex<Option<Jobs>>>);

impl Drop for Emptied {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

async fn listen(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((host, port)).await.map_err(|error| {
        let usage = Usage::new(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                usage.hint("another program has this port; choose one with --port, or --port 0 for any free one")
            }
            _ => usage.hint("check --host and --port"),
        }
        .into()
    })
}

/// How connections are treated. Takes as many file descriptors as this process may have.
fn edge(args: &Serve) -> anyhow::Result<Edge> {
    descriptors::raise_limit();
    let tls = args.tls_cert.as_ref().zip(args.tls_key.as_ref()).map(|(certificate, key)| {
        Tls::load(certificate, key).map_err(|error| {
            let hint = "both are PEM files; --tls-key is the key of the first certificate in --tls-cert";
            Usage::new(format!("no HTTPS: {}", chain(&error))).hint(hint)
        })
    });
    Ok(Edge {
        max_connections: args.max_connections.unwrap_or_else(descriptors::default_connections),
        header_timeout: args.header_timeout,
        tls: tls.transpose()?.map(Arc::new),
    })
}

fn setting(args: &Serve) -> Setting {
    Setting {
        workers: args.workers.into(),
        slots: args.concurrency,
        line_limit: args.queue,
        cancel_grace: args.cancel_grace,
        respawn: !args.no_respawn,
        keep_for: args.keep_for,
    }
}

fn face_config(args: &Serve, env: &CogEnv) -> cog::Config {
    cog::Config {
        max_body: args.max_body,
        body_timeout: args.body_timeout,
        build: Build { version: build_info::VERSION, git_sha: build_info::COMMIT, built_at: build_info::BUILT_AT },
        ready_file: env.ready_file.clone(),
    }
}

/// How to go on from here: the address, a call that can be pasted, a page.
fn greet(url: &str, schema: &ModelSchema) -> String {
    let document: serde_json::Value = serde_json::from_slice(&schema.document).unwrap_or_default();
    let body = serde_json::json!({ "input": inputs::example(&document) }).to_string().replace('\'', "'\\''");
    format!("\n  {url}\n  curl -s {url}/predictions -H 'content-type: application/json' -d '{body}'\n  in a browser: {url}/docs\n")
}
