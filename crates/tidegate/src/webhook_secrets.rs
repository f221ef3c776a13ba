//! The secrets that sign webhooks, from the environment and from a file.

use std::path::{Path, PathBuf};

use tidegate_service::WebhookSecrets;

use crate::compat::WEBHOOK_SECRET;
use crate::reload::Reload;
use crate::usage_error::UsageError;

const HINT: &str = "create one with: echo \"whsec_$(openssl rand -base64 32)\"";

/// Reads the secrets of the environment and of a file, which SIGHUP reloads.
pub(crate) fn read(
    text: Option<&str>,
    file: Option<&Path>,
    reload: &mut Reload,
) -> Result<WebhookSecrets, UsageError> {
    let source = SecretSource {
        text: text.unwrap_or_default().to_owned(),
        file: file.map(Path::to_owned),
    };
    let secrets = source.read()?;
    if source.file.is_some() {
        let handle = secrets.clone();
        let reload_file = move || {
            handle.replace(&source.read()?);
            Ok(())
        };
        reload
            .actions
            .push(("webhook secrets", Box::new(reload_file)));
    }
    Ok(secrets)
}

struct SecretSource {
    text: String,
    file: Option<PathBuf>,
}

impl SecretSource {
    fn read(&self) -> Result<WebhookSecrets, UsageError> {
        let from_env = WebhookSecrets::parse(&self.text)
            .map_err(|error| UsageError::new(format!("{WEBHOOK_SECRET}: {error}")).hint(HINT))?;
        let Some(file) = &self.file else {
            return Ok(from_env);
        };
        let source = format!("--webhook-secret-file {}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| {
            UsageError::new(format!("{source}: {error}")).hint("give a readable file")
        })?;
        let from_file = WebhookSecrets::parse(&text)
            .map_err(|error| UsageError::new(format!("{source}: {error}")).hint(HINT))?;
        if from_file.is_empty() {
            return Err(
                UsageError::new(format!("{source}: the file contains no secret")).hint(HINT),
            );
        }
        // Both parts parsed, so the combination does.
        WebhookSecrets::parse(&format!("{}\n{text}", self.text))
            .map_err(|error| UsageError::new(error.to_string()).hint(HINT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn mistakes_name_the_source_and_never_show_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, missing) = (folder.path().join("empty"), folder.path().join("missing"));
        std::fs::write(&empty, "# nothing yet\n").unwrap();
        for (text, file, source) in [
            (Some("hunter2"), None, WEBHOOK_SECRET),
            (None, Some(&missing), "missing"),
            (Some(SECRET), Some(&empty), "empty"),
        ] {
            let error = read(text, file.map(PathBuf::as_path), &mut Reload::default())
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.contains(source) && !error.contains("hunter2"),
                "{error}"
            );
        }
        assert!(read(None, None, &mut Reload::default()).unwrap().is_empty());
    }
}
