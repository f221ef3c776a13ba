//! Names that a client sent and the server ignores, with the name that the client probably meant.

/// The most unknown names that are listed; further ones are counted.
const MAX_LISTED: usize = 10;
/// The most characters of a name that are shown. Longer names are compared with nothing.
const MAX_NAME: usize = 100;

/// The known name that is most similar to `name`; `None` if all are too different.
pub fn closest_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME {
        return None;
    }
    let lower = name.to_lowercase();
    let candidates = known
        .filter(|known| known.len() <= MAX_NAME)
        .filter_map(|known| {
            let distance = strsim::damerau_levenshtein(&lower, &known.to_lowercase());
            let longest = lower.chars().count().max(known.chars().count());
            // One change in three characters. Of two short names each is similar to the other.
            (distance <= longest / 3).then_some((distance, known))
        });
    candidates.min().map(|(_, known)| known)
}

/// One warning for each unknown input.
pub(super) fn input_warnings<'a>(
    unknown: impl Iterator<Item = &'a str>,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Vec<String> {
    let mut unknown = unknown.peekable();
    let mut warnings = Vec::new();
    while let Some(name) = unknown.next_if(|_| warnings.len() < MAX_LISTED) {
        let suggestion = closest_name(name, known.clone())
            .map(|meant| format!("; did you mean `{meant}`?"))
            .unwrap_or_default();
        warnings.push(format!(
            "unknown input `{}` was ignored{suggestion}",
            shown(name)
        ));
    }
    let more = unknown.count();
    if more > 0 {
        warnings.push(format!("{more} more unknown inputs were ignored"));
    }
    warnings
}

/// A name for messages: on one line, and not too long.
fn shown(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((cut, _)) => format!("{}…", name[..cut].escape_debug()),
        None => name.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognized() {
        let known = ["prompt", "seed", "n", "negative_prompt", "größe"];
        for (name, meant) in [
            ("promt", Some("prompt")),
            ("Prompt", Some("prompt")),
            ("propmt", Some("prompt")),
            ("seeds", Some("seed")),
            ("negativ-prompt", Some("negative_prompt")),
            ("grösse", Some("größe")),
            ("N", Some("n")),
            ("m", None),
            ("temperature", None),
            ("", None),
            (&"prompt".repeat(100), None),
        ] {
            assert_eq!(closest_name(name, known.into_iter()), meant, "{name}");
        }
        assert_eq!(closest_name("inputs", ["input"].into_iter()), Some("input"));
    }

    #[test]
    fn warnings_are_bounded_and_on_one_line() {
        let long = format!("{}\n", "é".repeat(1000));
        let names: Vec<String> = (0..1000).map(|n| format!("{n}{long}")).collect();
        let warnings = input_warnings(names.iter().map(String::as_str), ["n"].into_iter());
        assert_eq!(warnings.len(), MAX_LISTED + 1);
        assert_eq!(warnings[MAX_LISTED], "990 more unknown inputs were ignored");
        assert!(
            warnings
                .iter()
                .all(|text| text.len() < 1000 && !text.contains('\n'))
        );
        assert_eq!(
            input_warnings(["a\nb"].into_iter(), [].into_iter()),
            ["unknown input `a\\nb` was ignored"]
        );
    }
}
