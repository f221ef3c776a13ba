//! The names of streams, and the shards of an account.

use std::sync::Arc;

use tidegate_core::Account;
use tidegate_core::queue::QueueName;

/// The consumer group of every stream.
pub(super) const GROUP: &str = "director";
/// The stream of dead letters.
pub(super) const DEAD_LETTERS: &str = "meta:dead";
/// The hash with the number of shards of each queue.
pub(super) const QUEUES: &str = "meta:queues";
/// The key that names the store whose jobs the server holds.
pub(super) const STORE: &str = "meta:store";
/// The key that is lost when the server loses its data.
pub(super) const EPOCH: &str = "meta:epoch";

/// The stream of a shard.
pub(super) fn stream(queue: &QueueName, shard: u16) -> Arc<str> {
    format!("{queue}:s{shard}").into()
}

/// The queue and the shard of a stream.
pub(super) fn parse_stream(stream: &str) -> Option<(QueueName, u16)> {
    let (queue, shard) = stream.rsplit_once(":s")?;
    Some((QueueName::new(queue), shard.parse().ok()?))
}

/// The name of an account in messages: empty for the anonymous account.
pub(super) fn account_name(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}

/// The shards that the messages of an account are pushed to, the preferred one first. All processes choose
/// the same ones, and accounts have different ones, so that the messages of one account are not in the way
/// of all others.
pub(super) fn account_shards(
    queue: &QueueName,
    account: &Account,
    shards: u16,
    count: u16,
) -> Vec<u16> {
    let mut all: Vec<u16> = (0..shards).collect();
    let mut random = SplitMix(fnv1a(queue.as_str(), account_name(account)));
    let count = usize::from(count.clamp(1, shards));
    for chosen in 0..count {
        let left = (all.len() - chosen) as u64;
        let other = chosen + usize::try_from(random.next() % left).unwrap_or(0);
        all.swap(chosen, other);
    }
    all.truncate(count);
    all
}

/// FNV-1a of two texts, the same in every process and version.
fn fnv1a(first: &str, second: &str) -> u64 {
    let bytes = first.bytes().chain([0]).chain(second.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The random numbers of splitmix64.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn queue() -> QueueName {
        QueueName::new("input:prediction:vp-0123456789abcdef0123456789abcdef")
    }

    fn account(n: usize) -> Account {
        Account::parse(&format!("account-{n}")).expect("a name")
    }

    proptest! {
        #[test]
        fn an_account_has_distinct_shards(n in 0..10_000usize, shards in 1..64u16, count in 1..8u16) {
            let chosen = account_shards(&queue(), &account(n), shards, count);
            let distinct: BTreeSet<u16> = chosen.iter().copied().collect();
            prop_assert_eq!(distinct.len(), usize::from(count.min(shards)));
            prop_assert!(distinct.iter().all(|shard| *shard < shards));
            prop_assert_eq!(&chosen, &account_shards(&queue(), &account(n), shards, count));
        }
    }

    #[test]
    fn accounts_are_spread_over_subsets_of_the_shards() {
        let mut subsets: BTreeMap<BTreeSet<u16>, usize> = BTreeMap::new();
        let mut preferred = [0usize; 8];
        for n in 0..5600 {
            let chosen = account_shards(&queue(), &account(n), 8, 3);
            preferred[usize::from(chosen[0])] += 1;
            *subsets.entry(chosen.into_iter().collect()).or_default() += 1;
        }
        assert_eq!(subsets.len(), 56, "all subsets of 3 of 8 shards");
        assert!(subsets.values().all(|count| (40..200).contains(count)));
        assert!(preferred.iter().all(|count| (500..900).contains(count)));
    }

    #[test]
    fn the_shards_of_an_account_never_change() {
        let ann = Account::parse("ann").expect("a name");
        assert_eq!(account_shards(&queue(), &ann, 8, 3), [2, 6, 4]);
    }

    #[test]
    fn streams_name_queue_and_shard() {
        let name = stream(&queue(), 12);
        assert!(name.ends_with(":s12"));
        assert_eq!(parse_stream(&name), Some((queue(), 12)));
        assert_eq!(parse_stream("other"), None);
    }
}
