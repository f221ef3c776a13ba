//! Quotes words for the commands that messages show and that users paste into a shell.

use std::path::Path;

/// Quotes a value, so that a shell expands nothing in it.
pub(crate) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// A path as a word of a command, quoted only if the shell would split or expand it.
pub(crate) fn word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:,@%=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into_owned()
    } else {
        quoted(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_original_value() {
        assert_eq!(quoted("a$ID?b&c"), "'a$ID?b&c'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn only_paths_that_need_it_are_quoted() {
        for plain in [".", "/srv/models/a-b_c.1", "modèle"] {
            assert_eq!(word(Path::new(plain)), plain);
        }
        assert_eq!(word(Path::new("a b")), "'a b'");
        assert_eq!(word(Path::new("a$b")), "'a$b'");
        assert_eq!(word(Path::new("~x")), "'~x'");
    }
}
