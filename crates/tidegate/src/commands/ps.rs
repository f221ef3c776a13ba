//! `tidegate ps`: lists the jobs of a running server.

use std::io::Write;
use std::process::ExitCode;

use jiff::Timestamp;

use crate::admin_client::{AdminClient, JobList, JobRow};
use crate::cli::PsArgs;
use crate::commands::error_cause;
use crate::commands::table::columns;

pub(crate) async fn ps(args: &PsArgs) -> anyhow::Result<ExitCode> {
    let server = AdminClient::new(&args.connect)?;
    let limit = args.limit.to_string();
    let mut query = vec![("limit", limit.as_str())];
    if !args.all {
        query.push(("status", "open"));
    }
    query.extend(args.account.as_deref().map(|account| ("account", account)));
    query.extend(args.model.as_deref().map(|model| ("model", model)));
    // Write errors are ignored, because the reader may close the pipe early.
    let mut out = std::io::stdout().lock();
    if args.json {
        let body = server.get_raw(&["admin", "jobs"], &query).await?;
        out.write_all(&body).and_then(|()| writeln!(out)).ok();
        return Ok(ExitCode::SUCCESS);
    }
    let JobList { jobs, scope } = server.get(&["admin", "jobs"], &query).await?;
    out.write_all(table(&jobs, Timestamp::now()).as_bytes())
        .ok();
    let mut err = std::io::stderr().lock();
    if jobs.is_empty() {
        let hint = if args.all {
            "no jobs"
        } else {
            "no waiting or running jobs; --all lists finished jobs as well"
        };
        writeln!(err, "{hint}").ok();
    }
    if scope == "account" && server.has_token() {
        writeln!(
            err,
            "these are the jobs of your account; an admin token shows the jobs of all accounts"
        )
        .ok();
    }
    Ok(ExitCode::SUCCESS)
}

const HEAD: [&str; 8] = [
    "ID", "MODEL", "STATUS", "ACCOUNT", "AGE", "WAIT", "RUN", "ERROR",
];
/// The most characters of an error in the table.
const MAX_ERROR: usize = 60;

/// One line per job, in columns; empty if there are no jobs.
fn table(jobs: &[JobRow], now: Timestamp) -> String {
    if jobs.is_empty() {
        return String::new();
    }
    let row = |job: &JobRow| {
        let age = now.duration_since(job.created_at).as_secs_f64();
        let account = job.account.clone().unwrap_or_else(|| "-".to_owned());
        let run = job.ran_s.map_or_else(|| "-".to_owned(), short_duration);
        vec![
            job.id.clone(),
            job.model.clone(),
            job.status.clone(),
            account,
            short_duration(age),
            short_duration(job.waited_s),
            run,
            job.error
                .as_deref()
                .map_or_else(|| "-".to_owned(), short_error),
        ]
    };
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(jobs.iter().map(row));
    columns(&rows)
}

/// The first line of an error, without the words that the status column says already.
fn short_error(error: &str) -> String {
    let line = error_cause(error).lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_ERROR) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line.to_owned(),
    }
}

/// A duration as short text.
pub(crate) fn short_duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1}s", seconds.max(0.0)),
        10..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        86_400.. => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [
            (0.04, "0.0s"),
            (9.96, "10.0s"),
            (59.9, "59s"),
            (61.0, "1m01s"),
            (7320.0, "2h02m"),
            (90_000.0, "1d01h"),
        ] {
            assert_eq!(short_duration(seconds), text);
        }
        assert_eq!(short_duration(-1.0), "0.0s");
    }

    #[test]
    fn errors_are_short() {
        assert_eq!(
            short_error("Prediction failed: ValueError: no\nsecond line"),
            "ValueError: no"
        );
        let long = "é".repeat(100);
        assert_eq!(short_error(&long), format!("{}…", "é".repeat(MAX_ERROR)));
    }

    #[test]
    fn columns_are_aligned() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let job = |id: &str, account: Option<&str>, ran_s| JobRow {
            account: account.map(str::to_owned),
            id: id.to_owned(),
            model: "local/echo".to_owned(),
            status: "processing".to_owned(),
            waited_s: 0.5,
            ran_s,
            created_at: now,
            error: (id == "a").then(|| "Worker crashed".to_owned()),
        };
        let table = table(
            &[
                job("a", None, None),
                job("a-long-one", Some("ann"), Some(75.0)),
            ],
            now,
        );
        assert_eq!(
            table,
            "ID          MODEL       STATUS      ACCOUNT  AGE   WAIT  RUN    ERROR\n\
             a           local/echo  processing  -        0.0s  0.5s  -      Worker crashed\n\
             a-long-one  local/echo  processing  ann      0.0s  0.5s  1m15s  -\n"
        );
        assert_eq!(super::table(&[], now), "");
    }
}
