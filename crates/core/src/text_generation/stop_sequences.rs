//! Ends a text before the first of given strings, also if that string arrives in several parts.

use std::borrow::Cow;

/// Finds the first complete one of several strings in a text that arrives in parts.
///
/// The end of the text so far that may be the beginning of a stop string is held back until the next
/// part shows whether it is.
#[derive(Debug, Clone, Default)]
pub struct StopSequences {
    stops: Vec<String>,
    /// A proper prefix of a stop string, at the end of what has arrived.
    held: String,
}

/// What one part adds to the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopScan<'a> {
    /// The text that is certain to be before every stop string.
    pub text: Cow<'a, str>,
    /// Whether a stop string was found: the text is complete.
    pub found: bool,
}

impl StopSequences {
    /// Ends a text before the first of these strings. Empty strings are ignored.
    pub fn new(stops: Vec<String>) -> Self {
        Self {
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            held: String::new(),
        }
    }

    /// Whether there is no string to stop at.
    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// Adds a part. After a stop string was found there must be no more parts.
    pub fn push<'a>(&mut self, part: &'a str) -> StopScan<'a> {
        if self.stops.is_empty() {
            return StopScan {
                text: Cow::Borrowed(part),
                found: false,
            };
        }
        let mut text = std::mem::take(&mut self.held);
        text.push_str(part);
        let found = first_complete(&text, &self.stops);
        let end = found.unwrap_or_else(|| text.len() - self.held_back(&text));
        if found.is_none() {
            self.held.push_str(&text[end..]);
        }
        text.truncate(end);
        StopScan {
            text: Cow::Owned(text),
            found: found.is_some(),
        }
    }

    /// The text that was held back, when no more parts follow.
    pub fn finish(self) -> String {
        self.held
    }

    /// The length of the longest end of `text` that is the beginning of a stop string.
    fn held_back(&self, text: &str) -> usize {
        let longest = |stop: &String| {
            let lengths = (1..stop.len()).rev();
            lengths
                .filter(|length| stop.is_char_boundary(*length))
                .find(|length| text.as_bytes().ends_with(&stop.as_bytes()[..*length]))
                .unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

/// Where the stop string begins that is complete first. Which one that is does not depend on how the text
/// is divided into parts.
fn first_complete(text: &str, stops: &[String]) -> Option<usize> {
    let ends = stops.iter().filter_map(|stop| {
        let start = text.find(stop.as_str())?;
        Some((start + stop.len(), start))
    });
    ends.min().map(|(_, start)| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text in pieces, and whether a stop string was found.
    fn read(stops: &[&str], parts: &[&str]) -> (Vec<String>, bool) {
        let mut matcher = StopSequences::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut pieces = Vec::new();
        for part in parts {
            let scan = matcher.push(part);
            pieces.push(scan.text.into_owned());
            if scan.found {
                return (pieces, true);
            }
        }
        pieces.push(matcher.finish());
        (pieces, false)
    }

    #[test]
    fn a_stop_string_in_several_parts_is_found() {
        assert_eq!(
            read(&["STOP"], &["one S", "T", "OP two", "three"]),
            (vec!["one ".to_owned(), String::new(), String::new()], true)
        );
    }

    #[test]
    fn text_that_only_looks_like_a_stop_string_is_released() {
        assert_eq!(
            read(&["STOP"], &["ST", "STO", "X"]),
            (["", "ST", "STOX", ""].map(str::to_owned).to_vec(), false)
        );
        assert_eq!(
            read(&["STOP"], &["a STO"]),
            (["a ", "STO"].map(str::to_owned).to_vec(), false)
        );
    }

    #[test]
    fn the_first_complete_stop_string_counts() {
        let (pieces, found) = read(&["\n\n", "User:"], &["a", "b User: c\n\nd"]);
        assert_eq!((pieces.concat().as_str(), found), ("ab ", true));
        let (pieces, found) = read(&["a b c", "b"], &["x a b c"]);
        assert_eq!((pieces.concat().as_str(), found), ("x a ", true));
    }

    #[test]
    fn characters_are_never_split() {
        let (pieces, found) = read(&["é!", "😀😀"], &["x😀", "é", "?", "é", "!"]);
        assert_eq!((pieces.concat().as_str(), found), ("x😀é?", true));
    }

    #[test]
    fn without_stop_strings_parts_pass_unchanged() {
        let mut matcher = StopSequences::new(vec![String::new()]);
        assert!(matcher.is_empty());
        assert!(matches!(matcher.push("a").text, Cow::Borrowed("a")));
    }

    proptest::proptest! {
        /// The text is the same however it is divided.
        #[test]
        fn the_division_into_parts_does_not_matter(
            text in "[ab\u{e9}]{0,30}",
            stops in proptest::collection::vec("[ab\u{e9}]{1,4}", 0..4),
            cuts in proptest::collection::vec(0usize..40, 0..6),
        ) {
            let first = first_complete(&text, &stops);
            let expected = &text[..first.unwrap_or(text.len())];
            let mut cuts: Vec<usize> = cuts
                .into_iter()
                .filter(|cut| *cut <= text.len() && text.is_char_boundary(*cut))
                .chain([0, text.len()])
                .collect();
            cuts.sort_unstable();
            let parts: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (pieces, found) = read(&stops, &parts);
            proptest::prop_assert_eq!(pieces.concat(), expected);
            proptest::prop_assert_eq!(found, first.is_some());
        }
    }
}
