//! Fuzz targets: see `docs/fuzzing.md`.

use serde_json::{Map, Value};
use tidegate_fuzzing::parts;

use crate::{JobId, Metric, MetricMode, metrics};

/// Some invisible characters: a soft hyphen, a joiner, a mark that changes the direction of text, a
/// byte order mark, a tag.
const INVISIBLE: [char; 5] = ['\u{AD}', '\u{200D}', '\u{202E}', '\u{FEFF}', '\u{E0041}'];

/// A valid id is short, can be a path segment and is unambiguous in a log.
pub fn job_id(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match JobId::parse(&text) {
        Ok(id) => {
            assert!(
                (1..=128).contains(&text.len()),
                "an id of {} bytes",
                text.len()
            );
            assert!(
                !text
                    .chars()
                    .any(|c| c.is_control() || c == '/' || c == '\\'),
                "a bad character"
            );
            assert!(!text.contains(INVISIBLE), "an invisible character");
            assert_eq!(
                std::path::Path::new(&*text).file_name(),
                Some(text.as_ref().as_ref()),
                "not one path segment"
            );
            assert_eq!(id.to_string(), text);
            assert_eq!(JobId::parse(id.as_str()), Ok(id));
        }
        Err(error) => assert!(
            !error.to_string().chars().any(char::is_control),
            "the error contains a control character: {error:?}"
        ),
    }
}

/// Metrics in any order can be combined into one object, and each changes only the value that it
/// names.
///
/// A part is a metric: `=`, `+` or `>` for the mode, the name, a line break, the value.
pub fn fold(input: &[u8]) {
    let mut all = Map::new();
    for metric in parts(input).filter_map(parse_metric) {
        let before = all.clone();
        metrics::fold(&mut all, &metric);
        let top = metric.name.split('.').next().unwrap_or_default();
        let others = |map: &Map<String, Value>| {
            map.iter()
                .filter(|(key, _)| *key != top)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            others(&before),
            others(&all),
            "the metric changed a value that it does not name"
        );
        check_value(&all, &metric);
        let text = serde_json::to_string(&all).expect("a JSON object can be serialized");
        assert_eq!(
            serde_json::from_str::<Map<String, Value>>(&text)
                .ok()
                .as_ref(),
            Some(&all),
            "the object changes when it is serialized and parsed"
        );
    }
}

fn parse_metric(part: &[u8]) -> Option<Metric> {
    /// The runtime rejects names with more segments.
    const MAX_SEGMENTS: usize = 8;
    let text = std::str::from_utf8(part).ok()?;
    let (name, value) = text.split_once('\n')?;
    let mode = match name.as_bytes().first()? {
        b'=' => MetricMode::Replace,
        b'+' => MetricMode::Increment,
        b'>' => MetricMode::Append,
        _ => return None,
    };
    let value: Value = serde_json::from_str(value).ok()?;
    let shallow = depth(&value) < 100 && name.split('.').count() <= MAX_SEGMENTS;
    shallow.then(|| Metric {
        name: name[1..].to_owned(),
        value,
        mode,
    })
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn check_value(all: &Map<String, Value>, metric: &Metric) {
    let segments: Vec<&str> = metric.name.split('.').collect();
    let (last, path) = segments
        .split_last()
        .expect("a split has at least one part");
    let parent = path
        .iter()
        .try_fold(all, |object, segment| object.get(*segment)?.as_object())
        .expect("every object on the path exists");
    let value = parent.get(*last);
    match metric.mode {
        MetricMode::Replace if metric.value.is_null() => assert_eq!(value, None),
        MetricMode::Replace => assert_eq!(value, Some(&metric.value)),
        MetricMode::Increment => assert!(value.is_some(), "the sum is missing"),
        MetricMode::Append => assert_eq!(
            value.and_then(Value::as_array).and_then(|list| list.last()),
            Some(&metric.value)
        ),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn job_ids_hold_for_generated_inputs() {
        short_run("job_id", super::job_id);
    }

    #[test]
    fn folding_metrics_holds_for_generated_inputs() {
        short_run("fold", super::fold);
    }
}
