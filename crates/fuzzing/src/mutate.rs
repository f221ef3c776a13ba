//! Random changes of inputs, like those of a coverage-guided fuzzer but without feedback.

use crate::END;
use crate::random::Random;

/// Larger inputs are truncated; the long runs cover large inputs.
const MAX_INPUT: usize = 4096;

/// Bytes that have a meaning in one of the formats.
const INTERESTING: &[u8] =
    b"\0\x01\x7f\x80\xc3\xfe\xff \t\r\n\"'\\/%.,:;=-+#&@[]{}()<>0123456789abefnrtu";

/// Applies one to four changes to `input`. Some of them copy from `other`.
pub(crate) fn mutate(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        mutate_once(random, input, other);
    }
    input.truncate(MAX_INPUT);
}

fn mutate_once(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(input.len() + 1);
    let interesting = INTERESTING[random.below(INTERESTING.len())];
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = interesting,
        2 if at < input.len() => input[at] = random.next() as u8,
        3 if at < input.len() => drop(input.drain(at..input.len().min(at + 1 + random.below(16)))),
        4 => input.truncate(at),
        5 => input.insert(at, interesting),
        6 => {
            let part = part(random, other).to_vec();
            input.splice(at..at, part);
        }
        7 => {
            let part = part(random, input).to_vec();
            for _ in 0..=random.below(8) {
                input.splice(at..at, part.iter().copied());
            }
        }
        _ => {
            input.push(END);
            input.extend_from_slice(other);
        }
    }
}

fn part<'a>(random: &mut Random, bytes: &'a [u8]) -> &'a [u8] {
    let from = random.below(bytes.len() + 1);
    let length = random.below((bytes.len() - from).min(64) + 1);
    &bytes[from..from + length]
}
