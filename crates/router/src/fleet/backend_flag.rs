//! The flag `--backend [KIND=]URL`: a backend without a file.

use std::str::FromStr;

use super::endpoint::{BackendKind, BackendUrl, InvalidBackendUrl};
use super::syntax::closest;

/// A backend of the command line. Its models are those that it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendFlag {
    /// The protocol; `None` asks the backend.
    pub kind: Option<BackendKind>,
    /// Where it is.
    pub url: BackendUrl,
}

/// The text is not `[KIND=]URL`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBackendFlag {
    /// The URL.
    #[error(transparent)]
    Url(#[from] InvalidBackendUrl),
    /// The kind.
    #[error("there is no kind `{name}`; {fix}")]
    Kind {
        /// What was written.
        name: String,
        /// What to write.
        fix: String,
    },
}

impl FromStr for BackendFlag {
    type Err = InvalidBackendFlag;

    fn from_str(text: &str) -> Result<Self, InvalidBackendFlag> {
        // A `=` can also be part of the path of a URL.
        let (kind, url) = match text.split_once('=') {
            Some((kind, url)) if !kind.contains("://") => (Some(kind), url),
            _ => (None, text),
        };
        let kind = kind.map(|name| {
            BackendKind::parse(name).ok_or_else(|| InvalidBackendFlag::Kind {
                name: name.to_owned(),
                fix: kind_fix(name),
            })
        });
        Ok(Self {
            kind: kind.transpose()?,
            url: BackendUrl::parse(url)?,
        })
    }
}

/// Servers that speak OpenAI's API.
const OPENAI_SERVERS: [&str; 6] = [
    "vllm",
    "sglang",
    "llama.cpp",
    "llamacpp",
    "ollama",
    "lmdeploy",
];

/// How to write a kind.
pub(super) fn kind_fix(name: &str) -> String {
    if OPENAI_SERVERS.contains(&name.to_ascii_lowercase().as_str()) {
        return format!("{name} speaks OpenAI's API: write `openai`");
    }
    match closest(name, BackendKind::ALL.iter().map(|kind| kind.name())) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let names = BackendKind::ALL.map(BackendKind::name);
            format!("the kinds are {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_an_optional_kind_and_a_url() {
        let of = |text: &str| text.parse::<BackendFlag>();
        let plain = of("http://10.0.0.5:8000").unwrap();
        assert_eq!(plain.kind, None);
        let cog = of("cog=http://10.0.0.5:5000/a=b").unwrap();
        assert_eq!(cog.kind, Some(BackendKind::Cog));
        assert_eq!(cog.url.prefix, "/a=b");
        assert_eq!(of("http://h:1/a=b").unwrap().kind, None);
        assert_eq!(
            of("cogs=http://h").unwrap_err().to_string(),
            "there is no kind `cogs`; did you mean `cog`?"
        );
        assert!(of("cog=10.0.0.5").is_err());
    }
}
