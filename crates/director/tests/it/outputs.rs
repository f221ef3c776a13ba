//! Webhook messages and output files, which go to the API.

use std::path::Path;

use bytes::Bytes;
use tidegate_core::record::JobSpec;
use tidegate_core::{Event, Outcome, OutputFile, OutputFileKind, OutputValue};

use crate::fake_model::value;
use crate::harness::{Harness, Options, eventually, spec, with_hook};

#[tokio::test]
async fn interim_webhooks_are_updates_and_the_last_one_travels_with_the_end() {
    let harness = Harness::start(Options::default()).await;
    let hooked = with_hook(spec("a"), &["start", "output", "completed"]);
    let id = harness.add_spec(hooked).await;
    let run = harness.model.started().await;
    eventually(|| harness.api.calls().updates.len() == 1).await;
    run.send(Event::Output(value("1")));
    eventually(|| harness.api.calls().updates.len() == 2).await;
    run.succeed("2");
    harness.wait_for_messages((0, 0)).await;
    let update = &harness.api.calls().updates[0];
    assert_eq!(update.lease.job.id, id);
    assert_eq!(update.token.0, "lease-a");
    assert_eq!(update.message.body, "\"Processing\"");
    let message = harness.api.end(&id).unwrap().message.unwrap();
    assert_eq!(message.body, "\"Succeeded\"");
    assert_eq!(message.hook.url, "http://receiver.example/hook");
    assert_eq!(message.claim, None, "any API process sends it");
    assert!(
        !message.hook.streams,
        "only the API can sign the URL of the stream"
    );
}

/// An output that is one text file.
fn file_output(path: &Path) -> Event {
    let file = OutputFile {
        path: path.to_owned(),
        mime_type: Some("text/plain".to_owned()),
        offset: 0,
        kind: OutputFileKind::User,
    };
    Event::Ended(Outcome::Succeeded {
        output: Some(OutputValue {
            json: Bytes::from_static(b"\"\""),
            files: vec![file],
        }),
    })
}

#[tokio::test]
async fn output_files_are_uploaded_before_the_end() {
    let harness = Harness::start(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.txt");
    std::fs::write(&path, "content").unwrap();
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.set_down(true);
    run.send(file_output(&path));
    eventually(|| harness.api.failed_uploads() > 0).await;
    harness.api.set_down(false);
    harness.wait_for_messages((0, 0)).await;
    let files = harness.api.calls().files;
    assert_eq!(files.len(), 1);
    let (token, name, mime, content) = &files[0];
    assert_eq!((token.as_str(), name.as_str()), ("lease-a", "file.txt"));
    assert_eq!(
        (mime.as_str(), &content[..]),
        ("text/plain", &b"content"[..])
    );
    let output = harness.api.end(&id).unwrap().completion.output.unwrap();
    assert_eq!(output, "\"tidegate-file:file.txt\"");
}

#[tokio::test]
async fn output_files_are_in_the_output_if_the_api_stores_none() {
    let harness = Harness::start(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.txt");
    std::fs::write(&path, "content").unwrap();
    harness.api.store_no_files();
    let id = harness.add("a").await;
    harness.model.started().await.send(file_output(&path));
    harness.wait_for_messages((0, 0)).await;
    let output = harness.api.end(&id).unwrap().completion.output.unwrap();
    assert_eq!(output, "\"data:text/plain;base64,Y29udGVudA==\"");
}

#[tokio::test]
async fn a_job_fails_if_there_is_no_space_for_its_output_file() {
    let harness = Harness::start(Options::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.txt");
    std::fs::write(&path, "content").unwrap();
    harness.api.fill();
    let id = harness.add("a").await;
    harness.model.started().await.send(file_output(&path));
    harness.wait_for_messages((0, 0)).await;
    let end = harness.api.end(&id).unwrap();
    let error = end.completion.error.unwrap();
    assert!(
        error.contains("`file.txt`") && error.contains("no space left"),
        "{error}"
    );
}

#[tokio::test]
async fn stored_input_files_are_downloaded_from_the_api() {
    let harness = Harness::start(Options::default()).await;
    let url = "http://127.0.0.1:9/v1/files/f1/download?signature=x";
    let stored = JobSpec {
        input: Bytes::from(format!(r#"{{"file":"{url}"}}"#)),
        files: vec!["/file".to_owned()],
        ..spec("a")
    };
    harness.api.set_down(true);
    let id = harness.add_spec(stored).await;
    harness.api.set_down(false);
    let run = harness.model.started().await;
    let path = &run.work.files["/file"];
    assert_eq!(path.file_name().unwrap(), "caf\u{e9}_1.txt");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "for lease-a");
    run.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    assert!(harness.api.end(&id).unwrap().completion.error.is_none());
}

#[tokio::test]
async fn a_file_that_the_api_does_not_have_is_downloaded_from_its_url() {
    let harness = Harness::start(Options::default()).await;
    let unknown = JobSpec {
        input: Bytes::from_static(br#"{"file":"http://127.0.0.1:9/v1/files/f2"}"#),
        files: vec!["/file".to_owned()],
        ..spec("a")
    };
    let id = harness.add_spec(unknown).await;
    harness.wait_for_messages((0, 0)).await;
    let error = harness.api.end(&id).unwrap().completion.error.unwrap();
    assert!(error.contains("not a public address"), "{error}");
}
