//! `tidegate cancel` and `tidegate replay`: stopping a job, and sending its last webhook again.

use std::io::Write;
use std::process::ExitCode;

use crate::admin_client::AdminClient;
use crate::cli::{CancelArgs, ReplayArgs};
use crate::exit;
use crate::usage_error;

/// Stops each of them; one that cannot be stopped does not keep the others from it.
pub(crate) async fn cancel(args: &CancelArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::of(&args.connect)?;
    let mut code = ExitCode::SUCCESS;
    for id in &args.ids {
        match stop(&server, id, args.account.as_deref()).await {
            Ok(()) => drop(writeln!(std::io::stdout().lock(), "{id}")),
            Err(error) if args.ids.len() == 1 => return Err(error),
            Err(error) => {
                usage_error::report(&error);
                code = ExitCode::from(exit::FAILED);
            }
        }
    }
    Ok(code)
}

async fn stop(server: &AdminClient, id: &str, account: Option<&str>) -> anyhow::Result<()> {
    let job = server.find(id, account).await?;
    server
        .post(&["admin", "jobs", job.owner(), &job.id, "cancel"])
        .await
}

/// Has the message sent again.
pub(crate) async fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::of(&args.connect)?;
    server
        .post(&["admin", "deliveries", &args.id, "replay"])
        .await?;
    let hint = "it is sent again; GET /admin/deliveries shows what comes of it";
    writeln!(std::io::stderr().lock(), "{hint}").ok();
    Ok(ExitCode::SUCCESS)
}
