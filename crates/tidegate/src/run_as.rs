//! `--run-as`: finds the user and the group in `/etc/passwd` and `/etc/group`.

use std::path::PathBuf;

use rustix::process::{getegid, geteuid};
use tidegate_runtime::RunAs;

use crate::usage_error::UsageError;

/// Parses `USER` or `USER:GROUP`, with names or numbers.
pub(crate) fn read(text: &str) -> Result<RunAs, UsageError> {
    let list = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let user = find(text, &list("/etc/passwd"), &list("/etc/group"))?;
    let same = user.uid == geteuid().as_raw() && user.gid == getegid().as_raw();
    if !geteuid().is_root() && !same {
        let usage = UsageError::new(format!(
            "--run-as `{text}`: only root can run the model as another user"
        ));
        return Err(
            usage.hint("start tidegate as root, or omit --run-as and start it as that user")
        );
    }
    Ok(user)
}

/// Looks a user up in the text of `/etc/passwd`, and a group in that of `/etc/group`.
fn find(text: &str, passwd: &str, groups: &str) -> Result<RunAs, UsageError> {
    let unknown = |kind: &str, name: &str| {
        let usage = UsageError::new(format!(
            "--run-as `{text}`: there is no {kind} `{name}` on this machine"
        ));
        usage.hint("give an existing name, or numbers such as 65534:65534")
    };
    let (user, group) = text
        .split_once(':')
        .map_or((text, None), |(user, group)| (user, Some(group)));
    let entry =
        fields(passwd).find(|entry| entry.first() == Some(&user) || entry.get(2) == Some(&user));
    let number =
        |entry: &[&str], index: usize| entry.get(index).and_then(|text| text.parse::<u32>().ok());
    let uid = entry
        .as_deref()
        .and_then(|entry| number(entry, 2))
        .or_else(|| user.parse().ok());
    let uid = uid.ok_or_else(|| unknown("user", user))?;
    let gid = match group {
        Some(group) => {
            let entry = fields(groups).find(|entry| entry.first() == Some(&group));
            let gid = entry
                .and_then(|entry| number(&entry, 2))
                .or_else(|| group.parse().ok());
            gid.ok_or_else(|| unknown("group", group))?
        }
        None => entry
            .as_deref()
            .and_then(|entry| number(entry, 3))
            .unwrap_or(uid),
    };
    let home = entry.and_then(|entry| entry.get(5).map(PathBuf::from));
    Ok(RunAs { uid, gid, home })
}

/// The user that the model runs as, if it is another one. A limit on its processes needs a user that is not
/// root.
pub(crate) fn model_user(
    user: Option<&str>,
    process_limit: Option<u64>,
) -> Result<Option<RunAs>, UsageError> {
    let run_as = user.map(read).transpose()?;
    let is_root = rustix::process::geteuid().is_root();
    if process_limit.is_some() && run_as.as_ref().map_or(is_root, |user| user.uid == 0) {
        return Err(UsageError::new(
            "--worker-processes has no effect on root, and the model would run as root",
        )
        .hint("run the model as another user with --run-as USER"));
    }
    Ok(run_as)
}

fn fields(list: &str) -> impl Iterator<Item = Vec<&str>> {
    list.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1001:Ada:/home/ada:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nvideo:x:44:ada\n";

    #[test]
    fn names_and_numbers_are_accepted() {
        for (text, uid, gid) in [
            ("ada", 1000, 1001),
            ("1000", 1000, 1001),
            ("ada:video", 1000, 44),
            ("ada:7", 1000, 7),
            ("4242", 4242, 4242),
        ] {
            let user = find(text, PASSWD, GROUPS).unwrap();
            assert_eq!((user.uid, user.gid), (uid, gid), "{text}");
        }
        assert_eq!(
            find("ada", PASSWD, GROUPS).unwrap().home,
            Some("/home/ada".into())
        );
        assert_eq!(find("4242", PASSWD, GROUPS).unwrap().home, None);
    }

    #[test]
    fn an_unknown_user_or_group_is_named() {
        for (text, missing) in [
            ("bob", "user `bob`"),
            ("ada:cats", "group `cats`"),
            ("", "user ``"),
        ] {
            assert!(
                find(text, PASSWD, GROUPS)
                    .unwrap_err()
                    .to_string()
                    .contains(missing),
                "{text}"
            );
        }
    }
}
