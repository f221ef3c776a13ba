//! What the fuzz targets share. A target is a function that takes any bytes and panics when something
//! that must always hold does not; `docs/fuzzing.md` says how one is added and run.
//!
//! No code of the program is here, and the program does not depend on it: crates have it as a
//! dependency of their tests, and under `--cfg fuzzing`.

mod mutate;
mod random;
mod run;

pub use run::short_run;

use random::Random;

/// Ends a part of an input. It is in no UTF-8 text, so that a part can hold any text.
pub const END: u8 = 0xFF;

/// The parts of an input, for targets that need several values.
pub fn parts(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split(|byte| *byte == END)
}

/// `stream` in pieces as a connection might bring it: what `seed` says, none of them empty.
pub fn pieces(seed: u8, stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut random = Random::new(seed.into());
    // Every fourth seed gives single bytes, the others pieces up to this many.
    let most = [1, 4, 32, 1024][usize::from(seed % 4)];
    let mut rest = stream;
    std::iter::from_fn(move || {
        let (piece, later) = rest.split_at(rest.len().min(1 + random.below(most)));
        rest = later;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_stream() {
        let stream: Vec<u8> = (0..=255).collect();
        for seed in 0..=255 {
            let pieces: Vec<_> = pieces(seed, &stream).collect();
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
            assert_eq!(pieces.concat(), stream);
        }
        assert_eq!(pieces(3, &[]).count(), 0);
    }

    #[test]
    fn parts_can_be_empty() {
        assert_eq!(
            parts(b"a\xffb c\xff").collect::<Vec<_>>(),
            [&b"a"[..], b"b c", b""]
        );
    }
}
