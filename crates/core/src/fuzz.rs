//! Fuzz targets: see `docs/fuzzing.md`.

use serde_json::{Map, Value};
use tidegate_fuzzing::parts;

use crate::{JobId, Metric, MetricMode, metrics};

/// Some characters that nobody sees: a soft hyphen, a joiner, a mark that turns text around, a byte order
/// mark, a tag.
const UNSEEN: [char; 5] = ['\u{AD}', '\u{200D}', '\u{202E}', '\u{FEFF}', '\u{E0041}'];

/// What may be an id is short, can be a path segment and shows in a log as what it is.
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
            assert!(!text.contains(UNSEEN), "it looks like another id");
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
            "the error cannot be shown: {error:?}"
        ),
    }
}

/// Notes in any order make one object, and each touches only its own place.
///
/// A part is a note: `=`, `+` or `>` for the mode, the name, a line break, the value.
pub fn fold(input: &[u8]) {
    let mut all = Map::new();
    for metric in parts(input).filter_map(note) {
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
            "a note has touched what it does not name"
        );
        check_place(&all, &metric);
        let text = serde_json::to_string(&all).expect("an object can be written");
        assert_eq!(
            serde_json::from_str::<Map<String, Value>>(&text)
                .ok()
                .as_ref(),
            Some(&all),
            "it reads back as it was written"
        );
    }
}

fn note(part: &[u8]) -> Option<Metric> {
    /// The runtime lets no deeper names through.
    const DEEPEST: usize = 8;
    let text = std::str::from_utf8(part).ok()?;
    let (name, value) = text.split_once('\n')?;
    let mode = match name.as_bytes().first()? {
        b'=' => MetricMode::Replace,
        b'+' => MetricMode::Increment,
        b'>' => MetricMode::Append,
        _ => return None,
    };
    let value: Value = serde_json::from_str(value).ok()?;
    let shallow = depth(&value) < 100 && name.split('.').count() <= DEEPEST;
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

fn check_place(all: &Map<String, Value>, metric: &Metric) {
    let segments: Vec<&str> = metric.name.split('.').collect();
    let (last, way) = segments
        .split_last()
        .expect("a split has at least one part");
    let place = way
        .iter()
        .try_fold(all, |place, segment| place.get(*segment)?.as_object())
        .expect("the way to the note is there");
    let there = place.get(*last);
    match metric.mode {
        MetricMode::Replace if metric.value.is_null() => assert_eq!(there, None),
        MetricMode::Replace => assert_eq!(there, Some(&metric.value)),
        MetricMode::Increment => assert!(there.is_some(), "a sum is lost"),
        MetricMode::Append => assert_eq!(
            there.and_then(Value::as_array).and_then(|list| list.last()),
            Some(&metric.value)
        ),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn job_ids_hold_for_made_inputs() {
        short_run("job_id", super::job_id);
    }

    #[test]
    fn folding_metrics_holds_for_made_inputs() {
        short_run("fold", super::fold);
    }
}
