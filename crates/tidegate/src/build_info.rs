//! Version, commit and time of this build.

use tidegate_http::cog::BuildInfo;

/// The program's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from.
pub(crate) const COMMIT: &str = env!("TIDEGATE_COMMIT");
/// When it was built.
pub(crate) const BUILT_AT: &str = env!("TIDEGATE_BUILT_AT");
/// The text of `--version`.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("TIDEGATE_COMMIT"),
    ", built ",
    env!("TIDEGATE_BUILT_AT"),
    ")"
);
/// The same for the APIs.
pub(crate) const BUILD: BuildInfo = BuildInfo {
    version: VERSION,
    git_sha: COMMIT,
    built_at: BUILT_AT,
};
