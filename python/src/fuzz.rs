//! Fuzz targets: see `docs/fuzzing.md`. The extension itself cannot be linked into a test, so this file
//! and those that it looks at are compiled into `crates/ipc/tests/it/child.rs` and the fuzzer.

use std::io;

use tidegate_fuzzing::pieces;
use tidegate_ipc::frame;

use crate::inbox::{Inbox, Progress};
use crate::lines::Lines;

/// The child finds the same frames as the parent, however they come. The first byte says how.
pub(crate) fn inbox(input: &[u8]) {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    let Some((frames, oversized)) = expected(stream) else {
        return;
    };
    let mut coming = pieces(*seed, stream);
    let mut left: &[u8] = &[];
    let mut inbox = Inbox::default();
    let mut found = Vec::new();
    let ended = loop {
        let progress = inbox.fill(|room| {
            if left.is_empty() {
                left = coming.next().unwrap_or_default();
                if left.len() % 5 == 3 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
            let (now, later) = left.split_at(left.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            left = later;
            Ok(now.len())
        });
        match progress {
            Ok(Progress::Frame) => {
                found.push(inbox.frame().to_vec());
                inbox.consume();
                assert!(inbox.frame().is_empty(), "a frame is there once");
            }
            Ok(Progress::Nothing) => {}
            Ok(Progress::End) => break Ok(()),
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

/// The frames of a stream, and whether it ends with one that is too long. `None` when one is only
/// announced that would take the fuzzer's time with clearing memory.
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

/// What was printed comes out as whole lines, nothing lost, however it was written. The first byte says
/// how.
pub(crate) fn lines(input: &[u8]) {
    let Some((seed, printed)) = input.split_first() else {
        return;
    };
    let mut lines = Lines::default();
    let mut seen = Vec::new();
    for piece in pieces(*seed, printed) {
        lines.push(piece, |line| seen.push(line.into_owned()));
        assert!(
            seen.iter().all(|line| line.ends_with('\n')),
            "an unfinished line is out"
        );
    }
    lines.flush(|line| seen.push(line.into_owned()));
    lines.flush(|_| panic!("a line is out twice"));
    let expected: Vec<_> = printed
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    assert_eq!(seen, expected);
}
