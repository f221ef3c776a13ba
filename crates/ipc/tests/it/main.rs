//! Every message of the protocol as a snapshot: a changed snapshot changes the contract between the
//! server and a child that may come from another wheel.

mod child;
#[path = "../../../../python/src/frame_buffer.rs"]
mod frame_buffer;
#[path = "../../../../python/src/fuzz.rs"]
mod fuzz;
#[path = "../../../../python/src/line_buffer.rs"]
mod line_buffer;
#[path = "../../../../python/src/spare_buffers.rs"]
mod spare_buffers;

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use tidegate_ipc::control::{
    self, ChildInit, Fatal, FatalStage, HealthcheckStatus, ModelMode, Ready,
};
use tidegate_ipc::frame;
use tidegate_ipc::slot::{
    self, FileOutput, FileOutputKind, PredictRequest, WireJobKind, WireLogSource, WireMetricMode,
};

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("our messages are JSON")
}

/// One line per message; each message must read back as it was written.
fn lines<T: serde::Serialize>(messages: &[T], again: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let mut all = String::new();
    for message in messages {
        let json = serde_json::to_vec(message).expect("our messages are JSON");
        assert_eq!(json, again(&json), "it reads back as it was written");
        all += std::str::from_utf8(&json).expect("our messages are JSON");
        all.push('\n');
    }
    all
}

#[test]
fn control_requests() {
    use control::ControlRequest as R;
    let init = ChildInit {
        model_dir: "/models/hello".into(),
        predictor_ref: "predict.py:Predictor".into(),
        train_ref: Some("train.py:train".into()),
        mode: ModelMode::Predict,
        num_slots: Some(4),
        max_slots: None,
        socket: "/tmp/t/s".into(),
        requirements: vec!["numpy==1.26.4".into()],
        limits: control::ResourceLimits {
            memory: Some(1 << 30),
            processes: None,
            output_file: Some(1 << 28),
        },
        batch: control::BatchSettings {
            max_size: Some(16),
            max_wait_micros: None,
        },
        waits_for_setup: true,
    };
    let all = [
        R::Init(init),
        R::SetUp {
            env: BTreeMap::from([("CUDA_VISIBLE_DEVICES".into(), "1".into())]),
        },
        R::Cancel { slot: 2, nth: 3 },
        R::Healthcheck { id: 7 },
        R::Shutdown,
    ];
    insta::assert_snapshot!(lines(&all, |json| serde_json::to_vec(
        &serde_json::from_slice::<control::ControlRequest>(json).unwrap()
    )
    .unwrap()));
}

#[test]
fn control_responses() {
    use control::ControlResponse as R;
    let ready = Ready {
        slots: vec![0, 1],
        schema: raw(r#"{"openapi":"3.0.2"}"#),
        is_async: true,
        has_healthcheck: false,
        python: "3.12.1".into(),
        sdk: Some("0.23.1".into()),
        batch: Some(control::BatchLimits {
            max_size: 16,
            max_message: 32,
            max_wait_micros: 5000,
        }),
    };
    let fatal = Fatal {
        stage: FatalStage::Setup,
        reason: "setup failed: RuntimeError: no".into(),
        traceback: Some("Traceback".into()),
    };
    let all = [
        R::Schema {
            schema: raw(r#"{"openapi":"3.0.2"}"#),
        },
        R::Imported {
            uses_gpu: false,
            has_driver: true,
        },
        R::Ready(ready),
        R::Log {
            source: WireLogSource::Stderr,
            data: "loading\n".into(),
        },
        R::ChildLog {
            target: "child".into(),
            level: "info".into(),
            message: "slots connected".into(),
        },
        R::DesiredConcurrency { slots: 3 },
        R::Idle { slot: 0 },
        R::Cancelled { slot: 1 },
        R::Failed {
            slot: 1,
            error: "socket closed".into(),
        },
        R::Broken {
            reason: "CUDA error: device-side assert triggered".into(),
        },
        R::GpuMemory {
            reserved: 1 << 30,
            peak: 3 << 30,
        },
        R::Fatal(fatal),
        R::DroppedLogs {
            count: 12,
            interval_millis: 1000,
        },
        R::HealthcheckResult {
            id: 7,
            status: HealthcheckStatus::Unhealthy,
            error: Some("no".into()),
        },
        R::ShuttingDown,
    ];
    insta::assert_snapshot!(lines(&all, |json| serde_json::to_vec(
        &serde_json::from_slice::<control::ControlResponse>(json).unwrap()
    )
    .unwrap()));
}

#[test]
fn slot_requests() {
    let input = raw(r#"{"text":"hi"}"#);
    let predict = |input, input_file| PredictRequest {
        id: "a".into(),
        kind: WireJobKind::Prediction,
        input,
        input_file,
        output_dir: "/tmp/t/1".into(),
        files: BTreeMap::from([("/image".into(), "/tmp/t/1/cat.png".into())]),
        context: BTreeMap::from([("user".into(), "u1".into())]),
    };
    let all = [
        slot::SlotRequest::Predict(predict(Some(&*input), None)),
        slot::SlotRequest::Predict(predict(None, Some("/tmp/t/spill".into()))),
        slot::SlotRequest::Batch(slot::BatchPredictRequest {
            items: vec![predict(Some(&*input), None)],
        }),
    ];
    insta::assert_snapshot!(lines(&all, |json| serde_json::to_vec(
        &serde_json::from_slice::<slot::SlotRequest<'_>>(json).unwrap()
    )
    .unwrap()));
}

#[test]
fn slot_responses() {
    use slot::SlotResponse as R;
    let value = raw(r#"{"x":[1,2]}"#);
    let all = [
        R::Log {
            source: WireLogSource::Stdout,
            data: "step 1\n".into(),
        },
        R::Output { output: &value },
        R::FileOutput(slot::FileOutput {
            filename: "/tmp/t/1/out.png".into(),
            kind: FileOutputKind::FileType,
            mime_type: Some("image/png".into()),
            offset: 0,
        }),
        R::FileOutput(FileOutput {
            filename: "/tmp/t/1/out.json".into(),
            kind: FileOutputKind::Oversized,
            mime_type: None,
            offset: 0,
        }),
        R::Metric {
            name: "tokens".into(),
            value: &value,
            mode: WireMetricMode::Increment,
        },
        R::Done {
            id: "a".into(),
            output: Some(&value),
            predict_time: 0.25,
            is_stream: false,
        },
        R::Done {
            id: "a".into(),
            output: None,
            predict_time: 0.25,
            is_stream: true,
        },
        R::Failed {
            id: "a".into(),
            error: "ValueError: no".into(),
        },
        R::Retire,
        R::Broken {
            reason: "CUDA error: device-side assert triggered".into(),
        },
        R::Cancelled { id: "a".into() },
        R::Refused,
        R::BatchCall { items: vec![0, 1] },
        R::Item {
            n: 1,
            message: Box::new(R::Output { output: &value }),
        },
    ];
    insta::assert_snapshot!(lines(&all, |json| serde_json::to_vec(
        &serde_json::from_slice::<slot::SlotResponse<'_>>(json).unwrap()
    )
    .unwrap()));
}

#[test]
fn a_predict_frame_carries_the_callers_bytes_unchanged() {
    let caller = b"{\n  \"text\" : \"h\\u00e9\" }";
    let mut buffer = Vec::new();
    let predict = PredictRequest {
        id: "a".into(),
        kind: WireJobKind::Training,
        input: None,
        input_file: None,
        output_dir: "/t".into(),
        files: BTreeMap::new(),
        context: BTreeMap::new(),
    };
    slot::append_predict(&mut buffer, &predict, caller);
    let length = frame::complete(&buffer).unwrap().expect("one whole frame");
    let slot::SlotRequest::Predict(read) =
        serde_json::from_slice(&buffer[frame::HEADER..frame::HEADER + length]).unwrap()
    else {
        panic!("another message")
    };
    assert_eq!(read.input.unwrap().get().as_bytes(), caller);
    assert_eq!(read.kind, WireJobKind::Training);
}

#[test]
fn file_output_borrows_its_name() {
    let json =
        br#"{"file_output":{"filename":"/a","kind":"file_type","mime_type":null,"offset":3}}"#;
    let slot::SlotResponse::FileOutput(FileOutput { offset, .. }) =
        serde_json::from_slice(json).unwrap()
    else {
        panic!("another message")
    };
    assert_eq!(offset, 3);
}
