//! The child's own readers with any bytes. They are part of the Python extension, which no test can be
//! linked with, so their files are compiled here once more.

use tidegate_fuzzing::short_run;

#[test]
fn the_childs_inbox_holds_for_made_inputs() {
    short_run("inbox", crate::fuzz::inbox);
}

#[test]
fn the_childs_lines_hold_for_made_inputs() {
    short_run("lines", crate::fuzz::lines);
}
