//! Fuzz targets: see `docs/fuzzing.md`. The extension itself cannot be linked into a test, so this
//! file and those that it tests are compiled into `crates/ipc/tests/it/child.rs` and the fuzzer.

use std::io;

use tidegate_fuzzing::pieces;
use tidegate_ipc::frame;

use crate::frame_buffer::{FillStatus, FrameBuffer};
use crate::line_buffer::LineBuffer;

/// The child finds the same frames as the parent, however the stream is split. The first byte
/// selects the split.
pub(crate) fn frame_buffer(input: &[u8]) {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    let Some((frames, oversized)) = expected(stream) else {
        return;
    };
    let mut pieces_left = pieces(*seed, stream);
    let mut unread: &[u8] = &[];
    let mut buffer = FrameBuffer::default();
    let mut found = Vec::new();
    let ended = loop {
        let status = buffer.fill(|space| {
            if unread.is_empty() {
                unread = pieces_left.next().unwrap_or_default();
                if unread.len() % 5 == 3 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
            let (now, later) = unread.split_at(unread.len().min(space.len()));
            space[..now.len()].copy_from_slice(now);
            unread = later;
            Ok(now.len())
        });
        match status {
            Ok(FillStatus::Frame) => {
                found.push(buffer.frame().to_vec());
                buffer.consume();
                assert!(buffer.frame().is_empty(), "the frame is consumed");
            }
            Ok(FillStatus::Incomplete) => {}
            Ok(FillStatus::End) => break Ok(()),
            Err(error) => break Err(error.kind()),
        }
    };
    assert_eq!(found, frames);
    assert_eq!(
        ended,
        if oversized {
            Err(io::ErrorKind::InvalidData)
        } else {
            Ok(())
        }
    );
}

/// The frames of a stream, and whether it ends with a frame that is too long. `None` if the stream
/// announces a large frame that it does not contain: clearing its buffer would only cost time.
fn expected(mut stream: &[u8]) -> Option<(Vec<Vec<u8>>, bool)> {
    const LARGE: usize = 1024 * 1024;
    let mut frames = Vec::new();
    while let Some((header, rest)) = stream.split_first_chunk::<{ frame::HEADER }>() {
        let length = u32::from_le_bytes(*header) as usize;
        if length > frame::MAX {
            return Some((frames, true));
        }
        match rest.split_at_checked(length) {
            Some((frame, later)) => {
                frames.push(frame.to_vec());
                stream = later;
            }
            None if length > LARGE => return None,
            None => break,
        }
    }
    Some((frames, false))
}

/// Printed bytes come out as whole lines and nothing is lost, however they are split. The first byte
/// selects the split.
pub(crate) fn line_buffer(input: &[u8]) {
    let Some((seed, printed)) = input.split_first() else {
        return;
    };
    let mut buffer = LineBuffer::default();
    let mut seen = Vec::new();
    for piece in pieces(*seed, printed) {
        buffer.push(piece, |line| seen.push(line.into_owned()));
        assert!(
            seen.iter().all(|line| line.ends_with('\n')),
            "an unfinished line was emitted"
        );
    }
    assert_eq!(
        buffer.is_empty(),
        printed.is_empty() || printed.ends_with(b"\n")
    );
    buffer.flush(|line| seen.push(line.into_owned()));
    buffer.flush(|_| panic!("a line was emitted twice"));
    let expected: Vec<_> = printed
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    assert_eq!(seen, expected);
}
