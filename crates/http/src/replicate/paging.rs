//! Pages of things that are all at hand, newest first.

use std::borrow::Cow;

use jiff::Timestamp;
use url::{Url, form_urlencoded};

use super::wire::Page;

/// How many are on a page.
const PAGE: usize = 100;

/// Where something stands in its list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey {
    pub(super) at: Timestamp,
    pub(super) name: String,
}

/// The page that is asked for, of a list at this address.
pub(super) fn page<T>(
    all: Vec<T>,
    mark: impl Fn(&T) -> SortKey,
    query: &str,
    mut address: Url,
) -> Page<T> {
    let mut marked: Vec<(SortKey, T)> =
        all.into_iter().map(|thing| (mark(&thing), thing)).collect();
    marked.sort_by(|(one, _), (other, _)| other.cmp(one));
    if let Some(cursor) = cursor_of(query) {
        // A foreign cursor leads nowhere.
        let last = read_cursor(&cursor);
        marked.retain(|(mark, _)| last.as_ref().is_some_and(|last| mark < last));
    }
    let more = marked.len() > PAGE;
    marked.truncate(PAGE);
    let last = marked.last().filter(|_| more);
    let next = last.map(|(last, _)| {
        address.query_pairs_mut().append_pair(
            "cursor",
            &format!("{}.{}", last.at.as_nanosecond(), last.name),
        );
        address.into()
    });
    Page {
        next,
        previous: None,
        results: marked.into_iter().map(|(_, thing)| thing).collect(),
    }
}

/// Whether another page than the first is asked for.
pub(super) fn has_cursor(query: &str) -> bool {
    cursor_of(query).is_some()
}

fn cursor_of(query: &str) -> Option<Cow<'_, str>> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "cursor")
        .map(|(_, cursor)| cursor)
}

/// The last on the page before.
fn read_cursor(text: &str) -> Option<SortKey> {
    let (at, name) = text.split_once('.')?;
    Some(SortKey {
        at: Timestamp::from_nanosecond(at.parse().ok()?).ok()?,
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lead_through_everything_once() {
        // Several of one moment, as names tell them apart.
        let mark = |n: &i64| SortKey {
            at: Timestamp::from_second(n / 3).unwrap(),
            name: format!("{n:03}"),
        };
        let address = Url::parse("http://h/v1/things").unwrap();
        let (mut seen, mut query) = (Vec::new(), String::new());
        loop {
            let page = page((0..250).collect(), mark, &query, address.clone());
            seen.extend(page.results);
            match page.next {
                Some(next) => query = next.split_once('?').unwrap().1.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, (0..250).rev().collect::<Vec<_>>());
        for foreign in [
            "cursor=",
            "cursor=x",
            "cursor=1",
            "cursor=99999999999999999999999999999.a",
        ] {
            assert_eq!(
                page(vec![1], mark, foreign, address.clone()).results,
                [0; 0],
                "{foreign}"
            );
        }
    }
}
