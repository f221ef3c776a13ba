//! How the notes of a model add up to one object.

use serde_json::{Map, Number, Value};

use crate::{Metric, MetricMode};

/// Puts `metric` into `metrics`. Dots in its name walk into nested objects; a plain value on the way
/// gives place to an object, as the later note is the one that counts.
pub fn fold(metrics: &mut Map<String, Value>, metric: &Metric) {
    let mut place = metrics;
    let mut segments = metric.name.split('.').peekable();
    while let Some(segment) = segments.next() {
        if segments.peek().is_none() {
            return join(place, segment, metric);
        }
        let next = place
            .entry(segment)
            .or_insert_with(|| Value::Object(Map::new()));
        if !next.is_object() {
            *next = Value::Object(Map::new());
        }
        place = next.as_object_mut().expect("it was just made an object");
    }
}

fn join(place: &mut Map<String, Value>, key: &str, metric: &Metric) {
    let value = metric.value.clone();
    match metric.mode {
        MetricMode::Replace if value.is_null() => {
            place.remove(key);
        }
        MetricMode::Replace => {
            place.insert(key.to_owned(), value);
        }
        MetricMode::Increment => {
            let sum = place
                .get(key)
                .map_or_else(|| value.clone(), |old| add(old, &value));
            place.insert(key.to_owned(), sum);
        }
        MetricMode::Append => match place.get_mut(key) {
            Some(Value::Array(list)) => list.push(value),
            Some(old) => {
                let first = old.take();
                *old = Value::Array(vec![first, value]);
            }
            None => {
                place.insert(key.to_owned(), Value::Array(vec![value]));
            }
        },
    }
}

fn add(old: &Value, new: &Value) -> Value {
    if let (Some(a), Some(b)) = (old.as_i64(), new.as_i64())
        && let Some(sum) = a.checked_add(b)
    {
        return sum.into();
    }
    let sum = old.as_f64().unwrap_or(0.0) + new.as_f64().unwrap_or(0.0);
    Number::from_f64(sum).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn folded(notes: &[(&str, Value, MetricMode)]) -> Value {
        let mut metrics = Map::new();
        for (name, value, mode) in notes {
            fold(
                &mut metrics,
                &Metric {
                    name: (*name).to_owned(),
                    value: value.clone(),
                    mode: *mode,
                },
            );
        }
        Value::Object(metrics)
    }

    #[test]
    fn modes_and_dots() {
        use MetricMode::*;
        let seen = folded(&[
            ("a", json!(1), Replace),
            ("a", json!(2), Replace),
            ("n", json!(1), Increment),
            ("n", json!(2), Increment),
            ("f", json!(0.5), Increment),
            ("f", json!(1), Increment),
            ("l", json!("x"), Append),
            ("l", json!("y"), Append),
            ("s", json!(1), Replace),
            ("s", json!(2), Append),
            ("t.inner.deep", json!(true), Replace),
            ("gone", json!(1), Replace),
            ("gone", json!(null), Replace),
            ("p", json!(1), Replace),
            ("p.q", json!(2), Replace),
        ]);
        let want = json!({"a": 2, "n": 3, "f": 1.5, "l": ["x", "y"], "s": [1, 2], "t": {"inner": {"deep": true}}, "p": {"q": 2}});
        assert_eq!(seen, want);
    }
}
