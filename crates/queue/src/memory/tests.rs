//! The conformance suite, and a property test against a reference model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidegate_core::queue::Priority;

use super::*;

async fn open() -> ((), Arc<MemoryQueue>) {
    ((), Arc::default())
}

crate::conformance!(embedded open);

/// An operation on a queue. The numbers are small, so that operations meet the same entries.
#[derive(Debug, Clone)]
enum Step {
    Push {
        account: u8,
        id: u8,
        priority: Priority,
    },
    Take,
    Ack {
        index: u8,
    },
    PutBack {
        index: u8,
    },
    Remove {
        account: u8,
        id: u8,
    },
    Collect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![4 => Just(Priority::Normal), 1 => Just(Priority::Low)];
    let one = prop_oneof![
        4 => (0..3u8, 0..8u8, priority).prop_map(|(account, id, priority)| Step::Push { account, id, priority }),
        3 => Just(Step::Take),
        2 => any::<u8>().prop_map(|index| Step::Ack { index }),
        1 => any::<u8>().prop_map(|index| Step::PutBack { index }),
        1 => (0..3u8, 0..8u8).prop_map(|(account, id)| Step::Remove { account, id }),
        1 => Just(Step::Collect),
    ];
    proptest::collection::vec(one, 0..120)
}

/// A simple reference model: the waiting entries in order, and the taken ones.
#[derive(Default)]
struct ReferenceModel {
    waiting: BTreeMap<String, BTreeSet<(Priority, u64, String)>>,
    taken: Vec<(Claim, u64)>,
    /// Jobs that were pushed again while they were taken.
    pushed_again: Vec<(String, String, Priority)>,
    last: u64,
}

impl ReferenceModel {
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
            .is_some_and(|entries| entries.iter().any(|(_, _, other)| other == id))
    }

    fn is_taken(&self, account: &str, id: &str) -> bool {
        self.taken.iter().any(|(claim, _)| {
            claim.entry.account.as_str() == account && claim.entry.id.as_str() == id
        })
    }
}

fn check(steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (queue, name) = (MemoryQueue::default(), QueueName::new("l"));
        let mut model = ReferenceModel::default();
        for step in steps {
            match step {
                Step::Push {
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
                            &name,
                            QueueEntry {
                                account: owner,
                                id: job,
                                priority,
                                deadline: None,
                                details: None,
                            },
                        )
                        .await
                        .expect("memory");
                    if model.is_taken(&account, &id) {
                        model
                            .pushed_again
                            .retain(|(other, other_id, _)| (other, other_id) != (&account, &id));
                        model.pushed_again.push((account, id, priority));
                    } else if !model.waits(&account, &id) {
                        model.push(account, id, priority);
                    }
                }
                Step::Take => match queue
                    .take(&name, TakeOptions::within(Duration::ZERO))
                    .await
                    .expect("memory")
                {
                    None => assert!(
                        model.waiting.values().all(BTreeSet::is_empty),
                        "an entry waits"
                    ),
                    Some(claim) => {
                        let mine = model
                            .waiting
                            .get_mut(claim.entry.account.as_str())
                            .expect("it was pushed");
                        let (_, number, id) = mine.pop_first().expect("it was pushed");
                        assert_eq!(claim.entry.id.as_str(), id, "first come, first served");
                        model.taken.push((claim, number));
                    }
                },
                Step::Ack { index } if !model.taken.is_empty() => {
                    let (claim, _) = model
                        .taken
                        .swap_remove(usize::from(index) % model.taken.len());
                    assert!(queue.ack(&claim).await.expect("memory"));
                    assert!(
                        !queue.ack(&claim).await.expect("memory"),
                        "a claim is acked once"
                    );
                    let same = |(account, id, _): &(String, String, Priority)| {
                        claim.entry.account.as_str() == account && claim.entry.id.as_str() == id
                    };
                    if let Some(position) = model.pushed_again.iter().position(same) {
                        let (account, id, priority) = model.pushed_again.remove(position);
                        model.push(account, id, priority);
                    }
                }
                Step::PutBack { index } if !model.taken.is_empty() => {
                    let (claim, number) = model
                        .taken
                        .swap_remove(usize::from(index) % model.taken.len());
                    queue.put_back(&claim).await.expect("memory");
                    let QueueEntry {
                        account,
                        id,
                        priority,
                        ..
                    } = &claim.entry;
                    model.pushed_again.retain(|(other, other_id, _)| {
                        (account.as_str(), id.as_str()) != (other, other_id)
                    });
                    model
                        .waiting
                        .entry(account.to_string())
                        .or_default()
                        .insert((*priority, number, id.to_string()));
                }
                Step::Remove { account, id } => {
                    let (account, id) = (format!("a{account}"), format!("j{id}"));
                    let (owner, job) = (
                        Account::parse(&account).expect("a name"),
                        JobId::parse(&id).expect("an id"),
                    );
                    queue.remove(&name, &owner, &job).await.expect("memory");
                    if let Some(mine) = model.waiting.get_mut(&account) {
                        mine.retain(|(_, _, other)| *other != id);
                    }
                }
                Step::Collect => drop(queue.collect().await),
                Step::Ack { .. } | Step::PutBack { .. } => {}
            }
            let depth = QueueDepth {
                waiting: model.waiting.values().map(BTreeSet::len).sum(),
                claimed: model.taken.len(),
            };
            assert_eq!(queue.depth(&name).await.expect("memory"), depth);
        }
    });
}

proptest! {
    #[test]
    fn no_entry_is_lost_or_taken_twice_or_out_of_order(steps in steps()) {
        check(steps);
    }
}
