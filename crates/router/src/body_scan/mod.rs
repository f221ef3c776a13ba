//! Finds what the router needs to know in the JSON body of a request, in one pass while it arrives.
//!
//! No tree is built and nothing is allocated. The scanner checks the syntax of JSON, except whether
//! texts are UTF-8: that only matters for the name of the model, and the backend reads the rest. It does
//! not judge the values of other keys.

mod affinity_hash;
mod captured_text;
mod json_syntax;
#[cfg(test)]
mod tests;

use std::ops::Range;

use affinity_hash::AffinityHasher;
use captured_text::CapturedText;
use json_syntax::{JsonSyntax, ScanStep, ValueKind};

pub use affinity_hash::affinity_hash;

/// The most bytes of the prompt that count for its hash.
pub const PROMPT_PREFIX: usize = 1024;

/// What the router needs to know about a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScannedBody {
    /// The model, if the body names one.
    pub model: Option<ScannedModel>,
    /// The value of `stream`, if it is true or false.
    pub stream: Option<bool>,
    /// The hash of `prompt_cache_key`, if it is a text.
    pub cache_key_hash: Option<u64>,
    /// The hash of `user`, if it is a text.
    pub user_hash: Option<u64>,
    /// The hash of the first [`PROMPT_PREFIX`] bytes of the value of `messages`, `prompt` or `input`; of
    /// the first one if there are several.
    pub prefix_hash: Option<u64>,
}

/// The model that a body names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedModel {
    name: CapturedText,
    /// Where the value of the key is in the body, with its quotation marks.
    pub range: Range<usize>,
}

impl ScannedModel {
    /// The name.
    pub fn name(&self) -> &str {
        self.name.text().unwrap_or_default()
    }

    /// A copy of the body with another name of the model.
    pub fn replace_in(&self, body: &[u8], name: &str) -> Vec<u8> {
        let name = serde_json::Value::from(name).to_string();
        [
            &body[..self.range.start],
            name.as_bytes(),
            &body[self.range.end..],
        ]
        .concat()
    }
}

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {position} of the body")]
pub struct InvalidBody {
    /// What is wrong.
    pub problem: BodyProblem,
    /// Where, counted from 0.
    pub position: usize,
}

/// What is wrong with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyProblem {
    /// It does not begin with an object.
    #[error("expected a JSON object")]
    NotAnObject,
    /// It is not JSON.
    #[error("invalid JSON")]
    Syntax,
    /// It ends too early.
    #[error("unexpected end of the JSON object")]
    Incomplete,
    /// Its arrays and objects are nested too deep.
    #[error("JSON that is nested more than {} levels deep", json_syntax::MAX_DEPTH)]
    TooDeep,
    /// It names the model twice, and servers disagree about which one counts.
    #[error("a second `model`")]
    DuplicateModel,
    /// The model is not a text, or too long, or not Unicode.
    #[error(
        "a `model` that is not a string of up to {} bytes",
        captured_text::MAX_LENGTH
    )]
    InvalidModel,
}

/// Scans a body.
#[derive(Debug)]
pub struct BodyScanner {
    syntax: JsonSyntax,
    /// The number of bytes of all earlier parts.
    position: usize,
    /// The key whose value is next, or is being read.
    key: TopLevelKey,
    /// Where that value begins.
    value_start: usize,
    /// The prompt that is being read.
    prefix: Option<AffinityHasher>,
    found: ScannedBody,
    failed: Option<InvalidBody>,
}

/// The keys that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopLevelKey {
    Model,
    Stream,
    CacheKey,
    User,
    Prompt,
    Other,
}

impl TopLevelKey {
    fn parse(name: &str) -> Self {
        match name {
            "model" => Self::Model,
            "stream" => Self::Stream,
            "prompt_cache_key" => Self::CacheKey,
            "user" => Self::User,
            "messages" | "prompt" | "input" => Self::Prompt,
            _ => Self::Other,
        }
    }

    /// Whether the text of the value matters.
    fn is_text(self) -> bool {
        matches!(self, Self::Model | Self::CacheKey | Self::User)
    }
}

impl Default for BodyScanner {
    fn default() -> Self {
        Self {
            syntax: JsonSyntax::default(),
            position: 0,
            key: TopLevelKey::Other,
            value_start: 0,
            prefix: None,
            found: ScannedBody::default(),
            failed: None,
        }
    }
}

impl BodyScanner {
    /// Adds the next part of the body. After an error, each call returns it again.
    pub fn push(&mut self, part: &[u8]) -> Result<(), InvalidBody> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut at = 0;
        let result = self.scan(part, &mut at).map_err(|problem| InvalidBody {
            problem,
            position: self.position + at,
        });
        self.position += part.len();
        self.failed = result.err();
        result
    }

    /// What has been found so far. A second `model`, which is an error, can still follow.
    pub fn found(&self) -> &ScannedBody {
        &self.found
    }

    /// What was found in the whole body.
    pub fn finish(self) -> Result<ScannedBody, InvalidBody> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.syntax.is_complete() {
            return Err(InvalidBody {
                problem: BodyProblem::Incomplete,
                position: self.position,
            });
        }
        Ok(self.found)
    }

    fn scan(&mut self, part: &[u8], at: &mut usize) -> Result<(), BodyProblem> {
        // Where the bytes begin that belong to the prompt and are not hashed yet.
        let mut prefix_from = 0;
        loop {
            match self.syntax.step(part, at)? {
                ScanStep::NeedsMore => break,
                ScanStep::Key => {
                    let name = self.syntax.text().unwrap_or_default();
                    self.key = TopLevelKey::parse(name);
                    self.syntax.capture_value(self.key.is_text());
                }
                ScanStep::ValueStart => {
                    prefix_from = *at;
                    self.begin_value(*at)?;
                }
                ScanStep::Value(kind) => {
                    if let Some(mut prefix) = self.prefix.take() {
                        prefix.write(&part[prefix_from..*at]);
                        self.found.prefix_hash = Some(prefix.finish());
                    }
                    self.end_value(kind, *at)?;
                }
            }
        }
        if let Some(prefix) = &mut self.prefix {
            prefix.write(&part[prefix_from..]);
        }
        Ok(())
    }

    fn begin_value(&mut self, at: usize) -> Result<(), BodyProblem> {
        self.value_start = self.position + at;
        match self.key {
            TopLevelKey::Model if self.found.model.is_some() => Err(BodyProblem::DuplicateModel),
            TopLevelKey::Prompt if self.found.prefix_hash.is_none() => {
                self.prefix = Some(AffinityHasher::new(PROMPT_PREFIX));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end_value(&mut self, kind: ValueKind, at: usize) -> Result<(), BodyProblem> {
        match self.key {
            TopLevelKey::Model => {
                if kind != ValueKind::String || self.syntax.text().is_none() {
                    return Err(BodyProblem::InvalidModel);
                }
                self.found.model = Some(ScannedModel {
                    name: self.syntax.captured().clone(),
                    range: self.value_start..self.position + at,
                });
            }
            // Of several values the last one counts, as for most parsers.
            TopLevelKey::Stream => self.found.stream = kind.as_bool(),
            TopLevelKey::CacheKey => self.found.cache_key_hash = self.text_hash(kind),
            TopLevelKey::User => self.found.user_hash = self.text_hash(kind),
            TopLevelKey::Prompt | TopLevelKey::Other => {}
        }
        Ok(())
    }

    fn text_hash(&self, kind: ValueKind) -> Option<u64> {
        (kind == ValueKind::String).then(|| affinity_hash(self.syntax.captured().bytes()))
    }
}
