//! The token that directors and API processes share.

use std::path::Path;

use crate::director_env;
use crate::usage_error::UsageError;

/// The least number of characters.
const MIN_LENGTH: usize = 16;

/// The token of `--token-file`, or of the environment.
pub(crate) fn read(file: Option<&Path>, from_env: Option<&str>) -> Result<String, UsageError> {
    let text = match (file, from_env) {
        (Some(file), _) => std::fs::read_to_string(file).map_err(|error| {
            let file = file.display();
            UsageError::new(format!("failed to read --token-file `{file}`: {error}"))
                .hint("give a file that this user can read")
        })?,
        (None, Some(token)) => token.to_owned(),
        (None, None) => {
            return Err(UsageError::new("there is no token for the directors").hint(hint()));
        }
    };
    let token = text.trim();
    if token.len() < MIN_LENGTH || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = format!(
            "the token of the directors must have at least {MIN_LENGTH} printable characters without spaces"
        );
        return Err(UsageError::new(message).hint(hint()));
    }
    Ok(token.to_owned())
}

fn hint() -> String {
    format!(
        "create one with `openssl rand -hex 32 > directors.token`, and give the same to every `tidegate api` and `tidegate director` with --token-file or {}",
        director_env::TOKEN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn a_token_comes_from_the_file_or_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, format!(" {TOKEN}\n")).unwrap();
        assert_eq!(
            read(Some(&file), Some("another token of 30 bytes")).unwrap(),
            TOKEN
        );
        assert_eq!(read(None, Some(TOKEN)).unwrap(), TOKEN);
        let missing = read(Some(&folder.path().join("missing")), Some(TOKEN)).unwrap_err();
        assert!(missing.to_string().contains("--token-file"), "{missing}");
        assert!(read(None, None).is_err());
    }

    #[test]
    fn a_token_is_long_and_printable() {
        for bad in ["short", "", "0123456789 abcdef", "0123456789abcdé"] {
            assert!(read(None, Some(bad)).is_err(), "{bad}");
        }
    }
}
