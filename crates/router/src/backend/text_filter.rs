//! Enforces stop strings on the text of backends that do not, or that include the string in the text.

use tidegate_core::inference::GeneratedText;
use tidegate_core::text_generation::{FinishReason, StopSequences, TextEvent};

/// Passes the events of a text on, and ends the text before the first stop string.
#[derive(Debug)]
pub(super) struct TextFilter {
    stop: StopSequences,
    /// What to do about the rest of a text after a stop string.
    after_stop: AfterStop,
    state: FilterState,
}

/// What the rest of a stream is good for after a stop string was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterStop {
    /// The backend stops too, and its last event has the number of tokens.
    ReadToEnd,
    /// The backend may continue for long, so the text ends here.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterState {
    Open,
    StopFound,
    Over,
}

impl TextFilter {
    pub(super) fn new(stop: Vec<String>, after_stop: AfterStop) -> Self {
        Self {
            stop: StopSequences::new(stop),
            after_stop,
            state: FilterState::Open,
        }
    }

    /// Whether the last event has been passed on.
    pub(super) fn is_over(&self) -> bool {
        self.state == FilterState::Over
    }

    /// Adds what an event of the backend means for the client to `out`.
    pub(super) fn pass(&mut self, event: TextEvent, out: &mut Vec<TextEvent>) {
        match (self.state, event) {
            (FilterState::Over, _) | (FilterState::StopFound, TextEvent::Text(_)) => {}
            (FilterState::Open, TextEvent::Text(text)) => self.pass_text(&text, out),
            (FilterState::StopFound, TextEvent::Ended { usage, .. }) => {
                self.end(FinishReason::Stop, usage, out);
            }
            (
                FilterState::Open,
                TextEvent::Ended {
                    finish_reason,
                    usage,
                },
            ) => {
                let held = std::mem::take(&mut self.stop).finish();
                push_text(held, out);
                self.end(finish_reason, usage, out);
            }
            (FilterState::Open | FilterState::StopFound, failed @ TextEvent::Failed(_)) => {
                self.state = FilterState::Over;
                out.push(failed);
            }
        }
    }

    fn pass_text(&mut self, text: &str, out: &mut Vec<TextEvent>) {
        let scan = self.stop.push(text);
        push_text(scan.text.into_owned(), out);
        if scan.found {
            self.state = FilterState::StopFound;
            if self.after_stop == AfterStop::End {
                self.end(FinishReason::Stop, None, out);
            }
        }
    }

    fn end(
        &mut self,
        finish_reason: FinishReason,
        usage: Option<tidegate_core::text_generation::Usage>,
        out: &mut Vec<TextEvent>,
    ) {
        self.state = FilterState::Over;
        out.push(TextEvent::Ended {
            finish_reason,
            usage,
        });
    }
}

fn push_text(text: String, out: &mut Vec<TextEvent>) {
    if !text.is_empty() {
        out.push(TextEvent::Text(text));
    }
}

/// A whole text, cut before the first stop string.
pub(super) fn cut_at_stop(mut answer: GeneratedText, stop: &[String]) -> GeneratedText {
    let mut filter = StopSequences::new(stop.to_vec());
    if filter.is_empty() {
        return answer;
    }
    let scan = filter.push(&answer.text);
    if scan.found {
        answer.text = scan.text.into_owned();
        answer.finish_reason = FinishReason::Stop;
    }
    answer
}
