//! The number of tokens of a generation, and why it ended, as far as the metrics of a model say so.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The names of the metrics with which models report the tokens of the prompt.
const PROMPT_METRICS: [&str; 4] = [
    "input_token_count",
    "prompt_tokens",
    "input_tokens",
    "prompt_token_count",
];
/// The names of the metrics with which models report the tokens of the generated text.
const COMPLETION_METRICS: [&str; 4] = [
    "output_token_count",
    "completion_tokens",
    "output_tokens",
    "completion_token_count",
];
/// The name of the metric with which models report why a text ended.
const FINISH_METRIC: &str = "finish_reason";

/// The number of tokens of a generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The tokens of the prompt.
    pub prompt_tokens: u64,
    /// The tokens of the generated text.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
}

impl Usage {
    /// The usage with these numbers of tokens.
    pub fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
        }
    }

    /// What the metrics of a job say; `None` if they say nothing about tokens. A number that is not
    /// among them counts as 0.
    pub fn from_metrics(metrics: &Map<String, Value>) -> Option<Self> {
        let (prompt, completion) = (
            first_of(metrics, &PROMPT_METRICS),
            first_of(metrics, &COMPLETION_METRICS),
        );
        (prompt.is_some() || completion.is_some())
            .then(|| Self::new(prompt.unwrap_or(0), completion.unwrap_or(0)))
    }

    /// The usage of both together.
    pub fn plus(self, other: Self) -> Self {
        Self::new(
            self.prompt_tokens.saturating_add(other.prompt_tokens),
            self.completion_tokens
                .saturating_add(other.completion_tokens),
        )
    }
}

fn first_of(metrics: &Map<String, Value>, names: &[&str]) -> Option<u64> {
    let number = |name: &&str| {
        let value = metrics.get(*name)?;
        value.as_u64().or_else(|| {
            // Python models often count in floats.
            let float = value.as_f64().filter(|float| *float >= 0.0)?;
            Some(float as u64)
        })
    };
    names.iter().find_map(number)
}

/// Why a generated text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done, or a stop string was found.
    Stop,
    /// The text has the most tokens that were allowed.
    Length,
    /// The text was cut because of its content.
    ContentFilter,
}

impl FinishReason {
    /// The reason that the metrics of a job give. Without a metric `finish_reason`, the length is known
    /// to be the reason only if the model has reported as many tokens as were allowed.
    pub fn from_metrics(metrics: &Map<String, Value>, max_tokens: Option<u64>) -> Self {
        let reported = metrics.get(FINISH_METRIC).cloned();
        if let Some(reason) = reported.and_then(|reason| serde_json::from_value(reason).ok()) {
            return reason;
        }
        match (first_of(metrics, &COMPLETION_METRICS), max_tokens) {
            (Some(generated), Some(most)) if generated >= most => Self::Length,
            _ => Self::Stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metrics(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn tokens_are_read_from_known_metrics() {
        for (value, expected) in [
            (
                json!({"input_token_count": 3, "output_token_count": 4}),
                Some((3, 4, 7)),
            ),
            (
                json!({"prompt_tokens": 1.0, "completion_tokens": 2.0}),
                Some((1, 2, 3)),
            ),
            (json!({"output_tokens": 5}), Some((0, 5, 5))),
            (json!({"tokens": 5, "input_tokens": "many"}), None),
            (json!({"prompt_tokens": -1}), None),
            (json!({}), None),
        ] {
            let usage = Usage::from_metrics(&metrics(value.clone()));
            let numbers = usage.map(|used| {
                (
                    used.prompt_tokens,
                    used.completion_tokens,
                    used.total_tokens,
                )
            });
            assert_eq!(numbers, expected, "{value}");
        }
    }

    #[test]
    fn the_length_is_the_reason_only_if_it_is_known() {
        use FinishReason::{ContentFilter, Length, Stop};
        for (value, max_tokens, expected) in [
            (json!({"output_token_count": 8}), Some(8), Length),
            (json!({"output_token_count": 7}), Some(8), Stop),
            (json!({"output_token_count": 8}), None, Stop),
            (json!({}), Some(8), Stop),
            (json!({"finish_reason": "length"}), None, Length),
            (
                json!({"finish_reason": "stop", "output_token_count": 8}),
                Some(8),
                Stop,
            ),
            (
                json!({"finish_reason": "content_filter"}),
                None,
                ContentFilter,
            ),
            (json!({"finish_reason": "eos"}), None, Stop),
        ] {
            let reason = FinishReason::from_metrics(&metrics(value.clone()), max_tokens);
            assert_eq!(reason, expected, "{value}");
        }
    }
}
