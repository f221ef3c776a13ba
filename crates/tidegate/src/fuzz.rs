//! Fuzz targets: see `docs/fuzzing.md`. A program has no library to link, so the fuzzer compiles this file
//! and the files it tests again.

use std::path::Path;

use crate::{cog_yaml as yaml, units as unit};

/// Every text is parsed or refused with a message that names the location; parsed variables are valid.
pub(crate) fn cog_yaml(input: &[u8]) {
    let file = Path::new("cog.yaml");
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let read =
        yaml::parse(file, text).and_then(|read| yaml::environment(read.environment, file, text));
    match read {
        Ok(variables) => {
            for (name, value) in variables {
                let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
                assert!(
                    !name.is_empty() && !name.contains(['=', '\0']),
                    "no process can have the variable {name:?}"
                );
                assert!(
                    !value.contains('\0'),
                    "no process can have the value {value:?}"
                );
            }
        }
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.starts_with("cog.yaml:") && message.len() > "cog.yaml: ".len(),
                "{message:?}"
            );
        }
    }
}

/// A duration or a size is parsed, or refused with a message.
pub(crate) fn units(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    for message in [unit::duration(text).err(), unit::size(text).err()]
        .into_iter()
        .flatten()
    {
        assert!(!message.is_empty());
    }
    if let Ok(bytes) = unit::size(text) {
        assert_eq!(unit::size(&bytes.to_string()), Ok(bytes));
    }
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn cog_yaml_holds_for_generated_inputs() {
        short_run("cog_yaml", super::cog_yaml);
    }

    #[test]
    fn units_hold_for_generated_inputs() {
        short_run("units", super::units);
    }
}
