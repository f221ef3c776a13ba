//! The API key that `runpod config` stored in `~/.runpod/config.toml`.

/// The key of the profile `default`.
pub(crate) fn key() -> Option<String> {
    let file = std::env::home_dir()?.join(".runpod/config.toml");
    key_in(&std::fs::read_to_string(file).ok()?)
}

fn key_in(text: &str) -> Option<String> {
    let profiles: toml::Table = text.parse().ok()?;
    let key = profiles.get("default")?.get("api_key")?.as_str()?;
    Some(key.to_owned()).filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_the_default_profile() {
        let text = "# mine\n[other]\napi_key = \"no\"\n\n[default] # this one\nname='x'\napi_key = \"rpa_1=2\" # old\n[last]\napi_key='z'\n";
        assert_eq!(key_in(text).as_deref(), Some("rpa_1=2"));
        assert_eq!(key_in("[default]\r\napi_key='k'\r\n").as_deref(), Some("k"));
    }

    #[test]
    fn an_invalid_or_missing_key_is_none() {
        for text in [
            "",
            "api_key = \"k\"",
            "[default]\n",
            "[default]\napi_key = \"\"",
            "[default]\napi_key = 5",
            "[other]\napi_key = 'k'",
            "\0\0[",
        ] {
            assert_eq!(key_in(text), None, "{text:?}");
        }
        assert_eq!(key_in("[default]\n[other]\napi_key = 'k'"), None);
    }
}
