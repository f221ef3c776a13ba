use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidegate_core::queue::Priority;

use super::*;

async fn open() -> ((), Arc<MemoryQueue>) {
    ((), Arc::default())
}

crate::conformance!(open);

/// What is done to a queue, with small numbers so that they meet.
#[derive(Debug, Clone)]
enum Move {
    Push {
        account: u8,
        id: u8,
        priority: Priority,
    },
    Take,
    Done {
        which: u8,
    },
    PutBack {
        which: u8,
    },
    Strike {
        account: u8,
        id: u8,
    },
    Collect,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let priority = prop_oneof![4 => Just(Priority::Normal), 1 => Just(Priority::Low)];
    let one = prop_oneof![
        4 => (0..3u8, 0..8u8, priority).prop_map(|(account, id, priority)| Move::Push { account, id, priority }),
        3 => Just(Move::Take),
        2 => any::<u8>().prop_map(|which| Move::Done { which }),
        1 => any::<u8>().prop_map(|which| Move::PutBack { which }),
        1 => (0..3u8, 0..8u8).prop_map(|(account, id)| Move::Strike { account, id }),
        1 => Just(Move::Collect),
    ];
    proptest::collection::vec(one, 0..120)
}

/// The same in a few words: who waits in which order, and who is in hand.
#[derive(Default)]
struct Told {
    waiting: BTreeMap<String, BTreeSet<(Priority, u64, String)>>,
    taken: Vec<(Claim, u64)>,
    /// Jobs that came once more while they were in hand.
    again: Vec<(String, String, Priority)>,
    last: u64,
}

impl Told {
    fn push(&mut self, account: String, id: String, priority: Priority) {
        self.last += 1;
        self.waiting
            .entry(account)
            .or_default()
            .insert((priority, self.last, id));
    }

    fn waits(&self, account: &str, id: &str) -> bool {
        self.waiting
            .get(account)
            .is_some_and(|line| line.iter().any(|(_, _, other)| other == id))
    }

    fn is_taken(&self, account: &str, id: &str) -> bool {
        self.taken.iter().any(|(claim, _)| {
            claim.entry.account.as_str() == account && claim.entry.id.as_str() == id
        })
    }
}

fn check(moves: Vec<Move>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (queue, line, consumer) = (
            MemoryQueue::default(),
            QueueName::new("l"),
            Consumer::new("h"),
        );
        let mut told = Told::default();
        for step in moves {
            match step {
                Move::Push {
                    account,
                    id,
                    priority,
                } => {
                    let (account, id) = (format!("a{account}"), format!("j{id}"));
                    let (owner, job) = (
                        Account::parse(&account).expect("a name"),
                        JobId::parse(&id).expect("an id"),
                    );
                    queue
                        .push(
                            &line,
                            QueueEntry {
                                account: owner,
                                id: job,
                                priority,
                                deadline: None,
                            },
                        )
                        .await
                        .expect("memory");
                    if told.is_taken(&account, &id) {
                        told.again
                            .retain(|(other, name, _)| (other, name) != (&account, &id));
                        told.again.push((account, id, priority));
                    } else if !told.waits(&account, &id) {
                        told.push(account, id, priority);
                    }
                }
                Move::Take => match queue
                    .take(&line, &consumer, Duration::ZERO)
                    .await
                    .expect("memory")
                {
                    None => assert!(
                        told.waiting.values().all(BTreeSet::is_empty),
                        "somebody waits"
                    ),
                    Some(claim) => {
                        let mine = told
                            .waiting
                            .get_mut(claim.entry.account.as_str())
                            .expect("it was pushed");
                        let (_, number, id) = mine.pop_first().expect("it was pushed");
                        assert_eq!(claim.entry.id.as_str(), id, "first come, first served");
                        told.taken.push((claim, number));
                    }
                },
                Move::Done { which } if !told.taken.is_empty() => {
                    let (claim, _) = told
                        .taken
                        .swap_remove(usize::from(which) % told.taken.len());
                    assert!(queue.ack(&claim).await.expect("memory"));
                    assert!(!queue.ack(&claim).await.expect("memory"), "once");
                    let same = |(account, id, _): &(String, String, Priority)| {
                        claim.entry.account.as_str() == account && claim.entry.id.as_str() == id
                    };
                    if let Some(place) = told.again.iter().position(same) {
                        let (account, id, priority) = told.again.remove(place);
                        told.push(account, id, priority);
                    }
                }
                Move::PutBack { which } if !told.taken.is_empty() => {
                    let (claim, number) = told
                        .taken
                        .swap_remove(usize::from(which) % told.taken.len());
                    queue.put_back(&claim).await.expect("memory");
                    let QueueEntry {
                        account,
                        id,
                        priority,
                        ..
                    } = &claim.entry;
                    told.again.retain(|(other, name, _)| {
                        (account.as_str(), id.as_str()) != (other, name)
                    });
                    told.waiting
                        .entry(account.to_string())
                        .or_default()
                        .insert((*priority, number, id.to_string()));
                }
                Move::Strike { account, id } => {
                    let (account, id) = (format!("a{account}"), format!("j{id}"));
                    let (owner, job) = (
                        Account::parse(&account).expect("a name"),
                        JobId::parse(&id).expect("an id"),
                    );
                    queue.remove(&line, &owner, &job).await.expect("memory");
                    if let Some(mine) = told.waiting.get_mut(&account) {
                        mine.retain(|(_, _, other)| *other != id);
                    }
                }
                Move::Collect => drop(queue.collect().await),
                Move::Done { .. } | Move::PutBack { .. } => {}
            }
            let depth = QueueDepth {
                waiting: told.waiting.values().map(BTreeSet::len).sum(),
                taken: told.taken.len(),
            };
            assert_eq!(queue.depth(&line).await.expect("memory"), depth);
        }
    });
}

proptest! {
    #[test]
    fn nobody_is_lost_or_handed_out_twice_or_out_of_order(moves in moves()) {
        check(moves);
    }
}

#[tokio::test]
async fn accounts_take_turns_one_by_one() {
    let (queue, line, consumer) = (
        MemoryQueue::default(),
        QueueName::new("l"),
        Consumer::new("h"),
    );
    for (account, count) in [("large", 200), ("small", 4)] {
        for n in 0..count {
            let id = JobId::parse(&format!("{account}-{n}")).expect("an id");
            let account = Account::parse(account).expect("a name");
            queue
                .push(
                    &line,
                    QueueEntry {
                        account,
                        id,
                        priority: Priority::Normal,
                        deadline: None,
                    },
                )
                .await
                .expect("memory");
        }
    }
    let mut first = Vec::new();
    for _ in 0..8 {
        let claim = queue
            .take(&line, &consumer, Duration::ZERO)
            .await
            .expect("memory")
            .expect("one waits");
        first.push(claim.entry.account.to_string());
    }
    assert_eq!(
        first,
        [
            "large", "small", "large", "small", "large", "small", "large", "small"
        ]
    );
}
