//! Checks the `system_packages` of a model, which tidegate does not install.

use std::process::{Command, Stdio};

use tidegate_runtime::ToolProcess;

/// The state that dpkg reports for an installed package.
const INSTALLED: &str = "installed";

/// The packages that are not installed on this system. On a system without dpkg, all of them: packages
/// have other names there.
pub(crate) fn missing(packages: &[String]) -> Vec<String> {
    if packages.is_empty() {
        return Vec::new();
    }
    let installed = installed(packages);
    packages
        .iter()
        .filter(|package| !installed.iter().any(|name| name == name_of(package)))
        .cloned()
        .collect()
}

/// The command that installs packages.
pub(super) fn install_command(packages: &[String]) -> String {
    format!("sudo apt-get install -y {}", packages.join(" "))
}

fn installed(packages: &[String]) -> Vec<String> {
    let mut command = Command::new("dpkg-query");
    command
        .args([
            "--show",
            "--showformat=${db:Status-Status} ${Package}\\n",
            "--",
        ])
        .args(packages.iter().map(|package| name_of(package)))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = ToolProcess::output(&mut command);
    let text = output.map(|output| output.stdout).unwrap_or_default();
    parse(&String::from_utf8_lossy(&text))
}

fn parse(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(state, _)| *state == INSTALLED)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// The name in `name=1.2` or `name:amd64`.
fn name_of(package: &str) -> &str {
    package
        .split(['=', ':', '/'])
        .next()
        .unwrap_or_default()
        .trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_packages_with_remaining_files_are_not_installed() {
        let text = "installed bash\nconfig-files nano\nnot-installed vim\n";
        assert_eq!(parse(text), ["bash"]);
    }

    #[test]
    fn a_package_may_have_a_version_or_an_architecture() {
        for package in ["libgl1", "libgl1=1.4", "libgl1:amd64", "libgl1/stable"] {
            assert_eq!(name_of(package), "libgl1");
        }
    }

    #[test]
    fn a_package_that_does_not_exist_is_missing() {
        let packages = ["no-such-package-of-tidegate".to_owned()];
        assert_eq!(missing(&packages), packages);
        assert_eq!(missing(&[]), Vec::<String>::new());
    }
}
