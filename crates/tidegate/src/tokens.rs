//! The tokens of the clients, from `TIDEGATE_API_TOKENS` and `--tokens-file`.
//!
//! Messages never contain a token: they name its position in the list or its line.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tidegate_core::Account;
use tidegate_http::access::{Role, TokenDigest, TokenTable, Tokens};

use crate::reload::Reload;
use crate::secrets;
use crate::usage_error::UsageError;

/// The variable with the tokens themselves.
const TOKENS_VARIABLE: &str = "TIDEGATE_API_TOKENS";
/// Shorter tokens can be guessed.
const SAFE_LEN: usize = 16;
const CREATE_HINT: &str = "create one with `tidegate token new --account NAME`";

/// The sources of tokens. Only the hashes of the tokens stay in memory.
pub(crate) struct TokenSources {
    listed: Option<TokenTable>,
    file: Option<PathBuf>,
}

impl TokenSources {
    pub(crate) fn new(file: Option<PathBuf>) -> Result<Self, UsageError> {
        Self::of(secrets::variable(TOKENS_VARIABLE), file)
    }

    fn of(list: Option<String>, file: Option<PathBuf>) -> Result<Self, UsageError> {
        let listed = list.map(|list| {
            let mut table = TokenTable::default();
            read_list(&list, &mut table).map(|()| table)
        });
        Ok(Self {
            listed: listed.transpose()?,
            file,
        })
    }

    /// The tokens; the file is reloaded on SIGHUP. `None` if the server needs no tokens.
    pub(crate) fn open(self, reload: &mut Reload) -> anyhow::Result<Option<Tokens>> {
        if self.listed.is_none() && self.file.is_none() {
            return Ok(None);
        }
        let table = self.read()?;
        if table.is_empty() {
            return Err(UsageError::new(format!(
                "{} contains no tokens, so the server would refuse all clients",
                self.names()
            ))
            .hint(CREATE_HINT)
            .into());
        }
        tracing::info!(target: "audit", tokens = table.len(), accounts = table.accounts(), "tokens loaded");
        let tokens = Tokens::new(table);
        if self.file.is_some() {
            let handle = tokens.clone();
            let reload_file = move || {
                let table = self.read()?;
                tracing::info!(target: "audit", tokens = table.len(), accounts = table.accounts(), "tokens reloaded");
                handle.reload(table);
                Ok(())
            };
            reload.actions.push(("tokens", Box::new(reload_file)));
        }
        Ok(Some(tokens))
    }

    /// The tokens of both sources. After a reload the file may be empty, which revokes its tokens.
    fn read(&self) -> anyhow::Result<TokenTable> {
        let mut table = self.listed.clone().unwrap_or_default();
        if let Some(file) = &self.file {
            warn_if_open_to_others(file);
            read_file(file, &mut table)?;
        }
        Ok(table)
    }

    fn names(&self) -> String {
        let file = self
            .file
            .as_ref()
            .map(|file| format!("`{}`", file.display()));
        let list = self.listed.as_ref().map(|_| TOKENS_VARIABLE.to_owned());
        list.into_iter()
            .chain(file)
            .collect::<Vec<_>>()
            .join(" and ")
    }
}

/// `token:account` or `token:account:admin`, separated by commas.
fn read_list(list: &str, table: &mut TokenTable) -> Result<(), UsageError> {
    for (position, entry) in (1..).zip(list.split(',')) {
        let entry = entry.trim();
        if entry.is_empty() {
            continue;
        }
        let bad = |problem: &str| {
            UsageError::new(format!("entry {position} of {TOKENS_VARIABLE}: {problem}"))
        };
        let form = || bad("it must be `token:account` or `token:account:admin`").hint(CREATE_HINT);
        let mut parts = entry.split(':');
        let (token, account) = (
            parts.next().unwrap_or_default(),
            parts.next().ok_or_else(form)?,
        );
        let role = match (parts.next(), parts.next()) {
            (None, _) => Role::User,
            (Some("admin"), None) => Role::Admin,
            (Some(_), _) => return Err(form()),
        };
        check(token).map_err(|problem| bad(problem).hint(CREATE_HINT))?;
        if token.len() < SAFE_LEN {
            tracing::warn!(target: "audit", entry = position, "a token of {TOKENS_VARIABLE} has less than {SAFE_LEN} characters and can be guessed; {CREATE_HINT}");
        }
        let account = Account::parse(account).map_err(|error| bad(&error.to_string()))?;
        table
            .add(TokenDigest::of(token.as_bytes()), account, role)
            .map_err(|error| bad(&error.to_string()))?;
    }
    Ok(())
}

/// Checks that a text can be a token, which must fit in a header.
pub(crate) fn check(token: &str) -> Result<(), &'static str> {
    if token.is_empty() {
        Err("the token is empty")
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err("the token has characters that cannot be sent; use visible ASCII without spaces")
    } else {
        Ok(())
    }
}

/// Adds the tokens of a file to a table.
fn read_file(file: &Path, table: &mut TokenTable) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let usage = UsageError::new(format!(
            "failed to read the tokens file `{}`: {error}",
            file.display()
        ));
        usage.hint("create it with `tidegate token new --account NAME --file FILE`")
    })?;
    read_lines(&text, table).map_err(|(line, problem)| {
        let usage = UsageError::new(format!("`{}`, line {line}: {problem}", file.display()));
        usage
            .hint("write lines like `sha256:HASH ACCOUNT` or `sha256:HASH ACCOUNT admin`")
            .into()
    })
}

/// `sha256:HASH account` or `sha256:HASH account admin`; `#` begins a comment.
fn read_lines(text: &str, table: &mut TokenTable) -> Result<(), (usize, String)> {
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (hash, account, role) = match words[..] {
            [] => continue,
            [hash, account] => (hash, account, Role::User),
            [hash, account, "admin"] => (hash, account, Role::Admin),
            _ => {
                return Err((
                    number,
                    "it must be a hash, an account and optionally `admin`".to_owned(),
                ));
            }
        };
        let hex = hash
            .strip_prefix("sha256:")
            .ok_or_else(|| (number, "the hash must start with `sha256:`".to_owned()))?;
        let digest = TokenDigest::parse(hex).map_err(|error| (number, error.to_string()))?;
        let account = Account::parse(account).map_err(|error| (number, error.to_string()))?;
        table
            .add(digest, account, role)
            .map_err(|error| (number, error.to_string()))?;
    }
    Ok(())
}

/// The line of a token in a file.
pub(crate) fn line(token: &str, account: &Account, role: Role) -> String {
    let admin = if role == Role::Admin { " admin" } else { "" };
    format!(
        "sha256:{} {account}{admin}",
        TokenDigest::of(token.as_bytes())
    )
}

/// Appends a line to a tokens file. A new file is readable only for its owner.
pub(crate) fn append(file: &Path, line: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let mut table = TokenTable::default();
    if file.exists() {
        read_file(file, &mut table)?;
    }
    let write = || -> std::io::Result<()> {
        let mut opened = std::fs::OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(file)?;
        let lacks_newline = !matches!(std::fs::read(file)?.last(), None | Some(b'\n'));
        // One write, so that a server that reads the file sees the whole line or nothing.
        opened
            .write_all(format!("{}{line}\n", if lacks_newline { "\n" } else { "" }).as_bytes())?;
        opened.sync_all()
    };
    write().with_context(|| format!("failed to write to `{}`", file.display()))
}

/// The hashes are useless to a reader, but a user who can write the file can add a token.
fn warn_if_open_to_others(file: &Path) {
    if let Ok(metadata) = std::fs::metadata(file)
        && metadata.permissions().mode() & 0o077 != 0
    {
        tracing::warn!(file = %file.display(), "other users can read or change the tokens file; run `chmod 600` on it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef";
    const TWO: &str = "fedcba9876543210";

    fn list(text: &str) -> Result<TokenTable, String> {
        let mut table = TokenTable::default();
        read_list(text, &mut table)
            .map(|()| table)
            .map_err(|error| error.to_string())
    }

    fn lines(text: &str) -> Result<TokenTable, (usize, String)> {
        let mut table = TokenTable::default();
        read_lines(text, &mut table).map(|()| table)
    }

    #[test]
    fn a_list_has_tokens_accounts_and_admins() {
        let table = list(&format!(" {ONE}:a , {TWO}:b:admin,")).unwrap();
        assert_eq!((table.len(), table.accounts()), (2, 2));
    }

    #[test]
    fn mistakes_in_a_list_name_the_position_and_never_show_a_token() {
        for (text, position, problem) in [
            (format!("{ONE}:a,{TWO}"), 2, "`token:account`"),
            (format!("{ONE}:a:root"), 1, "`token:account`"),
            (format!("{ONE}:a:admin:x"), 1, "`token:account`"),
            (format!("{ONE}:"), 1, "empty"),
            (format!("{ONE}:a b"), 1, "' '"),
            (format!("{ONE}:a,{ONE}:b"), 2, "twice"),
            (":a".to_owned(), 1, "the token is empty"),
            (format!("{ONE} x:a"), 1, "visible ASCII"),
            (format!("{ONE}é:a"), 1, "visible ASCII"),
        ] {
            let error = list(&text).unwrap_err();
            assert!(
                error.contains(&format!("entry {position} of")) && error.contains(problem),
                "{text}: {error}"
            );
            assert!(!error.contains(ONE) && !error.contains(TWO), "{error}");
        }
    }

    #[test]
    fn a_file_has_hashes_comments_and_blank_lines() {
        let (account, other) = (Account::parse("a").unwrap(), Account::parse("b").unwrap());
        let (one, two) = (
            line(ONE, &account, Role::User),
            line(TWO, &other, Role::Admin),
        );
        let table = lines(&format!("# who\n\n  {one}  # the first\r\n{two}\n")).unwrap();
        assert_eq!((table.len(), table.accounts()), (2, 2));
        assert!(lines("# empty\n").unwrap().is_empty());
    }

    #[test]
    fn mistakes_in_a_file_name_the_line_and_never_show_a_token() {
        let good = line(ONE, &Account::parse("a").unwrap(), Role::User);
        for bad in [
            format!("{TWO} b"),
            "sha256:12 b".to_owned(),
            format!("{good} root"),
            good.replace(" a", " a/b"),
            good.clone(),
            TWO.into(),
        ] {
            let (number, what) = lines(&format!("{good}\n#\n{bad}\n")).unwrap_err();
            assert_eq!(number, 3, "{bad}: {what}");
            assert!(!what.contains(TWO), "{what}");
        }
    }

    #[test]
    fn a_new_line_starts_after_a_line_without_newline() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        let account = Account::parse("a").unwrap();
        std::fs::write(&file, line(ONE, &account, Role::User)).unwrap();
        append(&file, &line(TWO, &account, Role::Admin)).unwrap();
        assert_eq!(
            lines(&std::fs::read_to_string(&file).unwrap())
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn list_and_file_are_combined_and_must_not_overlap() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        append(&file, &line(ONE, &Account::parse("a").unwrap(), Role::User)).unwrap();
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let both = |list: &str| {
            TokenSources::of(Some(list.into()), Some(file.clone()))
                .unwrap()
                .read()
        };
        assert_eq!(both(&format!("{TWO}:b")).unwrap().len(), 2);
        assert!(both(&format!("{ONE}:b")).is_err());
    }

    #[test]
    fn an_empty_list_of_tokens_is_an_error() {
        let open = |list: Option<&str>| {
            TokenSources::of(list.map(Into::into), None)
                .unwrap()
                .open(&mut Reload::default())
        };
        assert!(open(None).unwrap().is_none());
        assert!(open(Some("")).is_err());
        assert!(open(Some(&format!("{ONE}:a"))).unwrap().is_some());
    }
}
