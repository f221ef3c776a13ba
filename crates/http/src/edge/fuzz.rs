//! Fuzz targets for the edge.

use tidegate_fuzzing::pieces;

use super::framing::{Framing, FramingStatus};

/// However a stream of requests is split into pieces, the same bytes are accepted and the stream
/// fails at the same position. The first byte selects the pieces.
pub fn framing(input: &[u8]) {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    let (accepted, status) = follow([stream].into_iter());
    let (accepted_in_pieces, status_in_pieces) = follow(pieces(*seed, stream));
    assert_eq!(
        accepted.escape_ascii().to_string(),
        accepted_in_pieces.escape_ascii().to_string(),
        "different bytes are accepted"
    );
    assert!(
        stream.starts_with(&accepted),
        "accepted bytes are not in the stream"
    );
    // The messages may differ: the first byte alone tells less.
    if std::mem::discriminant(&status) == std::mem::discriminant(&status_in_pieces) {
        return;
    }
    // A slow head is not parsed again before its end has arrived, so an error may be found later.
    assert!(
        matches!(status, FramingStatus::Rejected(_)) && status_in_pieces == FramingStatus::NeedMore,
        "{status:?}, in pieces {status_in_pieces:?}"
    );
    let ended = [stream, b"\r\n\r\n"].concat();
    let (accepted_with_end, status_with_end) = follow(pieces(*seed, &ended));
    assert_eq!(accepted_with_end, accepted);
    assert!(
        matches!(status_with_end, FramingStatus::Rejected(_)),
        "{status:?} is never found"
    );
}

/// What the reader of a connection accepts, and why it stops.
fn follow<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, FramingStatus) {
    let mut framing = Framing::new();
    let (mut accepted, mut buffered) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffered.extend_from_slice(piece);
        let step = framing.follow(&buffered);
        accepted.extend(buffered.drain(..step.accepted));
        if step.status != FramingStatus::NeedMore {
            assert_eq!(
                framing.follow(b"GET / HTTP/1.1\r\n\r\n").accepted,
                0,
                "bytes are accepted after a failure"
            );
            return (accepted, step.status);
        }
    }
    (accepted, FramingStatus::NeedMore)
}
