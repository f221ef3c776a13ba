//! Reloads of the configuration: by call and by watching the file.

use std::os::unix::fs::symlink;

use crate::control_kit::{TestControl, TestFile, eventually, model_with_urls};

const A: &str = "http://127.0.0.1:1";
const B: &str = "http://127.0.0.1:2";

#[tokio::test]
async fn a_reload_replaces_the_endpoints_and_reports_the_difference() {
    let file = TestFile::new(&model_with_urls(&[A]));
    let fleet = TestControl::start(file.input()).unwrap();
    fleet.control.ready().await;
    assert_eq!(fleet.endpoints("m"), [A]);
    file.write(&model_with_urls(&[B]));
    let diff = fleet.control.reload().await.unwrap();
    assert_eq!(diff.endpoints_added, [format!("m {B}")]);
    assert_eq!(diff.endpoints_removed, [format!("m {A}")]);
    assert_eq!(fleet.endpoints("m"), [B]);
    assert!(fleet.control.status().version >= 2);
}

#[tokio::test]
async fn a_mistake_keeps_the_old_configuration_and_is_visible() {
    let file = TestFile::new(&model_with_urls(&[A]));
    let fleet = TestControl::start(file.input()).unwrap();
    file.write("[[model]]\nnmae = \"m\"\n");
    let error = fleet.control.reload().await.unwrap_err();
    assert!(error.to_string().contains("fleet.toml:2:1"), "{error}");
    assert_eq!(fleet.endpoints("m"), [A]);
    let status = fleet.control.status();
    assert!(status.failed_reloads >= 1);
    assert!(status.last_error.unwrap().contains("did you mean `name`"));
    file.write(&model_with_urls(&[B]));
    fleet.control.reload().await.unwrap();
    assert_eq!(fleet.control.status().last_error, None);
}

#[tokio::test]
async fn a_start_with_a_mistake_fails() {
    let file = TestFile::new("[[model]]\n");
    assert!(TestControl::start(file.input()).is_err());
    std::fs::remove_file(file.path()).unwrap();
    let error = TestControl::start(file.input()).err().unwrap();
    assert!(
        error.to_string().contains("failed to read the file"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_that_changes_is_loaded() {
    let file = TestFile::new(&model_with_urls(&[A]));
    let fleet = TestControl::start(file.input()).unwrap();
    file.write(&model_with_urls(&[A, B]));
    fleet.wait_endpoints("m", &[A, B]).await;
    // A file that was moved into place is another file.
    let other = file.folder.path().join("other.toml");
    std::fs::write(&other, model_with_urls(&[B])).unwrap();
    std::fs::rename(&other, file.path()).unwrap();
    fleet.wait_endpoints("m", &[B]).await;
    // A file with a mistake is tried once, and again when it changes.
    file.write("[[model]");
    eventually(
        || fleet.control.status().failed_reloads > 0,
        || "no reload failed".to_owned(),
    )
    .await;
    assert_eq!(fleet.endpoints("m"), [B]);
    file.write(&model_with_urls(&[A]));
    fleet.wait_endpoints("m", &[A]).await;
    assert_eq!(fleet.control.status().last_error, None);
}

/// Kubernetes mounts a ConfigMap as links to a folder whose name it swaps.
#[tokio::test]
async fn a_swapped_symbolic_link_is_a_change() {
    let file = TestFile::new("");
    let folder = file.folder.path();
    for (version, url) in [("v1", A), ("v2", B)] {
        std::fs::create_dir(folder.join(version)).unwrap();
        let path = folder.join(version).join("fleet.toml");
        std::fs::write(path, model_with_urls(&[url])).unwrap();
    }
    std::fs::remove_file(file.path()).unwrap();
    symlink("v1", folder.join("..data")).unwrap();
    symlink("..data/fleet.toml", file.path()).unwrap();
    let fleet = TestControl::start(file.input()).unwrap();
    assert_eq!(fleet.endpoints("m"), [A]);
    symlink("v2", folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    fleet.wait_endpoints("m", &[B]).await;
}

#[tokio::test]
async fn a_secret_file_that_changes_or_appears_is_loaded() {
    let file = TestFile::new(&model_with_urls(&[A]));
    let fleet = TestControl::start(file.input()).unwrap();
    let with_secret = format!(
        "{}headers = {{ authorization = {{ file = \"key\" }} }}\n",
        model_with_urls(&[B])
    );
    file.write(&with_secret);
    eventually(
        || fleet.control.status().failed_reloads > 0,
        || "the missing secret is an error".to_owned(),
    )
    .await;
    std::fs::write(file.folder.path().join("key"), "first").unwrap();
    fleet.wait_endpoints("m", &[B]).await;
    let secret = || {
        let table = fleet.registry.table();
        let endpoint = &table.fleet().models()[0].endpoints[0];
        endpoint.headers[0].value.clone()
    };
    assert_eq!(secret(), "Bearer first");
    std::fs::write(file.folder.path().join("key"), "second").unwrap();
    eventually(
        || secret() == "Bearer second",
        || "the old secret is in force".to_owned(),
    )
    .await;
}

#[tokio::test]
async fn a_hundred_reloads_keep_the_permits_in_use() {
    let file = TestFile::new(&model_with_urls(&[A]));
    let fleet = TestControl::start(file.input()).unwrap();
    let table = fleet.registry.table();
    let (_, group) = table.route("m").unwrap();
    let permit = crate::testkit::leased(group.admit(crate::testkit::ask("a")));
    for n in 0..100 {
        let urls: &[&str] = if n % 2 == 0 { &[A, B] } else { &[A] };
        file.write(&model_with_urls(urls));
        fleet.control.reload().await.unwrap();
        let used = fleet.registry.endpoint(permit.endpoint().key());
        assert_eq!(used.unwrap().used(), 1);
    }
    assert_eq!(fleet.endpoints("m"), [A]);
    assert!(fleet.control.status().version >= 101);
}

#[tokio::test]
async fn all_tasks_end_with_the_token() {
    let file = TestFile::new(&model_with_urls(&[A]));
    let TestControl {
        tasks,
        stop,
        control,
        ..
    } = TestControl::start(file.input()).unwrap();
    drop((stop, control));
    tasks.close();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), tasks.wait());
    ended.await.unwrap();
}
