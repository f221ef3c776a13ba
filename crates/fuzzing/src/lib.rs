//! Helpers of the fuzz targets. A target is a function that takes arbitrary bytes and panics when an
//! invariant does not hold; `docs/fuzzing.md` explains how to add and run one.
//!
//! This is not code of the product: other crates depend on it in tests and under `--cfg fuzzing`.

mod mutate;
mod random;
mod run;

pub use run::short_run;

use random::Random;

/// Separates the parts of an input. The byte does not occur in UTF-8, so a part can be any text.
pub const END: u8 = 0xFF;

/// The parts of an input, for targets that need several values.
pub fn parts(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split(|byte| *byte == END)
}

/// Splits `stream` into non-empty pieces, as a connection might deliver it; `seed` selects the split.
pub fn pieces(seed: u8, stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut random = Random::new(seed.into());
    // Every fourth seed gives single bytes, the others pieces of up to this size.
    let max_size = [1, 4, 32, 1024][usize::from(seed % 4)];
    let mut rest = stream;
    std::iter::from_fn(move || {
        let (piece, later) = rest.split_at(rest.len().min(1 + random.below(max_size)));
        rest = later;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_together_are_the_stream() {
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
