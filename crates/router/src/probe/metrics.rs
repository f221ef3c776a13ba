//! The length of the queue and the number of slots in the metrics of a backend.

/// The metrics of vLLM, SGLang, llama.cpp and TGI.
const QUEUE_METRICS: [&str; 4] = [
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "llamacpp:requests_deferred",
    "tgi_queue_size",
];

/// The metric of tidegate with the jobs that can run at once.
const SLOT_METRICS: [&str; 1] = ["tidegate_slots"];

/// The requests that wait in the backend, summed over its engines; `None` if no metric says it.
pub(super) fn waiting_requests(text: &str) -> Option<u32> {
    sum_of(text, &QUEUE_METRICS)
}

/// The slots of all models of a tidegate server; `None` if no metric says it.
pub(super) fn loaded_slots(text: &str) -> Option<u32> {
    sum_of(text, &SLOT_METRICS)
}

fn sum_of(text: &str, names: &[&str]) -> Option<u32> {
    let values = text.lines().filter_map(|line| {
        let name_end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(name_end);
        if !names.contains(&name) {
            return None;
        }
        let value = rest.rsplit_once('}').map_or(rest, |(_, value)| value);
        value.split_whitespace().next()?.parse::<f64>().ok()
    });
    values
        .reduce(|sum, value| sum + value)
        .map(|sum| sum.clamp(0.0, f64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_all_models_are_added() {
        let text = "# TYPE tidegate_slots gauge\n\
                    tidegate_slots{model=\"a/b\"} 2\n\
                    tidegate_slots_free{model=\"a/b\"} 1\n\
                    tidegate_slots{model=\"a/c\"} 1\n";
        assert_eq!(loaded_slots(text), Some(3));
        assert_eq!(loaded_slots(""), None);
    }

    #[test]
    fn the_queues_of_all_engines_are_added() {
        let text = "# HELP vllm:num_requests_waiting Number of requests waiting.\n\
                    vllm:num_requests_waiting{engine=\"0\",model_name=\"a {b}\"} 3.0\n\
                    vllm:num_requests_waiting{engine=\"1\",model_name=\"a\"} 4.0 1700000000\n\
                    vllm:num_requests_waiting_by_reason{reason=\"x\"} 50.0\n";
        assert_eq!(waiting_requests(text), Some(7));
        assert_eq!(waiting_requests("tgi_queue_size 2\n"), Some(2));
        assert_eq!(waiting_requests("up 1\n"), None);
    }
}
