//! Fuzz targets for the edge.

use tidegate_fuzzing::pieces;

use super::framing::{Framing, Rest};

/// However a stream of requests comes, the same bytes of it are handed on, and it is given up at
/// the same place. The first byte says how it comes.
pub fn framing(input: &[u8]) {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    let (passed, rest) = follow([stream].into_iter());
    let (passed_in_pieces, rest_in_pieces) = follow(pieces(*seed, stream));
    assert_eq!(
        passed.escape_ascii().to_string(),
        passed_in_pieces.escape_ascii().to_string(),
        "other bytes are handed on"
    );
    assert!(stream.starts_with(&passed), "bytes that never came");
    // The words may differ: of the first byte alone, less can be said.
    if std::mem::discriminant(&rest) == std::mem::discriminant(&rest_in_pieces) {
        return;
    }
    // A slow head is not read again before it has come to its end, so what is wrong may be seen later.
    assert!(
        matches!(rest, Rest::Refused(_)) && rest_in_pieces == Rest::Unfinished,
        "{rest:?}, in pieces {rest_in_pieces:?}"
    );
    let ended = [stream, b"\r\n\r\n"].concat();
    let (passed_with_end, rest_with_end) = follow(pieces(*seed, &ended));
    assert_eq!(passed_with_end, passed);
    assert!(
        matches!(rest_with_end, Rest::Refused(_)),
        "{rest:?} is never seen"
    );
}

/// What a connection's reader hands on, and why it stops.
fn follow<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Rest) {
    let mut framing = Framing::new();
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        let followed = framing.follow(&held);
        passed.extend(held.drain(..followed.passed));
        if followed.rest != Rest::Unfinished {
            assert_eq!(
                framing.follow(b"GET / HTTP/1.1\r\n\r\n").passed,
                0,
                "something is read after doubt"
            );
            return (passed, followed.rest);
        }
    }
    (passed, Rest::Unfinished)
}
