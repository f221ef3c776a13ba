//! Parses values with a unit, as in flags and configuration files: `2s`, `500ms`, `100MiB`, `600/min`.

use std::time::Duration;

use crate::rate_counter::Rate;

/// A duration such as `2s`, `500ms`, `1m 30s`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|error| format!("{error}; write a duration such as `30s`"));
    }
    let signed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "write a duration such as `30s` or `500ms`".to_owned())?;
    Duration::try_from(signed).map_err(|_| "a duration cannot be negative".to_owned())
}

/// A duration that is not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() {
        Err("it must be longer than 0, such as `30s`".to_owned())
    } else {
        Ok(duration)
    }
}

/// A rate such as `600/min`, `10/s` or `5000/h`.
pub fn rate(text: &str) -> Result<Rate, String> {
    let invalid = || "write a rate such as `600/min` or `10/s`".to_owned();
    let (count, unit) = text.split_once('/').ok_or_else(invalid)?;
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1,
        "m" | "min" | "minute" => 60,
        "h" | "hour" => 60 * 60,
        _ => return Err(invalid()),
    };
    match count.trim().parse() {
        Ok(0) => {
            Err("a rate of 0 would refuse all requests; omit the option for no limit".to_owned())
        }
        Ok(count) => Ok(Rate {
            count,
            per: Duration::from_secs(seconds),
        }),
        Err(_) => Err(invalid()),
    }
}

/// A size such as `100MiB`, `2GB` or a bare number of bytes.
pub fn size(text: &str) -> Result<usize, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: usize = number
        .parse()
        .map_err(|_| "write a size such as `100MiB`".to_owned())?;
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000 * 1000,
        "gb" => 1000 * 1000 * 1000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        other => return Err(format!("`{other}` is not a unit; use B, KiB, MiB or GiB")),
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| "the size is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("-1s").is_err() && duration("soon").is_err() && duration("-3").is_err());
        assert!(
            duration("0").is_ok()
                && positive_duration("0").is_err()
                && positive_duration("0.1").is_ok()
        );
    }

    #[test]
    fn rates() {
        let rate_of = |count, seconds| {
            Ok(Rate {
                count,
                per: Duration::from_secs(seconds),
            })
        };
        assert_eq!(
            (rate("600/min"), rate("10/s"), rate("5 / h")),
            (rate_of(600, 60), rate_of(10, 1), rate_of(5, 3600))
        );
        assert!(
            rate("600").is_err()
                && rate("0/s").is_err()
                && rate("-1/s").is_err()
                && rate("1/day").is_err()
        );
    }

    #[test]
    fn sizes() {
        assert_eq!(size("100MiB"), Ok(104_857_600));
        assert_eq!(size("5"), Ok(5));
        assert!(size("MiB").is_err() && size("5 parsec").is_err());
    }
}
