//! The line beside the state of a model: what its setup does, or why the model is not available.

use tidegate_core::health::{Health, HealthReport, error_line};

/// The most characters of the line.
const MAX_DETAIL: usize = 500;

/// One line about a model that is not ready: the last line of its setup, its error, or why it is not available.
pub(super) fn detail(report: &HealthReport) -> Option<String> {
    let logs = report.setup.as_ref().map(|setup| setup.logs.as_str());
    // One line only: a whole traceback is for administrators.
    let error = || report.health_error.as_deref().and_then(last_line);
    let text = match report.health {
        Health::Starting => logs.and_then(last_line).or_else(error),
        Health::SetupFailed => logs.and_then(error_line).and_then(last_line).or_else(error),
        Health::Ready | Health::Busy | Health::Defunct | Health::Unknown => error(),
    };
    text.map(|text| text.chars().take(MAX_DETAIL).collect())
}

/// The last line that a terminal would show: a progress bar writes its line again after each carriage return.
fn last_line(text: &str) -> Option<String> {
    let mut lines = text.rsplit(['\n', '\r']).map(without_colors);
    lines.find(|line| !line.is_empty())
}

/// A line without the control sequences of terminals and without space around it.
fn without_colors(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A sequence `ESC [ parameters` ends with a letter or `@` to `~`; others have one character.
        let end = match part.strip_prefix('[') {
            Some(rest) => rest.find(|c| ('@'..='~').contains(&c)).map(|end| end + 2),
            None => part.chars().next().map(char::len_utf8),
        };
        text.push_str(end.and_then(|end| part.get(end..)).unwrap_or_default());
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tidegate_core::health::{SetupReport, SetupStatus};

    use super::*;

    fn report(health: Health, logs: &str, health_error: Option<&str>) -> HealthReport {
        HealthReport {
            health,
            setup: Some(SetupReport {
                started_at: Timestamp::UNIX_EPOCH,
                completed_at: None,
                status: SetupStatus::Starting,
                logs: logs.to_owned(),
            }),
            health_error: health_error.map(str::to_owned),
            python: None,
            sdk: None,
        }
    }

    #[test]
    fn the_detail_is_the_last_line_of_the_setup_or_the_error() {
        let loading = report(Health::Starting, "one\nloading 50 %\n\n", None);
        assert_eq!(detail(&loading).as_deref(), Some("loading 50 %"));
        let failed = report(Health::SetupFailed, "Traceback\nKeyError: 'x'", None);
        assert_eq!(detail(&failed).as_deref(), Some("KeyError: 'x'"));
        let advice = "Traceback\nKeyError: 'x'\n  needs:\n    y\n  try: z\n\n";
        let advised = report(Health::SetupFailed, advice, None);
        assert_eq!(detail(&advised).as_deref(), Some("KeyError: 'x'"));
        let indented = report(Health::SetupFailed, "\n  only this", None);
        assert_eq!(detail(&indented).as_deref(), Some("only this"));
        let bar = "start\n  0%|    |\r 50%|##  | \x1b[32mfine\x1b[0m\x1b[K\r";
        let progress = report(Health::Starting, bar, None);
        assert_eq!(detail(&progress).as_deref(), Some("50%|##  | fine"));
        let coloured = report(Health::SetupFailed, "\x1b[31mKeyError: 'x'\x1b[0m", None);
        assert_eq!(detail(&coloured).as_deref(), Some("KeyError: 'x'"));
        let again = report(Health::Starting, "", Some("exited with status 1"));
        assert_eq!(detail(&again).as_deref(), Some("exited with status 1"));
        assert_eq!(detail(&report(Health::Ready, "loaded", None)), None);
        let unhealthy = report(Health::Ready, "loaded", Some("no GPU"));
        assert_eq!(detail(&unhealthy).as_deref(), Some("no GPU"));
    }
}
