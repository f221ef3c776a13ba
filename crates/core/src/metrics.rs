//! Combines the metrics that a model records into one JSON object.

use serde_json::{Map, Number, Value};

use crate::{Metric, MetricMode};

/// Adds `metric` to `metrics`. Dots in its name lead into nested objects. A value on the path that
/// is not an object is replaced by one, because the later metric wins.
pub fn fold(metrics: &mut Map<String, Value>, metric: &Metric) {
    let mut object = metrics;
    let mut segments = metric.name.split('.').peekable();
    while let Some(segment) = segments.next() {
        if segments.peek().is_none() {
            return apply(object, segment, metric);
        }
        let next = object
            .entry(segment)
            .or_insert_with(|| Value::Object(Map::new()));
        if !next.is_object() {
            *next = Value::Object(Map::new());
        }
        object = next
            .as_object_mut()
            .expect("the value was just made an object");
    }
}

fn apply(object: &mut Map<String, Value>, key: &str, metric: &Metric) {
    let value = metric.value.clone();
    match metric.mode {
        MetricMode::Replace if value.is_null() => {
            object.remove(key);
        }
        MetricMode::Replace => {
            object.insert(key.to_owned(), value);
        }
        MetricMode::Increment => {
            let sum = match object.get(key) {
                None => value,
                Some(old) if old.is_number() => add(old, &value),
                // As in Cog, a list that was appended to cannot be incremented.
                Some(_) => return,
            };
            object.insert(key.to_owned(), sum);
        }
        MetricMode::Append => match object.get_mut(key) {
            Some(Value::Array(list)) => list.push(value),
            Some(old) => {
                let first = old.take();
                *old = Value::Array(vec![first, value]);
            }
            None => {
                object.insert(key.to_owned(), Value::Array(vec![value]));
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

    fn folded(metrics: &[(&str, Value, MetricMode)]) -> Value {
        let mut object = Map::new();
        for (name, value, mode) in metrics {
            fold(
                &mut object,
                &Metric {
                    name: (*name).to_owned(),
                    value: value.clone(),
                    mode: *mode,
                },
            );
        }
        Value::Object(object)
    }

    #[test]
    fn modes_combine_values_and_dots_nest_objects() {
        use MetricMode::*;
        let combined = folded(&[
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
            ("s", json!(3), Increment),
            ("t.inner.deep", json!(true), Replace),
            ("gone", json!(1), Replace),
            ("gone", json!(null), Replace),
            ("p", json!(1), Replace),
            ("p.q", json!(2), Replace),
        ]);
        let expected = json!({"a": 2, "n": 3, "f": 1.5, "l": ["x", "y"], "s": [1, 2], "t": {"inner": {"deep": true}}, "p": {"q": 2}});
        assert_eq!(combined, expected);
    }
}
