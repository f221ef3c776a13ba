//! Records the commit and the time of the build, for `--version` and the health check.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo::rerun-if-env-changed=TIDEGATE_BUILD_COMMIT");
    // A wheel is built from a copy without the repository, so the build script sets the commit.
    let commit = std::env::var("TIDEGATE_BUILD_COMMIT")
        .ok()
        .or_else(|| output("git", &["rev-parse", "--short=12", "HEAD"]));
    let date = output("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]);
    println!(
        "cargo::rustc-env=TIDEGATE_COMMIT={}",
        commit.unwrap_or_else(|| "unknown".to_owned())
    );
    println!(
        "cargo::rustc-env=TIDEGATE_BUILT_AT={}",
        date.unwrap_or_else(|| "unknown".to_owned())
    );
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
