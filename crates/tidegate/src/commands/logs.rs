//! `tidegate logs`: prints the logs of a job of a running server.

use std::io::Write;
use std::process::ExitCode;

use serde::Deserialize;

use crate::admin_client::AdminClient;
use crate::cli::LogsArgs;
use crate::commands::error_cause;
use crate::exit;

/// How long one request waits for new logs.
const WAIT_S: &str = "20";

#[derive(Debug, Deserialize)]
struct LogChunk {
    logs: String,
    next: usize,
    over: bool,
    status: String,
}

#[derive(Debug, Deserialize)]
struct JobResult {
    error: Option<String>,
}

pub(crate) async fn logs(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::new(&args.connect)?;
    let job = server.find(&args.id, args.account.as_deref()).await?;
    let path = ["admin", "jobs", job.owner(), &job.id];
    let wait = if args.follow { WAIT_S } else { "0" };
    let mut next = 0;
    loop {
        let from = next.to_string();
        let chunk: LogChunk = server
            .get(
                &[path[0], path[1], path[2], path[3], "logs"],
                &[("from", &from), ("wait", wait)],
            )
            .await?;
        let mut out = std::io::stdout().lock();
        if out
            .write_all(chunk.logs.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            // The reader closed the pipe.
            return Ok(ExitCode::SUCCESS);
        }
        // One more request after the end, because the last response may lack the last lines.
        let is_all = chunk.logs.is_empty();
        next = chunk.next;
        match chunk.over {
            true if !args.follow => return Ok(ExitCode::SUCCESS),
            true if is_all => return Ok(end(&server, &path, &chunk.status).await),
            false if !args.follow => return Ok(ExitCode::SUCCESS),
            true | false => {}
        }
    }
}

/// Prints why the job did not succeed, and returns the exit code.
async fn end(server: &AdminClient, path: &[&str], status: &str) -> ExitCode {
    if status == "succeeded" {
        return ExitCode::SUCCESS;
    }
    let error = server
        .get::<JobResult>(path, &[])
        .await
        .ok()
        .and_then(|ended| ended.error);
    // Ignored, because stderr may be closed.
    let mut err = std::io::stderr().lock();
    match error {
        Some(error) => writeln!(err, "the job {status}: {}", error_cause(&error)).ok(),
        None => writeln!(err, "the job was {status}").ok(),
    };
    ExitCode::from(exit::FAILED)
}
