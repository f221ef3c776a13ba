//! The child's own parsers with arbitrary bytes. They are part of the Python extension, which cannot be
//! linked with a test, so their files are compiled here again.

use tidegate_fuzzing::short_run;

#[test]
fn the_frame_buffer_of_the_child_holds_for_generated_inputs() {
    short_run("frame_buffer", crate::fuzz::frame_buffer);
}

#[test]
fn the_line_buffer_of_the_child_holds_for_generated_inputs() {
    short_run("line_buffer", crate::fuzz::line_buffer);
}
