//! A job that needs more disk space than is free is refused.

use bytes::Bytes;
use tidegate_core::Refusal;
use tidegate_service::{Submission, Submitted};

use crate::fake_model::{FakeModel, ServiceOptions, service_with, submission};

const MIB: u64 = 1024 * 1024;

async fn refusal(free_space: u64, input: String) -> Option<Refusal> {
    let jobs = service_with(
        FakeModel::with_file_input(),
        ServiceOptions {
            free_space: Some(free_space),
            ..ServiceOptions::default()
        },
    );
    match jobs
        .submit(Submission {
            input: Bytes::from(input),
            ..submission("{}")
        })
        .await
    {
        Ok(Submitted::New(_)) => None,
        Ok(Submitted::Running(_) | Submitted::Ended(_)) => panic!("a job with this id exists"),
        Err(refusal) => Some(refusal),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_files_do_not_fit_on_the_disk_is_refused() {
    let file = |bytes: usize| format!(r#"{{"image": "data:,{}"}}"#, "x".repeat(bytes));
    assert_eq!(refusal(100, file(101)).await, Some(Refusal::NoSpace));
    assert_eq!(refusal(100, file(100)).await, None);
    assert_eq!(
        refusal(0, r#"{"image": "https://example.com/a.png"}"#.to_owned()).await,
        Some(Refusal::NoSpace)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_input_needs_disk_space_and_a_small_one_does_not() {
    let text = |bytes: usize| format!(r#"{{"text": "{}"}}"#, "x".repeat(bytes));
    assert_eq!(refusal(0, text(10)).await, None);
    assert_eq!(refusal(MIB, text(2 << 20)).await, Some(Refusal::NoSpace));
    assert_eq!(refusal(3 * MIB, text(2 << 20)).await, None);
}
