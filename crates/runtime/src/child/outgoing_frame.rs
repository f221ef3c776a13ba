//! The frame of a job on its way to the child.

use std::io::IoSlice;

use bytes::Bytes;
use tidegate_ipc::slot::{self, PredictRequest};

use super::slot_socket::{SlotSocket, SlotSocketError};

/// A larger input is sent from the client's own bytes; copying a smaller one costs less than a third
/// buffer.
const LARGE: usize = 64 * 1024;

/// A frame, of which a part was sent. Empty by default.
#[derive(Default)]
pub(crate) struct OutgoingFrame {
    /// Everything, or what comes before a large input.
    head: Vec<u8>,
    /// A large input, and what comes after it.
    input: Option<Bytes>,
    sent: usize,
}

impl OutgoingFrame {
    /// The frame of a job; the caller guarantees that `input` is one JSON object.
    pub(crate) fn new(predict: &PredictRequest<'_>, input: Bytes) -> Self {
        let mut frame = Self::default();
        if input.len() < LARGE {
            frame.head.reserve(input.len() + 256);
            slot::append_predict(&mut frame.head, predict, &input);
        } else {
            slot::append_predict_head(&mut frame.head, predict, input.len());
            frame.input = Some(input);
        }
        frame
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// Writes what was not sent yet. Cancel-safe.
    pub(crate) async fn send(&mut self, socket: &mut SlotSocket) -> Result<(), SlotSocketError> {
        while self.sent < self.len() {
            let mut parts = self.parts().map(IoSlice::new);
            let mut rest = &mut parts[..];
            IoSlice::advance_slices(&mut rest, self.sent);
            self.sent += socket.write_some_parts(rest).await?;
        }
        Ok(())
    }

    fn parts(&self) -> [&[u8]; 3] {
        match &self.input {
            None => [&self.head, &[], &[]],
            Some(input) => [&self.head, input, slot::PREDICT_TAIL],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_ipc::slot::WireJobKind;

    use super::*;

    #[test]
    fn a_large_input_gives_the_same_bytes() {
        let predict = PredictRequest {
            id: "a".into(),
            kind: WireJobKind::Prediction,
            input: None,
            input_file: None,
            output_dir: "/tmp".into(),
            files: BTreeMap::new(),
            context: BTreeMap::new(),
        };
        for length in [LARGE - 1, LARGE, 3 * LARGE] {
            let input = Bytes::from(format!("{{\"text\":\"{}\"}}", "x".repeat(length - 11)));
            assert_eq!(input.len(), length);
            let mut expected = Vec::new();
            slot::append_predict(&mut expected, &predict, &input);
            let frame = OutgoingFrame::new(&predict, input);
            assert_eq!(frame.len(), expected.len());
            assert!(frame.parts().concat() == expected, "{length}");
        }
    }
}
