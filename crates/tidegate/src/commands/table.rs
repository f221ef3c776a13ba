//! Text in columns and short durations, for lists on the terminal.

/// One line per row; each column is as wide as its longest cell.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}", width = *width))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// A duration as short text.
pub(crate) fn short_duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..10 => format!("{:.1}s", seconds.max(0.0)),
        10..60 => format!("{whole}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        86_400.. => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [
            (0.04, "0.0s"),
            (9.96, "10.0s"),
            (59.9, "59s"),
            (61.0, "1m01s"),
            (7320.0, "2h02m"),
            (90_000.0, "1d01h"),
        ] {
            assert_eq!(short_duration(seconds), text);
        }
        assert_eq!(short_duration(-1.0), "0.0s");
    }
}
