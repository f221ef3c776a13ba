//! `tidegate ps`: shows a running server: its models with their processes and queues, and its jobs.

mod gpus;
mod status;
mod tables;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::admin_client::{AdminClient, JobList};
use crate::cli::PsArgs;
use crate::models::choose;

pub(crate) use status::{ModelRow, ServerStatus};
use tables::{RowFilter, status_tables};

/// The path of the state of a server.
pub(crate) const STATUS: [&str; 2] = ["admin", "status"];

pub(crate) async fn ps(args: &PsArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::new(&args.connect)?;
    let args = &with_full_model_name(&server, args).await?;
    let text = match args {
        PsArgs { json: true, .. } => json(&server, args).await?,
        PsArgs { quiet: true, .. } => {
            let JobList { jobs, .. } = get_jobs(&server, args).await?;
            jobs.iter().map(|job| format!("{}\n", job.id)).collect()
        }
        _ => tables(&server, args).await?,
    };
    // Ignored, because the reader may close the pipe early.
    std::io::stdout().lock().write_all(text.as_bytes()).ok();
    Ok(ExitCode::SUCCESS)
}

/// The same arguments with the model's name in its jobs. A model that is no longer served is known if it has
/// jobs.
async fn with_full_model_name(server: &AdminClient, args: &PsArgs) -> anyhow::Result<PsArgs> {
    let Some(wanted) = args.model.as_deref() else {
        return Ok(args.clone());
    };
    let status: ServerStatus = server.get(&STATUS, &[]).await?;
    let names: Vec<String> = status.models.iter().map(ModelRow::job_model).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    match choose(&names, Some(wanted), "the server") {
        Ok(name) => Ok(PsArgs {
            model: Some(name.to_owned()),
            ..args.clone()
        }),
        Err(unknown) if status.server.command == "router" => Err(unknown.into()),
        Err(unknown) => {
            let query = [("model", wanted), ("limit", "1")];
            let JobList { jobs, .. } = server.get(&["admin", "jobs"], &query).await?;
            match jobs.is_empty() {
                true => Err(unknown.into()),
                false => Ok(args.clone()),
            }
        }
    }
}

/// The responses of the server, as one object.
async fn json(server: &AdminClient, args: &PsArgs) -> anyhow::Result<String> {
    let mut all: Map<String, Value> = server.get(&STATUS, &[]).await?;
    if all["server"]["command"] != "router" {
        all.append(&mut get_jobs(server, args).await?);
    }
    let text = serde_json::to_string(&all).context("failed to write the responses")?;
    Ok(format!("{text}\n"))
}

async fn tables(server: &AdminClient, args: &PsArgs) -> anyhow::Result<String> {
    let status: ServerStatus = server.get(&STATUS, &[]).await?;
    let filter = RowFilter {
        model: args.model.as_deref(),
        account: args.account.as_deref(),
    };
    let now = Timestamp::now();
    let mut tables = status_tables(&status, filter, now);
    if status.server.command != "router" {
        let JobList { jobs, scope } = get_jobs(server, args).await?;
        if jobs.is_empty() {
            let all = "no jobs";
            let open = "no waiting or running jobs; --all lists finished jobs as well";
            note(if args.all { all } else { open });
        } else {
            tables.push(tables::jobs(&jobs, now));
        }
        if scope == "account" && server.has_token() {
            note(
                "these are the jobs of your account; an admin token shows the processes and the jobs of all accounts",
            );
        }
    }
    Ok(tables.join("\n"))
}

async fn get_jobs<T: DeserializeOwned>(server: &AdminClient, args: &PsArgs) -> anyhow::Result<T> {
    let limit = args.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    if !args.all {
        query.push(("status", "open"));
    }
    query.extend(args.account.as_deref().map(|account| ("account", account)));
    query.extend(args.model.as_deref().map(|model| ("model", model)));
    server.get(&["admin", "jobs"], &query).await
}

/// Prints what is no part of the tables.
fn note(text: &str) {
    // Ignored, because stderr may be closed.
    writeln!(std::io::stderr().lock(), "{text}").ok();
}
