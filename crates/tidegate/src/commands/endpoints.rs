//! `tidegate endpoints`: manages the endpoints of a running platform.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use crate::admin_client::AdminClient;
use crate::cli::{
    AddEndpointArgs, EndpointEnvArgs, EndpointsArgs, EndpointsCommand, EnvFormat,
    ListEndpointsArgs, RemoveEndpointArgs,
};
use crate::shell;

#[derive(Debug, Deserialize)]
struct EndpointList {
    endpoints: Vec<EndpointRow>,
}

#[derive(Debug, Deserialize)]
struct EndpointRow {
    name: String,
    url: String,
    waiting: usize,
    running: usize,
    workers: usize,
}

#[derive(Debug, Deserialize)]
struct RemoveReply {
    canceled: usize,
}

#[derive(Debug, Deserialize)]
struct WorkerEnv {
    env: BTreeMap<String, String>,
}

pub(crate) async fn endpoints(args: &EndpointsArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.command {
        EndpointsCommand::List(args) => list(args).await?,
        EndpointsCommand::Add(args) => add(args).await?,
        EndpointsCommand::Remove(args) => remove(args).await?,
        EndpointsCommand::Env(args) => env(args).await?,
    };
    // Ignored, because the reader may close the pipe early.
    writeln!(std::io::stdout().lock(), "{text}").ok();
    Ok(ExitCode::SUCCESS)
}

async fn list(args: &ListEndpointsArgs) -> anyhow::Result<String> {
    let server = AdminClient::platform(&args.connect)?;
    if args.json {
        return Ok(
            String::from_utf8_lossy(&server.get_raw(&["admin", "endpoints"], &[]).await?)
                .into_owned(),
        );
    }
    let EndpointList { endpoints } = server.get(&["admin", "endpoints"], &[]).await?;
    let width = endpoints
        .iter()
        .map(|entry| entry.name.len())
        .chain(["ENDPOINT".len()])
        .max()
        .unwrap_or_default();
    let mut lines = vec![format!(
        "{:width$}  WAITING  RUNNING  WORKERS  URL",
        "ENDPOINT"
    )];
    lines.extend(endpoints.iter().map(|entry| {
        let EndpointRow {
            name,
            url,
            waiting,
            running,
            workers,
        } = entry;
        format!("{name:width$}  {waiting:>7}  {running:>7}  {workers:>7}  {url}")
    }));
    Ok(lines.join("\n"))
}

async fn add(args: &AddEndpointArgs) -> anyhow::Result<String> {
    let entry: EndpointRow = AdminClient::platform(&args.connect)?
        .post_json(&["admin", "endpoints"], &json!({ "name": args.name }))
        .await?;
    Ok(entry.url)
}

async fn remove(args: &RemoveEndpointArgs) -> anyhow::Result<String> {
    let path = ["admin", "endpoints", &args.name, "remove"];
    let RemoveReply { canceled } = AdminClient::platform(&args.connect)?
        .post_json(&path, &json!({ "force": args.force }))
        .await?;
    Ok(match canceled {
        0 => format!("removed {}", args.name),
        _ => format!("removed {}, and canceled {canceled} job(s)", args.name),
    })
}

async fn env(args: &EndpointEnvArgs) -> anyhow::Result<String> {
    let WorkerEnv { env } = AdminClient::platform(&args.connect)?
        .get(&["admin", "endpoints", &args.name, "env"], &[])
        .await?;
    Ok(match args.format {
        EnvFormat::Json => serde_json::to_string_pretty(&env)?,
        EnvFormat::Shell => lines(&env, |name, value| {
            format!("export {name}={}", shell::quoted(value))
        }),
        EnvFormat::Docker => lines(&env, |name, value| format!("{name}={value}")),
    })
}

fn lines(env: &BTreeMap<String, String>, line: impl Fn(&str, &str) -> String) -> String {
    env.iter()
        .map(|(name, value)| line(name, value))
        .collect::<Vec<_>>()
        .join("\n")
}
