//! Parses the values of flags: those with a unit, such as `2s` and `100MiB`, and plain numbers.

pub(crate) use tidegate_core::units::{duration, positive_duration, rate, size};

/// A number that is not zero.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("write a number above 0".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// A port. An empty environment variable means the default.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        Ok(5000)
    } else {
        text.parse()
            .map_err(|_| "write a number from 0 to 65535".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(count("7"), Ok(7));
        assert!(count("0").is_err() && count("-1").is_err() && count("many").is_err());
    }
}
