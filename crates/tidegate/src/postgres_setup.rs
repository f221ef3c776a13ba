//! Opens the database of `--postgres`.

use std::time::Duration;

use tidegate_core::chain;
use tidegate_store::{PostgresOpenError, PostgresOptions, PostgresStore, PostgresUrl};

use crate::secrets;
use crate::usage_error::UsageError;

/// How long to wait between two attempts to reach the database.
const PAUSE: Duration = Duration::from_millis(500);
/// A line about the wait is written again after this many attempts.
const ATTEMPTS_PER_LINE: u32 = 60;

/// The URL of the flag, or of the variable, which is hidden from the model.
pub(crate) fn url(flag: Option<&String>) -> Option<String> {
    flag.cloned()
        .or_else(|| secrets::variable(secrets::POSTGRES))
        .filter(|url| !url.is_empty())
}

/// Opens the database, and waits for it if it does not answer. The text of the URL, which may contain a
/// password, is not part of any message.
pub(crate) async fn open(
    url: &str,
    options: &PostgresOptions,
) -> Result<PostgresStore, UsageError> {
    let url: PostgresUrl = url
        .parse()
        .map_err(|error| UsageError::new(format!("--postgres is not valid: {error}")))?;
    let mut attempt = 0;
    loop {
        let error = match PostgresStore::open(&url, options).await {
            Ok(store) => {
                if attempt > 0 {
                    tracing::info!(database = %url, "connected to PostgreSQL");
                }
                return Ok(store);
            }
            Err(error) => error,
        };
        if !error.is_temporary() {
            return Err(open_error(&url, &error));
        }
        if attempt % ATTEMPTS_PER_LINE == 0 {
            let reason = chain(&error).to_string();
            tracing::warn!(database = %url, reason, "waiting for PostgreSQL");
        }
        attempt += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

fn open_error(url: &PostgresUrl, error: &PostgresOpenError) -> UsageError {
    let message = format!("failed to open the database {url}: {}", chain(error));
    UsageError::new(message).hint("correct --postgres, or the database")
}
