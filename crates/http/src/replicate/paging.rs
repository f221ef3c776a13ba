//! Pages of lists that are in memory, newest first.

use std::borrow::Cow;

use jiff::Timestamp;
use url::{Url, form_urlencoded};

use super::wire::Page;

/// The number of items on a page.
const PAGE: usize = 100;

/// The position of an item in its list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortKey {
    pub(super) at: Timestamp,
    pub(super) name: String,
}

/// The page that `query` asks for, of the list at `url`.
pub(super) fn page<T>(
    all: Vec<T>,
    sort_key: impl Fn(&T) -> SortKey,
    query: &str,
    mut url: Url,
) -> Page<T> {
    let mut keyed: Vec<(SortKey, T)> = all
        .into_iter()
        .map(|thing| (sort_key(&thing), thing))
        .collect();
    keyed.sort_by(|(one, _), (other, _)| other.cmp(one));
    if let Some(cursor) = cursor_of(query) {
        // An invalid cursor gives an empty page.
        let last = read_cursor(&cursor);
        keyed.retain(|(sort_key, _)| last.as_ref().is_some_and(|last| sort_key < last));
    }
    let more = keyed.len() > PAGE;
    keyed.truncate(PAGE);
    let last = keyed.last().filter(|_| more);
    let next = last.map(|(last, _)| {
        url.query_pairs_mut().append_pair(
            "cursor",
            &format!("{}.{}", last.at.as_nanosecond(), last.name),
        );
        url.into()
    });
    Page {
        next,
        previous: None,
        results: keyed.into_iter().map(|(_, thing)| thing).collect(),
    }
}

/// Whether the query asks for a page other than the first.
pub(super) fn has_cursor(query: &str) -> bool {
    cursor_of(query).is_some()
}

fn cursor_of(query: &str) -> Option<Cow<'_, str>> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, _)| name == "cursor")
        .map(|(_, cursor)| cursor)
}

/// The sort key of the last item on the page before.
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
    fn pages_have_every_item_once() {
        // Several items with the same timestamp: their names decide the order.
        let sort_key = |n: &i64| SortKey {
            at: Timestamp::from_second(n / 3).unwrap(),
            name: format!("{n:03}"),
        };
        let url = Url::parse("http://h/v1/things").unwrap();
        let (mut seen, mut query) = (Vec::new(), String::new());
        loop {
            let page = page((0..250).collect(), sort_key, &query, url.clone());
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
                page(vec![1], sort_key, foreign, url.clone()).results,
                [0; 0],
                "{foreign}"
            );
        }
    }
}
