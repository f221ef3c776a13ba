//! The GPUs that the user gives to a server (`--gpus`).

use std::fmt;
use std::str::FromStr;

use tidegate_core::gpu::Gpu;

use crate::visibility::named;

/// Before a list of one index, to tell it from a number of GPUs.
const LIST_PREFIX: &str = "device=";

/// Which of the visible GPUs models may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuSelection {
    /// All of them.
    All,
    /// None of them.
    None,
    /// The first ones.
    Count(usize),
    /// Those with these indices or UUIDs.
    Listed(Vec<String>),
}

/// The selection cannot be satisfied.
#[derive(Debug, PartialEq, Eq)]
pub struct SelectionError(String);

impl fmt::Display for SelectionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for SelectionError {}

impl GpuSelection {
    /// The selected GPUs.
    pub fn select(&self, visible: &[Gpu]) -> Result<Vec<Gpu>, SelectionError> {
        match self {
            Self::All => Ok(visible.to_vec()),
            Self::None => Ok(Vec::new()),
            Self::Count(count) => match visible.get(..*count) {
                Some(first) => Ok(first.to_vec()),
                None => Err(SelectionError(format!(
                    "`--gpus {count}` asks for {count} GPUs, and {}",
                    describe(visible)
                ))),
            },
            Self::Listed(entries) => listed(entries, visible),
        }
    }
}

fn listed(entries: &[String], visible: &[Gpu]) -> Result<Vec<Gpu>, SelectionError> {
    let mut selected: Vec<Gpu> = Vec::new();
    for entry in entries {
        let mut is_known = false;
        for gpu in named(visible, entry) {
            is_known = true;
            if !selected.contains(gpu) {
                selected.push(gpu.clone());
            }
        }
        if !is_known {
            return Err(SelectionError(format!(
                "`--gpus` names the GPU `{entry}`, and {}",
                describe(visible)
            )));
        }
    }
    Ok(selected)
}

/// What a user can select from.
fn describe(visible: &[Gpu]) -> String {
    match visible {
        [] => "this server sees no GPU".to_owned(),
        [one] => format!("this server sees only the GPU {}", one.id),
        several => {
            let ids: Vec<&str> = several.iter().map(|gpu| gpu.id.as_str()).collect();
            format!("this server sees {} GPUs: {}", ids.len(), ids.join(", "))
        }
    }
}

impl FromStr for GpuSelection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text {
            "all" => return Ok(Self::All),
            "none" => return Ok(Self::None),
            _ => {}
        }
        if let Ok(count) = text.parse() {
            return Ok(Self::Count(count));
        }
        let list = text.strip_prefix(LIST_PREFIX).unwrap_or(text);
        let entries: Vec<String> = list
            .split(',')
            .map(|entry| entry.trim().to_owned())
            .filter(|entry| !entry.is_empty())
            .collect();
        let is_valid = |entry: &String| {
            entry.parse::<u32>().is_ok() || entry.starts_with("GPU-") || entry.starts_with("MIG-")
        };
        if entries.is_empty() || !entries.iter().all(is_valid) {
            return Err(
                "write `all`, `none`, a number of GPUs such as `2`, or a list of indices or UUIDs such as `0,2` or `device=1`"
                    .to_owned(),
            );
        }
        Ok(Self::Listed(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::tests::machine;

    fn select(text: &str) -> Result<Vec<String>, String> {
        let visible: Vec<Gpu> = machine().usable().cloned().collect();
        let selection: GpuSelection = text.parse()?;
        match selection.select(&visible) {
            Ok(gpus) => Ok(gpus.iter().map(|gpu| gpu.id.to_string()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn selections_of_a_machine_with_two_cards_and_two_parts() {
        for (text, expected) in [
            ("all", &["0", "1", "MIG-a", "MIG-b"][..]),
            ("none", &[]),
            ("0", &[]),
            ("2", &["0", "1"]),
            ("1,0", &["1", "0"]),
            ("0,", &["0"]),
            ("device=1", &["1"]),
            ("GPU-11", &["1"]),
            ("0,2", &["0", "MIG-a", "MIG-b"]),
            ("MIG-b", &["MIG-b"]),
        ] {
            assert_eq!(select(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, expected) in [
            (
                "5",
                "asks for 5 GPUs, and this server sees 4 GPUs: 0, 1, MIG-a, MIG-b",
            ),
            ("0,3", "names the GPU `3`"),
            ("many", "write `all`"),
            ("", "write `all`"),
        ] {
            let error = select(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = GpuSelection::Count(1).select(&[]).unwrap_err().to_string();
        assert!(error.ends_with("this server sees no GPU"), "{error}");
    }
}
