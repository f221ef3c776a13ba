//! The hash of affinity keys. It is the same in all routers and versions, so that they choose the same
//! endpoint; it does not resist clients that search for collisions, who only choose an endpoint.

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const SEED: u64 = 0x2545_F491_4F6C_DD1D;

/// The hash of a key.
pub fn affinity_hash(bytes: &[u8]) -> u64 {
    let mut hasher = AffinityHasher::new(bytes.len());
    hasher.write(bytes);
    hasher.finish()
}

/// Hashes the beginning of a text that arrives in parts.
#[derive(Debug, Clone)]
pub(super) struct AffinityHasher {
    state: u64,
    /// Bytes that are not a whole word yet.
    word: [u8; 8],
    filled: usize,
    /// How many more bytes count.
    left: usize,
    length: u64,
}

impl AffinityHasher {
    /// A hasher of up to `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: SEED,
            word: [0; 8],
            filled: 0,
            left: limit,
            length: 0,
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        let mut bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        self.length += bytes.len() as u64;
        if self.filled > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(8 - self.filled));
            self.fill(head);
            bytes = rest;
        }
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word.copy_from_slice(word);
            self.mix();
        }
        self.fill(words.remainder());
    }

    pub(super) fn finish(mut self) -> u64 {
        self.word[self.filled..].fill(0);
        self.mix();
        self.word = self.length.to_le_bytes();
        self.mix();
        self.state
    }

    /// Adds less than a word.
    fn fill(&mut self, bytes: &[u8]) {
        self.word[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        if self.filled == 8 {
            self.mix();
        }
    }

    fn mix(&mut self) {
        let word = u64::from_le_bytes(self.word);
        let product = u128::from(self.state ^ word) * u128::from(MULTIPLIER);
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.state = (low ^ high).wrapping_add(SEED);
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_keys_have_different_hashes() {
        let keys = (0..1000).map(|n| format!("user-{n}"));
        let zeros = (0..100).map(|n| "\0".repeat(n));
        let hashes: std::collections::HashSet<u64> = keys
            .chain(zeros)
            .map(|key| affinity_hash(key.as_bytes()))
            .collect();
        assert_eq!(hashes.len(), 1100);
    }

    /// Routers of different versions share the traffic of a fleet.
    #[test]
    fn the_hash_does_not_change() {
        assert_eq!(affinity_hash(b"user-1"), 4_277_945_130_007_778_289);
    }

    proptest::proptest! {
        #[test]
        fn the_division_into_parts_does_not_matter(
            parts in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..20), 0..6),
            limit in 0usize..60,
        ) {
            let whole = parts.concat();
            let mut hasher = AffinityHasher::new(limit);
            for part in &parts {
                hasher.write(part);
            }
            proptest::prop_assert_eq!(hasher.finish(), affinity_hash(&whole[..whole.len().min(limit)]));
        }
    }
}
