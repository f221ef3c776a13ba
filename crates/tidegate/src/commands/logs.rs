//! `tidegate logs`: prints and follows the logs of a job, or of models: their setups and their jobs.

mod job_logs;
mod log_stream;
mod log_writer;
mod model_logs;
mod setup_logs;

use std::io::Write;
use std::process::ExitCode;

use crate::admin_client::AdminClient;
use crate::cli::LogsArgs;
use crate::commands::ps::{ModelRow, STATUS, ServerStatus};
use crate::usage_error::UsageError;

pub(crate) async fn logs(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::new(&args.connect)?;
    let name = match &args.target {
        // A job id has no `/`.
        Some(name) if !name.contains('/') => name,
        target => return logs_of_models(&server, args, target.as_deref()).await,
    };
    match server.find(name, args.account.as_deref()).await {
        Ok(job) => job_logs::print(&server, job, args).await,
        Err(unknown) => {
            let status: ServerStatus = server.get(&STATUS, &[]).await?;
            match find_models(&status, Some(name)).is_empty() {
                true => Err(unknown),
                false => logs_of_models(&server, args, Some(name)).await,
            }
        }
    }
}

/// The logs of one model, or of all.
async fn logs_of_models(
    server: &AdminClient,
    args: &LogsArgs,
    name: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let status: ServerStatus = server.get(&STATUS, &[]).await?;
    if status.server.command == "router" {
        let hint = "use --url with the address of a server that runs the model; `tidegate ps` lists the backends";
        return Err(UsageError::new("a router has no logs of models and jobs")
            .hint(hint)
            .into());
    }
    let models = find_models(&status, name);
    if models.is_empty() {
        let what = name.map_or_else(
            || "the server has no models".to_owned(),
            |name| format!("the server has no model `{name}`"),
        );
        return Err(UsageError::new(what)
            .hint("`tidegate ps` lists the models")
            .into());
    }
    let sees_setups = status.scope == "all";
    if !sees_setups {
        let note =
            "the logs of setups need an admin token; these are those of the jobs of your account";
        // Ignored, because stderr may be closed.
        writeln!(std::io::stderr().lock(), "{note}").ok();
    }
    model_logs::print(server, &models, args, sees_setups).await
}

/// The models with this name, with or without their owner; without a name, all.
fn find_models<'a>(status: &'a ServerStatus, name: Option<&str>) -> Vec<&'a ModelRow> {
    let is_named = |model: &&ModelRow| {
        let has_name = |name: &str| {
            let short = model.name.rsplit_once('/').map(|(_, short)| short);
            model.name == name || model.job_model() == name || short == Some(name)
        };
        name.is_none_or(has_name)
    };
    status.models.iter().filter(is_named).collect()
}
