//! All fuzz targets in one libFuzzer program; `TIDEGATE_FUZZ` names the one to run. `scripts/fuzz.sh`
//! builds and starts it, with the compiler flags that it needs.

#![no_main]
#![allow(
    dead_code,
    reason = "whole files of the program and the extension are compiled in, and not all functions are called"
)]

use std::sync::LazyLock;

/// The files of the program that have targets: the program has no library to link with.
#[path = "../../crates/tidegate/src/cog_yaml.rs"]
mod cog_yaml;
#[path = "../../crates/tidegate/src/exit.rs"]
mod exit;
#[path = "../../crates/tidegate/src/usage_error.rs"]
mod usage_error;
#[path = "../../crates/tidegate/src/fuzz.rs"]
mod program;
#[path = "../../crates/tidegate/src/units.rs"]
mod units;

/// The files of the Python extension that have targets.
#[path = "../../python/src/fuzz.rs"]
mod child;
#[path = "../../python/src/frame_buffer.rs"]
mod frame_buffer;
#[path = "../../python/src/line_buffer.rs"]
mod line_buffer;
#[path = "../../python/src/spare_buffers.rs"]
mod spare_buffers;

/// The targets, by the name of their folder in `corpus`.
const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("address", tidegate_net::fuzz::address),
    ("body_scan", tidegate_router::fuzz::body_scan),
    ("cog_yaml", program::cog_yaml),
    ("data_uri", tidegate_service::fuzz::data_uri),
    ("envelope", tidegate_http::fuzz::envelope),
    ("events", tidegate_http::fuzz::events),
    ("file_name", tidegate_service::fuzz::file_name),
    ("fold", tidegate_core::fuzz::fold),
    ("frame_buffer", child::frame_buffer),
    ("frames", tidegate_ipc::fuzz::frames),
    ("framing", tidegate_http::fuzz::framing),
    ("headers", tidegate_http::fuzz::headers),
    ("history", tidegate_service::fuzz::history),
    ("input", tidegate_service::fuzz::input),
    ("job_id", tidegate_core::fuzz::job_id),
    ("line_buffer", child::line_buffer),
    ("messages", tidegate_ipc::fuzz::messages),
    ("splice_files", tidegate_service::fuzz::splice_files),
    ("sse_parser", tidegate_net::fuzz::sse_parser),
    ("units", program::units),
];

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TIDEGATE_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found
        .unwrap_or_else(|| panic!("unknown target `{name}` in `TIDEGATE_FUZZ`"))
        .1
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
