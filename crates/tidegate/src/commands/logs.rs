//! `tidegate logs`: what a job of a server that runs has printed, and prints.

use std::io::Write;
use std::process::ExitCode;

use serde::Deserialize;

use crate::admin_client::AdminClient;
use crate::cli::LogsArgs;
use crate::exit;

/// How long one question waits for more.
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
    let server = AdminClient::of(&args.connect)?;
    let job = server.find(&args.id, args.account.as_deref()).await?;
    let path = ["admin", "jobs", job.owner(), &job.id];
    let wait = if args.follow { WAIT_S } else { "0" };
    let mut next = 0;
    loop {
        let from = next.to_string();
        let printed: LogChunk = server
            .get(
                &[path[0], path[1], path[2], path[3], "logs"],
                &[("from", &from), ("wait", wait)],
            )
            .await?;
        let mut out = std::io::stdout().lock();
        if out
            .write_all(printed.logs.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            // Whoever closes the pipe has seen enough.
            return Ok(ExitCode::SUCCESS);
        }
        // At the end once more: what was printed with the end may not have been in the answer.
        let is_all = printed.logs.is_empty();
        next = printed.next;
        match printed.over {
            true if !args.follow => return Ok(ExitCode::SUCCESS),
            true if is_all => return Ok(end(&server, &path, &printed.status).await),
            false if !args.follow => return Ok(ExitCode::SUCCESS),
            true | false => {}
        }
    }
}

/// Says how the job ended, in the exit code and on stderr.
async fn end(server: &AdminClient, path: &[&str], status: &str) -> ExitCode {
    if status == "succeeded" {
        return ExitCode::SUCCESS;
    }
    let error = server
        .get::<JobResult>(path, &[])
        .await
        .ok()
        .and_then(|ended| ended.error);
    // Nobody is left to tell when stderr is closed.
    let mut err = std::io::stderr().lock();
    match error {
        Some(error) => writeln!(err, "the job {status}: {error}").ok(),
        None => writeln!(err, "the job was {status}").ok(),
    };
    ExitCode::from(exit::FAILED)
}
