use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, PartialEq)]
struct Item {
    n: usize,
    alone: bool,
    gone: bool,
    bytes: usize,
}

impl Waiting for Item {
    fn is_alone(&self) -> bool {
        self.alone
    }

    fn is_gone(&self) -> bool {
        self.gone
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

fn item(n: usize) -> Item {
    Item {
        n,
        alone: false,
        gone: false,
        bytes: 100,
    }
}

fn former(max_size: u32, children: usize) -> BatchFormer<Item> {
    let mut former = BatchFormer::new();
    for _ in 0..children {
        former.add_child(BatchLimits {
            max_size,
            max_message: max_size,
            max_wait_micros: 5000,
        });
    }
    former
}

/// The size of the batch that runs at `now`; zero if the child waits.
fn run(former: &mut BatchFormer<Item>, now: Instant) -> usize {
    match former.next(now) {
        NextBatch::Run(items) => items.len(),
        NextBatch::WaitUntil(_) | NextBatch::Wait => 0,
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_single_client_never_waits() {
    let (mut former, mut now) = (former(16, 1), Instant::now());
    for n in 0..20 {
        former.push(item(n), now);
        assert_eq!(run(&mut former, now), 1, "request {n}");
        former.ended(1, now);
        now += MS;
    }
}

#[test]
fn clients_that_answer_in_step_share_a_batch() {
    let (mut former, now) = (former(16, 1), Instant::now());
    former.push(item(0), now);
    assert_eq!(
        run(&mut former, now),
        1,
        "nothing is known of the others yet"
    );
    for n in 1..12 {
        former.push(item(n), now);
    }
    former.ended(1, now);
    for _ in 0..10 {
        // The eleven others arrived while the batch ran; the twelfth comes back a little later.
        assert_eq!(run(&mut former, now), 0, "one is missing");
        former.push(item(0), now + MS);
        assert_eq!(run(&mut former, now + MS), 12);
        former.ended(12, now);
        for n in 1..12 {
            former.push(item(n), now);
        }
    }
}

#[test]
fn items_that_waited_for_a_busy_child_wait_for_those_that_it_ran() {
    let (mut former, now) = (former(16, 1), Instant::now());
    for n in 0..4 {
        former.push(item(n), now);
    }
    assert_eq!(run(&mut former, now), 4);
    for n in 4..8 {
        former.push(item(n), now + MS);
    }
    // The call takes longer than an item may wait.
    let end = now + 10 * MS;
    former.ended(4, end);
    assert_eq!(former.next(end), NextBatch::WaitUntil(end + 5 * MS));
    for n in 0..4 {
        former.push(item(n), end + MS);
    }
    assert_eq!(run(&mut former, end + MS), 8);
}

#[test]
fn an_item_waits_no_longer_than_allowed() {
    let (mut former, now) = (former(16, 1), Instant::now());
    for n in 0..8 {
        former.push(item(n), now);
    }
    assert_eq!(run(&mut former, now), 8);
    former.ended(8, now);
    former.push(item(8), now);
    assert_eq!(former.next(now), NextBatch::WaitUntil(now + 5 * MS));
    assert_eq!(run(&mut former, now + 5 * MS), 1);
}

#[test]
fn load_that_has_ended_is_forgotten() {
    let (mut former, now) = (former(16, 1), Instant::now());
    for n in 0..64 {
        former.push(item(n), now);
    }
    for _ in 0..4 {
        assert_eq!(run(&mut former, now), 16);
        former.ended(16, now);
    }
    let waited = (0..100)
        .take_while(|n| {
            former.push(item(*n), now);
            let waits = run(&mut former, now) == 0;
            if waits {
                assert_eq!(run(&mut former, now + 5 * MS), 1);
            }
            former.ended(1, now);
            waits
        })
        .count();
    assert!(waited < 12, "{waited} requests of a single client waited");
}

#[test]
fn each_free_child_gets_its_share() {
    let (mut former, now) = (former(16, 2), Instant::now());
    for n in 0..12 {
        former.push(item(n), now);
    }
    assert_eq!(
        run(&mut former, now),
        6,
        "the others are for the other child"
    );
    assert_eq!(run(&mut former, now), 6);
    former.ended(6, now);
    for n in 0..6 {
        former.push(item(n), now);
    }
    assert_eq!(run(&mut former, now), 6, "the other child is busy");
}

#[test]
fn load_before_an_idle_time_is_forgotten() {
    let (mut former, now) = (former(16, 1), Instant::now());
    for n in 0..16 {
        former.push(item(n), now);
    }
    assert_eq!(run(&mut former, now), 16);
    former.ended(16, now);
    former.push(item(16), now + 51 * MS);
    assert_eq!(run(&mut former, now + 51 * MS), 1, "it does not wait");
}

#[test]
fn a_kill_for_memory_makes_batches_smaller_for_a_while() {
    let (mut former, now) = (former(16, 1), Instant::now());
    former.out_of_memory(16);
    let sizes: Vec<_> = (0..1000)
        .map(|_| {
            while former.waiting.len() < 16 {
                former.push(item(0), now);
            }
            let size = run(&mut former, now);
            former.ended(size, now);
            size
        })
        .collect();
    assert_eq!((sizes[0], sizes[999]), (8, 16));
    assert!(sizes.is_sorted(), "{sizes:?}");
}

#[test]
fn items_that_are_gone_free_their_memory_at_once() {
    let (mut former, now) = (former(16, 1), Instant::now());
    former.push(item(0), now);
    let gone = Item {
        gone: true,
        ..item(1)
    };
    former.push(gone, now);
    former.remove_gone();
    assert_eq!(former.waiting.len(), 1);
}

#[test]
fn a_message_has_more_items_than_a_call_only_while_their_groups_differ() {
    let now = Instant::now();
    let mut former = former(4, 1);
    former.limits.max_message = 8;
    let mut message = |call: Option<usize>| {
        (0..12).for_each(|n| former.push(item(n), now));
        let size = run(&mut former, now);
        former.sorted(call.unwrap_or(size), size);
        former.ended(size, now);
        former.take_all();
        size
    };
    assert_eq!(message(Some(4)), 8, "the groups are not known yet");
    assert_eq!(message(Some(4)), 4, "all were of one group");
    assert_eq!(message(Some(3)), 4);
    assert_eq!(message(None), 8, "the last ones were not");
}

#[test]
fn a_large_item_gets_a_message_of_its_own() {
    let (mut former, now) = (former(16, 1), Instant::now());
    let large = |n| Item {
        bytes: 20 * 1024 * 1024,
        ..item(n)
    };
    former.push(large(0), now);
    former.push(large(1), now);
    assert_eq!(run(&mut former, now), 1);
    assert_eq!(run(&mut former, now + 5 * MS), 1);
}

#[test]
fn a_full_batch_is_sent_ahead_and_a_smaller_one_is_not() {
    let (mut former, now) = (former(4, 1), Instant::now());
    (0..4).for_each(|n| former.push(item(n), now));
    assert_eq!(former.next_ahead(), None, "the child is free");
    assert_eq!(run(&mut former, now), 4);
    (4..7).for_each(|n| former.push(item(n), now));
    assert_eq!(former.next_ahead(), None);
    former.push(item(7), now);
    let ahead = former.next_ahead().unwrap_or_default();
    assert_eq!(
        ahead.iter().map(|item| item.n).collect::<Vec<_>>(),
        [4, 5, 6, 7]
    );
    assert_eq!(former.waiting(), 0);
}

#[test]
fn an_item_that_must_run_alone_is_not_sent_ahead() {
    let (mut former, now) = (former(2, 1), Instant::now());
    (0..2).for_each(|n| former.push(item(n), now));
    assert_eq!(run(&mut former, now), 2);
    let alone = Item {
        alone: true,
        ..item(2)
    };
    former.push_front(vec![alone], now);
    (3..6).for_each(|n| former.push(item(n), now));
    assert_eq!(former.next_ahead(), None);
}

#[test]
fn no_child_gets_a_second_batch_that_another_could_run_first() {
    let (mut former, now) = (former(4, 2), Instant::now());
    (0..4).for_each(|n| former.push(item(n), now));
    assert_eq!(run(&mut former, now), 2);
    assert_eq!(former.next_ahead(), None, "the other child is free");
    assert_eq!(run(&mut former, now), 2);
    (0..4).for_each(|n| former.push(item(n), now));
    assert_eq!(former.next_ahead(), None, "the first free child runs it");
    (0..4).for_each(|n| former.push(item(n), now));
    assert!(former.next_ahead().is_some(), "one for each");
    assert!(former.next_ahead().is_some());
}

#[test]
fn a_child_that_starts_the_batch_sent_ahead_was_never_free() {
    let (mut former, now) = (former(4, 1), Instant::now());
    (0..8).for_each(|n| former.push(item(n), now));
    assert_eq!(run(&mut former, now), 4);
    assert!(former.next_ahead().is_some());
    former.push(item(8), now);
    let end = now + 10 * MS;
    former.ended_before_next(4, 4, end);
    assert_eq!(former.next_ahead(), None, "a single item is no full batch");
    // The wait of the ninth item begins when the child is free, and the others come back in time.
    former.ended(4, end + 10 * MS);
    assert_eq!(
        former.next(end + 10 * MS),
        NextBatch::WaitUntil(end + 15 * MS)
    );
}

#[test]
fn a_batch_that_was_given_back_obeys_the_limit_after_a_kill_for_memory() {
    let (mut former, now) = (former(4, 1), Instant::now());
    (0..8).for_each(|n| former.push(item(n), now));
    assert_eq!(run(&mut former, now), 4);
    let ahead = former.next_ahead().unwrap_or_default();
    former.out_of_memory(4);
    former.ahead_left(4);
    former.push_front(ahead, now);
    former.ended(4, now);
    assert_eq!(run(&mut former, now), 2);
}

proptest! {
    /// Whatever arrives: every item whose result is wanted runs once, in order, within the limits.
    #[test]
    fn no_item_is_lost_or_repeated(
        steps in proptest::collection::vec((0..6u8, any::<bool>(), any::<bool>()), 1..200),
        max_size in 1..6u32,
        children in 1..4usize,
    ) {
        let (mut former, mut now) = (former(max_size, children), Instant::now());
        let (mut pushed, mut ran) = (Vec::new(), Vec::new());
        // The sizes of the batches that run; each child runs the batch that it has ahead next.
        let (mut running, mut ahead) = (Vec::<usize>::new(), Vec::<usize>::new());
        for (step, alone, gone) in steps {
            match step {
                0 | 1 => {
                    let new = Item { alone, gone, ..item(pushed.len()) };
                    pushed.push(new.clone());
                    former.push(new, now);
                }
                2 => now += MS,
                3 if running.len() < children => {
                    if let NextBatch::Run(items) = former.next(now) {
                        prop_assert!(!items.is_empty() && items.len() <= max_size as usize);
                        prop_assert!(items.len() == 1 || items.iter().all(|item| !item.alone));
                        running.push(items.len());
                        ran.extend(items);
                    }
                }
                4 if ahead.len() < running.len() => {
                    if let Some(items) = former.next_ahead() {
                        prop_assert_eq!(running.len(), children);
                        prop_assert_eq!(items.len(), max_size as usize);
                        prop_assert!(items.iter().all(|item| !item.alone));
                        ahead.push(items.len());
                        ran.extend(items);
                    }
                }
                _ => match (running.pop(), ahead.pop()) {
                    (Some(ended), Some(next)) => {
                        former.ended_before_next(ended, next, now);
                        running.push(next);
                    }
                    (Some(ended), None) => former.ended(ended, now),
                    _ => {}
                },
            }
        }
        for next in ahead {
            former.ahead_left(next);
        }
        for ended in running {
            former.ended(ended, now);
        }
        prop_assert_eq!(former.present(), former.waiting.len());
        now += 5 * MS;
        while let NextBatch::Run(items) = former.next(now) {
            former.ended(items.len(), now);
            ran.extend(items);
            now += 5 * MS;
        }
        pushed.retain(|item| !item.gone);
        prop_assert_eq!(ran, pushed);
    }
}
