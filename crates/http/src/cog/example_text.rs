//! An example text for an input, of the length and with the pattern that its schema asks for.

use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

/// Texts that match the common patterns of inputs: names, numbers, dates, colours, sizes, ratios, versions,
/// addresses.
const TEXTS: [&str; 16] = [
    "world",
    "World",
    "WORLD",
    "w",
    "W",
    "1",
    "12",
    "1234",
    "1.0",
    "1.0.0",
    "2000-01-01",
    "#ffffff",
    "512x512",
    "1:1",
    "ann@example.com",
    "https://example.com/a.txt",
];

/// The longest example.
const MAX_LENGTH: usize = 1000;
/// Characters that are easy to read, if a pattern allows them.
const READABLE: [char; 4] = ['a', 'A', '1', '-'];

/// A text that a string schema accepts, if one is found.
pub(super) fn example_text(schema: &Value) -> String {
    let length = |key: &str| usize::try_from(schema.get(key)?.as_u64()?).ok();
    let least = length("minLength").unwrap_or(0).min(MAX_LENGTH);
    let most = length("maxLength").unwrap_or(usize::MAX);
    let fits = |text: &str| (least..=most).contains(&text.chars().count());
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Ok(regex) = Regex::new(pattern)
    {
        let is_valid = |text: &String| fits(text) && regex.is_match(text);
        let known = TEXTS.iter().map(|text| (*text).to_owned());
        let made = [1, 2, 5, least]
            .into_iter()
            .filter_map(|repeats| text_of(pattern, repeats));
        if let Some(text) = known.chain(made).find(is_valid) {
            return text;
        }
    }
    let letters = "world".chars().cycle();
    letters.take(least.max(5).min(most)).collect()
}

/// A text that matches a pattern, in which parts that may be repeated at will are repeated so often.
fn text_of(pattern: &str, repeats: usize) -> Option<String> {
    let mut text = String::new();
    append(&mut text, &regex_syntax::parse(pattern).ok()?, repeats)?;
    Some(text)
}

/// `None` if the text becomes too long, or a part matches nothing.
fn append(text: &mut String, hir: &Hir, repeats: usize) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(class) => text.push(character(class)?),
        HirKind::Repetition(repetition) => {
            let most = repetition.max.map_or(usize::MAX, |max| max as usize);
            for _ in 0..repeats.min(most).max(repetition.min as usize) {
                append(text, &repetition.sub, repeats)?;
            }
        }
        HirKind::Capture(capture) => append(text, &capture.sub, repeats)?,
        HirKind::Concat(parts) => parts
            .iter()
            .try_for_each(|part| append(text, part, repeats))?,
        HirKind::Alternation(parts) => append(text, parts.first()?, repeats)?,
    }
    (text.len() <= MAX_LENGTH).then_some(())
}

fn character(class: &Class) -> Option<char> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let allows = |c: &char| {
        let mut ranges = class.iter();
        ranges.any(|range| (range.start()..=range.end()).contains(c))
    };
    let printable = (' '..='~').find(allows);
    let readable = READABLE.into_iter().find(allows);
    readable
        .or(printable)
        .or_else(|| Some(class.iter().next()?.start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_example_matches_the_pattern_and_has_the_length() {
        for (schema, expected) in [
            (json!({}), "world"),
            (json!({"minLength": 8}), "worldwor"),
            (json!({"maxLength": 2}), "wo"),
            (json!({"pattern": "^[0-9]+x[0-9]+$"}), "512x512"),
            (json!({"pattern": "^[a-z]+$", "maxLength": 3}), "w"),
            (json!({"pattern": "^sk-[A-Za-z0-9]{8,}$"}), "sk-aaaaaaaa"),
            (json!({"pattern": "^[0-9]*$", "minLength": 6}), "111111"),
            (json!({"pattern": "^(de|en)_[A-Z]{2}$"}), "de_AA"),
            (json!({"pattern": r"^\S+\s\S+$"}), "a a"),
            (json!({"pattern": "(?=unsupported)"}), "world"),
            (json!({"pattern": "^(a{900}){900}$"}), "world"),
        ] {
            assert_eq!(example_text(&schema), expected, "{schema}");
        }
    }
}
