//! Fuzz targets: see `docs/fuzzing.md`.

use tidegate_fuzzing::{parts, pieces};

use crate::frame::{self, HEADER, MAX, Oversized};
use crate::slot::{PredictRequest, append_batch, append_item, append_predict};
use crate::{control, slot};

/// A stream has the same frames however it is split, and bytes that are not a frame are refused at the
/// same position. The first byte selects the split.
pub fn frames(input: &[u8]) {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    assert_eq!(read(pieces(*seed, stream)), expected(stream));

    let parts: Vec<&[u8]> = parts(stream).collect();
    let mut written = Vec::new();
    for part in &parts {
        frame::append(&mut written, |out| out.extend_from_slice(part));
    }
    let (frames, oversized) = read(pieces(*seed, &written));
    assert_eq!(frames, parts, "the frames read back as they were written");
    assert_eq!(oversized, None);
}

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<Oversized>) {
    let (mut frames, mut buffer) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match frame::complete(&buffer) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    frames.push(buffer[HEADER..HEADER + length].to_vec());
                    buffer.drain(..HEADER + length);
                }
                Err(oversized) => return (frames, Some(oversized)),
            }
        }
    }
    (frames, None)
}

/// A simple implementation of the format that needs the whole stream.
fn expected(mut stream: &[u8]) -> (Vec<Vec<u8>>, Option<Oversized>) {
    let mut frames = Vec::new();
    while let [a, b, c, d, rest @ ..] = stream {
        let length =
            usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16 | usize::from(*d) << 24;
        if length > MAX {
            return (frames, Some(Oversized { length }));
        }
        let Some((frame, later)) = rest.split_at_checked(length) else {
            break;
        };
        frames.push(frame.to_vec());
        stream = later;
    }
    (frames, None)
}

/// A parsed message is written as the same message, and other input does not make the parser panic.
pub fn messages(input: &[u8]) {
    // A macro, because the parsed type borrows from the text that it was parsed from.
    macro_rules! round_trip {
        ($type:ty) => {
            if let Ok(message) = serde_json::from_slice::<$type>(input) {
                let written = serde_json::to_vec(&message).expect("a message can be written");
                let again: $type =
                    serde_json::from_slice(&written).expect("a message parses again");
                assert_eq!(format!("{again:?}"), format!("{message:?}"));
            }
        };
    }
    round_trip!(control::ControlRequest);
    round_trip!(control::ControlResponse);
    round_trip!(slot::SlotRequest<'_>);
    round_trip!(slot::SlotResponse<'_>);
    if let Ok(slot::SlotRequest::Predict(predict @ PredictRequest { input: Some(_), .. })) =
        serde_json::from_slice(input)
    {
        append_input(predict);
    }
}

/// The server inserts the input of a job without parsing it.
fn append_input(mut predict: PredictRequest<'_>) {
    let before = format!("{predict:?}");
    let input = predict.input.take().map_or("", |input| input.get());
    let mut buffer = Vec::new();
    append_predict(&mut buffer, &predict, input.as_bytes());
    assert_eq!(frame::complete(&buffer), Ok(Some(buffer.len() - HEADER)));
    let again = serde_json::from_slice(&buffer[HEADER..]).expect("a job parses");
    assert!(matches!(again, slot::SlotRequest::Predict(again) if format!("{again:?}") == before));
    append_twice(&predict, input.as_bytes(), &before);
}

/// The server joins inputs to a batch without parsing them.
fn append_twice(predict: &PredictRequest<'_>, input: &[u8], expected: &str) {
    let (mut item, mut buffer) = (Vec::new(), Vec::new());
    append_item(&mut item, predict, input);
    append_batch(&mut buffer, [&*item, &*item].into_iter());
    let again = serde_json::from_slice(&buffer[HEADER..]).expect("a batch parses");
    let slot::SlotRequest::Batch(batch) = again else {
        panic!("not a batch: {again:?}");
    };
    let items: Vec<_> = batch.items.iter().map(|item| format!("{item:?}")).collect();
    assert_eq!(items, [expected, expected]);
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn frames_hold_for_generated_inputs() {
        short_run("frames", super::frames);
    }

    #[test]
    fn messages_hold_for_generated_inputs() {
        short_run("messages", super::messages);
    }
}
