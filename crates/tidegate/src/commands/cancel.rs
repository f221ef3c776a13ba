//! `tidegate cancel` and `tidegate replay`: cancel jobs, and send webhooks again.

use std::io::Write;
use std::process::ExitCode;

use crate::admin_client::AdminClient;
use crate::cli::{CancelArgs, ReplayArgs};
use crate::exit;
use crate::usage_error;

/// Cancels the jobs. If one fails, the others are canceled all the same.
pub(crate) async fn cancel(args: &CancelArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::new(&args.connect)?;
    let mut code = ExitCode::SUCCESS;
    for id in &args.ids {
        match cancel_job(&server, id, args.account.as_deref()).await {
            Ok(id) => drop(writeln!(std::io::stdout().lock(), "{id}")),
            Err(error) if args.ids.len() == 1 => return Err(error),
            Err(error) => {
                usage_error::report(&error);
                code = ExitCode::from(exit::FAILED);
            }
        }
    }
    Ok(code)
}

/// Cancels a job, and returns its whole id.
async fn cancel_job(
    server: &AdminClient,
    id: &str,
    account: Option<&str>,
) -> anyhow::Result<String> {
    let job = server.find(id, account).await?;
    server
        .post(&["admin", "jobs", job.owner(), &job.id, "cancel"])
        .await?;
    Ok(job.id)
}

/// Makes the server send a webhook message again.
pub(crate) async fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::new(&args.connect)?;
    let id = server.find_message(&args.id).await?;
    server.post(&["admin", "deliveries", &id, "replay"]).await?;
    let hint = "the server sends the webhook again; GET /admin/deliveries shows the result";
    writeln!(std::io::stderr().lock(), "{hint}").ok();
    Ok(ExitCode::SUCCESS)
}
