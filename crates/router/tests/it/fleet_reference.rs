//! `docs/reference/fleet.md` lists exactly the keys that the parser knows.

use std::collections::BTreeSet;
use std::path::Path;

use tidegate_router::control::SystemSecrets;
use tidegate_router::fleet::{FleetSource, parse_fleet};

/// A key that no table has, and that resembles none.
const UNKNOWN: &str = "zzzzzzzzzz = 1";

/// The headings of the tables, and a file with an unknown key in each.
const SECTIONS: [(&str, &str, &str); 19] = [
    ("## Top level", "", ""),
    ("## `[limits]`", "[limits]\n", ""),
    ("## `[dns]`", "[dns]\n", ""),
    ("## `[consul]`", "[consul]\n", ""),
    ("## `[probe]`", "[probe]\n", ""),
    ("## `[events]`", "[events]\n", ""),
    ("## `[[remote_site]]`", "[[remote_site]]\n", ""),
    ("## `[[model]]`", "[[model]]\n", ""),
    ("### `queue`", "[[model]]\nqueue = { ", " }"),
    ("### `routing`", "[[model]]\nrouting = { ", " }"),
    ("### `timeout`", "[[model]]\ntimeout = { ", " }"),
    ("### `retry`", "[[model]]\nretry = { ", " }"),
    (
        "### `retry.capacity`",
        "[[model]]\nretry = { capacity = { ",
        " } }",
    ),
    ("### `affinity`", "[[model]]\naffinity = { ", " }"),
    ("### `websocket`", "[[model]]\nwebsocket = { ", " }"),
    ("### `cost`", "[[model]]\ncost = { ", " }"),
    (
        "## `[[model.endpoint]]`",
        "[[model]]\n[[model.endpoint]]\n",
        "",
    ),
    ("## `[[account]]`", "[[account]]\n", ""),
    ("## `[[join_key]]`", "[[join_key]]\n", ""),
];

#[test]
fn the_reference_lists_the_keys_of_every_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/fleet.md");
    let reference = std::fs::read_to_string(path).unwrap();
    for (heading, before, after) in SECTIONS {
        let text = format!("{before}{UNKNOWN}{after}\n");
        assert_eq!(documented(&reference, heading), known(&text), "{heading}");
    }
}

/// The keys in the first column of the table below a heading.
fn documented(reference: &str, heading: &str) -> BTreeSet<String> {
    let lines = reference
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    let rows = section.filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(key, _)| key.to_owned()).collect()
}

/// The keys that the parser names.
fn known(text: &str) -> BTreeSet<String> {
    let source = FleetSource {
        path: Path::new("fleet.toml"),
        text,
        settings: &[],
    };
    let error = parse_fleet(source, &SystemSecrets::default()).expect_err("the key is unknown");
    let fixes = error.problems.iter().map(|problem| problem.fix.as_str());
    let keys = fixes.filter_map(|fix| fix.strip_prefix("the keys here are "));
    keys.flat_map(|keys| keys.split(", "))
        .map(str::to_owned)
        .collect()
}
