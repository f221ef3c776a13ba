//! A simulated machine: children allocate what they were promised or less, in any order, and end.

use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn memory(free: &[u64]) -> MemoryByGpu {
    let total = 80 * GIB;
    let of = |free: &u64| GpuMemory {
        total,
        free: *free,
        used: total - free,
    };
    (0..)
        .zip(free)
        .map(|(index, free)| (GpuId::card(index), Some(of(free))))
        .collect()
}

/// The same need on each of the first GPUs.
fn same(need: Option<u64>) -> NeedByGpu {
    let needs = (0..4).map(|card| Some((GpuId::card(card), need?)));
    needs.flatten().collect()
}

fn request(model: &str, need: Option<u64>) -> PlacementRequest<'_> {
    PlacementRequest {
        // Each model has a name of one letter.
        user: GpuUser(model.bytes().map(u64::from).sum()),
        model,
        children: 1,
        beside: 0,
        gpus_per_child: 1,
        needs: same(need),
        evictable: true,
        role: ProcessRole::Needed,
        is_overdue: false,
    }
}

/// Reserves, and sets what the child does.
fn reserve(
    ledger: &mut Ledger,
    request: &PlacementRequest<'_>,
    gpus: &[u32],
    state: EntryState,
) -> EntryId {
    let gpus = gpus.iter().copied().map(GpuId::card).collect();
    let id = ledger.reserve(request, vec![gpus])[0];
    ledger.get_mut(id).unwrap().state = state;
    id
}

fn granted(placement: GpuPlacement) -> Vec<String> {
    let GpuPlacement::Granted(children) = placement else {
        panic!("{placement:?}");
    };
    let join = |gpus: Vec<GpuId>| gpus.iter().map(GpuId::as_str).collect::<Vec<_>>().join(",");
    children.into_iter().map(join).collect()
}

#[test]
fn children_are_spread_over_the_gpus() {
    let ledger = Ledger::default();
    let free = memory(&[80 * GIB, 70 * GIB, 60 * GIB]);
    let wanted = PlacementRequest {
        children: 4,
        ..request("a", Some(10 * GIB))
    };
    assert_eq!(granted(ledger.place(&free, &wanted)), ["0", "1", "2", "0"]);
    let pair = PlacementRequest {
        gpus_per_child: 2,
        ..wanted
    };
    let pair = PlacementRequest {
        children: 1,
        ..pair
    };
    assert_eq!(granted(ledger.place(&free, &pair)), ["0,1"]);
}

#[test]
fn promised_memory_that_is_not_allocated_yet_is_not_available() {
    let mut ledger = Ledger::default();
    let first = request("a", Some(50 * GIB));
    let id = reserve(&mut ledger, &first, &[0], EntryState::Loading);
    let second = request("b", Some(40 * GIB));
    let blocked = ledger.place(&memory(&[80 * GIB]), &second);
    assert!(matches!(blocked, GpuPlacement::Blocked { ref unload_on, .. } if unload_on.is_empty()));
    // When it holds what it was promised, only what the driver says counts.
    let entry = ledger.get_mut(id).unwrap();
    entry.held.insert(GpuId::card(0), 50 * GIB);
    entry.state = EntryState::Ready;
    let small = request("c", Some(30 * GIB));
    assert_eq!(granted(ledger.place(&memory(&[30 * GIB]), &small)), ["0"]);
    let blocked = ledger.place(&memory(&[30 * GIB]), &second);
    assert!(
        matches!(blocked, GpuPlacement::Blocked { unload_on, .. } if unload_on == [GpuId::card(0)])
    );
}

#[test]
fn a_child_of_unknown_size_loads_alone() {
    let mut ledger = Ledger::default();
    let known = request("a", Some(10 * GIB));
    let unknown = request("b", None);
    let id = reserve(&mut ledger, &known, &[0], EntryState::Ready);
    let free = memory(&[70 * GIB]);
    let blocked = ledger.place(&free, &unknown);
    assert!(
        matches!(blocked, GpuPlacement::Blocked { unload_on, .. } if unload_on == [GpuId::card(0)])
    );
    // A model that stays loaded is no reason to wait for ever.
    ledger.get_mut(id).unwrap().evictable = false;
    assert_eq!(granted(ledger.place(&free, &unknown)), ["0"]);
    // While it loads, no other child is started on its GPU.
    reserve(&mut ledger, &unknown, &[0], EntryState::Loading);
    let blocked = ledger.place(&free, &request("c", Some(GIB)));
    assert!(matches!(blocked, GpuPlacement::Blocked { unload_on, .. } if unload_on.is_empty()));
    // On another GPU it is.
    let two = memory(&[70 * GIB, 80 * GIB]);
    assert_eq!(granted(ledger.place(&two, &request("c", Some(GIB)))), ["1"]);
}

#[test]
fn a_need_that_is_known_on_one_card_counts_there() {
    let mut ledger = Ledger::default();
    let two = memory(&[70 * GIB, 70 * GIB]);
    let measured = |model| PlacementRequest {
        needs: NeedByGpu::from([(GpuId::card(1), 20 * GIB)]),
        ..request(model, None)
    };
    for card in [0, 1] {
        reserve(
            &mut ledger,
            &request("a", Some(10 * GIB)),
            &[card],
            EntryState::Ready,
        );
    }
    // On the other card it would load alone, and a model would be unloaded for it.
    let wanted = measured("b");
    let placement = ledger.place(&two, &wanted);
    assert_eq!(placement, GpuPlacement::Granted(vec![vec![GpuId::card(1)]]));
    let id = ledger.reserve(&wanted, vec![vec![GpuId::card(1)]])[0];
    assert_eq!(ledger.get(id).unwrap().promised, Some(20 * GIB));
    // An empty card is used all the same, and measured there.
    let placement = Ledger::default().place(
        &two,
        &PlacementRequest {
            children: 2,
            ..measured("c")
        },
    );
    assert_eq!(granted(placement), ["1", "0"]);
}

#[test]
fn children_of_unknown_size_load_one_after_the_other_on_a_gpu() {
    let mut ledger = Ledger::default();
    let unknown = PlacementRequest {
        children: 3,
        evictable: false,
        ..request("a", None)
    };
    let free = memory(&[80 * GIB, 80 * GIB]);
    assert_eq!(granted(ledger.place(&free, &unknown)), ["0", "1"]);
    let one = memory(&[80 * GIB]);
    let first = ledger.reserve(&unknown, vec![vec![GpuId::card(0)]])[0];
    let rest = PlacementRequest {
        children: 2,
        beside: 1,
        ..unknown.clone()
    };
    let waits = |ledger: &Ledger, request: &PlacementRequest<'_>| {
        let placement = ledger.place(&one, request);
        matches!(placement, GpuPlacement::Blocked { unload_on, .. } if unload_on.is_empty())
    };
    assert!(waits(&ledger, &rest));
    let entry = ledger.get_mut(first).unwrap();
    (entry.state, entry.is_unread) = (EntryState::Ready, true);
    // What it holds has not been read.
    assert!(waits(&ledger, &rest));
    ledger.get_mut(first).unwrap().is_unread = false;
    // Others wait until the model has all its children.
    assert!(waits(&ledger, &request("b", None)));
    assert_eq!(granted(ledger.place(&one, &rest)), ["0"]);
    let known = |need| PlacementRequest {
        needs: same(Some(need)),
        ..rest.clone()
    };
    let entry = ledger.get_mut(first).unwrap();
    entry.promised = Some(30 * GIB);
    entry.held.insert(GpuId::card(0), 30 * GIB);
    let refused = ledger.place(&memory(&[50 * GIB]), &known(30 * GIB));
    assert!(
        matches!(refused, GpuPlacement::Impossible(text) if text.ends_with("enough for 2 of 3 processes"))
    );
    let fits = known(20 * GIB);
    let placement = ledger.place(&memory(&[50 * GIB]), &fits);
    ledger.reserve(&fits, vec![vec![GpuId::card(0)]; granted(placement).len()]);
    assert!(!ledger.get(first).unwrap().is_partial);
}

#[test]
fn memory_that_is_being_returned_is_waited_for() {
    let mut ledger = Ledger::default();
    let first = request("a", Some(30 * GIB));
    reserve(&mut ledger, &first, &[0], EntryState::Ready);
    reserve(
        &mut ledger,
        &request("b", Some(50 * GIB)),
        &[0],
        EntryState::Ending,
    );
    let blocked = ledger.place(&memory(&[0]), &request("c", Some(40 * GIB)));
    assert!(matches!(blocked, GpuPlacement::Blocked { unload_on, .. } if unload_on.is_empty()));
}

#[test]
fn a_model_is_unloaded_only_where_that_helps() {
    let mut ledger = Ledger::default();
    let id = reserve(
        &mut ledger,
        &request("a", Some(20 * GIB)),
        &[0],
        EntryState::Ready,
    );
    ledger
        .get_mut(id)
        .unwrap()
        .held
        .insert(GpuId::card(0), 20 * GIB);
    let wanted = request("b", Some(70 * GIB));
    let named = |free: &[u64]| match ledger.place(&memory(free), &wanted) {
        GpuPlacement::Blocked { unload_on, .. } => unload_on,
        other => panic!("{other:?}"),
    };
    // Another program holds 30 GiB of the first card, and most of the second one.
    assert_eq!(named(&[30 * GIB, 10 * GIB]), []);
    assert_eq!(named(&[60 * GIB, 10 * GIB]), [GpuId::card(0)]);
}

#[test]
fn what_can_never_fit_is_refused_with_the_figures() {
    let ledger = Ledger::default();
    let text = |placement| match placement {
        GpuPlacement::Impossible(text) => text,
        other => panic!("{other:?}"),
    };
    let one = memory(&[80 * GIB]);
    assert_eq!(
        text(ledger.place(&one, &request("a", Some(100 * GIB)))),
        "each process of a needs 100.0 GiB, and the GPU has 80.0 GiB"
    );
    let four = PlacementRequest {
        children: 4,
        ..request("a", Some(30 * GIB))
    };
    assert_eq!(
        text(ledger.place(&one, &four)),
        "each process of a needs 30.0 GiB, and the memory of the GPUs is enough for 2 of 4 processes"
    );
    // Two places on one card are not two cards.
    let pair = PlacementRequest {
        gpus_per_child: 2,
        ..request("a", Some(20 * GIB))
    };
    let mut mixed = memory(&[80 * GIB, 80 * GIB]);
    mixed
        .get_mut(&GpuId::card(1))
        .unwrap()
        .as_mut()
        .unwrap()
        .total = 10 * GIB;
    assert_eq!(
        text(ledger.place(&mixed, &pair)),
        "each process of a needs 20.0 GiB on each of 2 GPUs, and only 1 of 2 GPUs can hold that"
    );
    let pairs = PlacementRequest {
        children: 5,
        ..pair
    };
    assert_eq!(
        text(ledger.place(&memory(&[80 * GIB, 80 * GIB]), &pairs)),
        "each process of a needs 20.0 GiB on each of 2 GPUs, and the memory of the GPUs is enough for 4 of 5 processes"
    );
}

#[test]
fn a_model_that_never_fits_beside_those_that_stay_is_refused() {
    let mut ledger = Ledger::default();
    let stays = PlacementRequest {
        evictable: false,
        ..request("a", Some(50 * GIB))
    };
    let id = reserve(&mut ledger, &stays, &[0], EntryState::Ready);
    ledger
        .get_mut(id)
        .unwrap()
        .held
        .insert(GpuId::card(0), 50 * GIB);
    let other = PlacementRequest {
        model: "b",
        ..stays.clone()
    };
    let refused = ledger.place(&memory(&[30 * GIB]), &other);
    assert!(matches!(refused, GpuPlacement::Impossible(text) if text.contains("--lazy")));
    // The next version of the model waits for the end of the old one.
    let next = PlacementRequest {
        user: GpuUser(0),
        ..stays.clone()
    };
    let blocked = ledger.place(&memory(&[30 * GIB]), &next);
    assert!(matches!(blocked, GpuPlacement::Blocked { .. }));
    // Memory of other programs may become free.
    let small = PlacementRequest {
        needs: same(Some(20 * GIB)),
        ..other
    };
    let blocked = ledger.place(&memory(&[10 * GIB]), &small);
    assert!(matches!(blocked, GpuPlacement::Blocked { .. }));
}

#[test]
fn without_knowledge_of_the_memory_every_child_is_accepted() {
    let mut ledger = Ledger::default();
    let unknown = MemoryByGpu::from([(GpuId::card(0), None)]);
    reserve(&mut ledger, &request("a", None), &[0], EntryState::Loading);
    for need in [None, Some(500 * GIB)] {
        assert_eq!(granted(ledger.place(&unknown, &request("b", need))), ["0"]);
    }
}

/// One step of the simulation.
#[derive(Debug, Clone)]
enum SimStep {
    /// A model with children, GPUs per child, GiB per GPU (0 is unknown), whether it can be unloaded.
    Request(usize, usize, u64, bool),
    /// A child allocates a part of its need, in percent.
    Allocate(usize, u64),
    Finish(usize),
    End(usize),
    Return(usize),
}

fn sim_step() -> impl Strategy<Value = SimStep> {
    prop_oneof![
        (1..4usize, 1..3usize, 0..90u64, any::<bool>()).prop_map(
            |(children, gpus, need, evictable)| SimStep::Request(children, gpus, need, evictable)
        ),
        (any::<usize>(), 0..101u64).prop_map(|(child, part)| SimStep::Allocate(child, part)),
        any::<usize>().prop_map(SimStep::Finish),
        any::<usize>().prop_map(SimStep::End),
        any::<usize>().prop_map(SimStep::Return),
    ]
}

/// The machine: three GPUs, and what their children really hold.
#[derive(Default)]
struct Machine {
    ledger: Ledger,
    holds: BTreeMap<EntryId, BTreeMap<GpuId, u64>>,
    needs: BTreeMap<EntryId, u64>,
}

impl Machine {
    fn free(&self) -> MemoryByGpu {
        let used = |gpu: u32| {
            let held = self
                .holds
                .values()
                .filter_map(|held| held.get(&GpuId::card(gpu)));
            held.sum::<u64>()
        };
        memory(&[80 * GIB - used(0), 80 * GIB - used(1), 80 * GIB - used(2)])
    }

    fn pick(&self, n: usize, state: EntryState) -> Option<EntryId> {
        let all: Vec<EntryId> = self
            .ledger
            .entries()
            .filter(|(_, entry)| entry.state == state)
            .map(|(id, _)| id)
            .collect();
        (!all.is_empty()).then(|| all[n % all.len()])
    }

    fn apply(&mut self, step: &SimStep) {
        match *step {
            SimStep::Request(children, gpus_per_child, need, evictable) => {
                let wanted = PlacementRequest {
                    user: GpuUser(0),
                    model: "m",
                    children,
                    beside: 0,
                    gpus_per_child,
                    needs: same((need > 0).then_some(need * GIB)),
                    evictable,
                    role: ProcessRole::Needed,
                    is_overdue: false,
                };
                if let GpuPlacement::Granted(granted) = self.ledger.place(&self.free(), &wanted) {
                    assert!(granted.len() == children || need == 0 && !granted.is_empty());
                    assert!(granted.iter().all(|gpus| gpus.len() == gpus_per_child));
                    for id in self.ledger.reserve(&wanted, granted) {
                        self.needs.insert(id, need * GIB);
                    }
                }
            }
            SimStep::Allocate(n, part) => {
                let Some(id) = self.pick(n, EntryState::Loading) else {
                    return;
                };
                let size = self.needs[&id] / 100 * part;
                let entry = self.ledger.get_mut(id).unwrap();
                let held: BTreeMap<GpuId, u64> =
                    entry.gpus.iter().map(|gpu| (gpu.clone(), size)).collect();
                entry.held.clone_from(&held);
                self.holds.insert(id, held);
            }
            SimStep::Finish(n) => {
                if let Some(id) = self.pick(n, EntryState::Loading) {
                    self.ledger.get_mut(id).unwrap().state = EntryState::Ready;
                }
            }
            SimStep::End(n) => {
                if let Some(id) = self.pick(n, EntryState::Ready) {
                    self.ledger.get_mut(id).unwrap().state = EntryState::Ending;
                }
            }
            SimStep::Return(n) => {
                if let Some(id) = self.pick(n, EntryState::Ending) {
                    self.ledger.remove(id);
                    self.holds.remove(&id);
                }
            }
        }
    }

    /// What children hold or may still allocate, on one GPU.
    fn promised_on(&self, gpu: &GpuId) -> u64 {
        let on = self.ledger.on(gpu).map(|entry| match entry.state {
            EntryState::Ending => entry.held.get(gpu).copied().unwrap_or_default(),
            EntryState::Loading | EntryState::Ready | EntryState::Revoked => entry.size_on(gpu),
        });
        on.sum()
    }
}

#[test]
fn a_process_that_is_not_needed_is_revoked_once_and_then_waited_for() {
    let mut machine = Machine::default();
    let size = Some(25 * GIB);
    let mut reserve_as = |role| {
        let wanted = PlacementRequest {
            role,
            ..request("a", size)
        };
        let id = reserve(&mut machine.ledger, &wanted, &[0], EntryState::Ready);
        let held = BTreeMap::from([(GpuId::card(0), 25 * GIB)]);
        machine.ledger.get_mut(id).unwrap().held.clone_from(&held);
        machine.holds.insert(id, held);
        id
    };
    let _needed = reserve_as(ProcessRole::Needed);
    let spare = reserve_as(ProcessRole::Spare);
    let added = reserve_as(ProcessRole::Additional);
    let wanted = PlacementRequest {
        gpus_per_child: 3,
        ..request("b", Some(50 * GIB))
    };
    let unload_on = |machine: &Machine, wanted| match machine.ledger.place(&machine.free(), wanted)
    {
        GpuPlacement::Blocked { unload_on, .. } => unload_on,
        other => panic!("{other:?}"),
    };
    let state = |machine: &Machine, id| machine.ledger.get(id).unwrap().state;
    let named = unload_on(&machine, &wanted);
    assert_eq!(named, [GpuId::card(0)]);
    assert!(!machine.ledger.revoke_one(&[GpuId::card(1)]));
    assert!(machine.ledger.revoke_one(&named));
    assert_eq!(state(&machine, spare), EntryState::Revoked);
    // Nothing else is ended meanwhile.
    assert!(unload_on(&machine, &wanted).is_empty());
    machine.ledger.remove(spare);
    machine.holds.remove(&spare);
    let named = unload_on(&machine, &wanted);
    assert!(machine.ledger.revoke_one(&named));
    assert_eq!(state(&machine, added), EntryState::Revoked);
    assert!(!machine.ledger.revoke_one(&named));
    // Jobs of the revoked process may take long: a model that can be unloaded is unloaded then.
    assert!(unload_on(&machine, &wanted).is_empty());
    let overdue = PlacementRequest {
        is_overdue: true,
        ..wanted.clone()
    };
    assert_eq!(unload_on(&machine, &overdue), [GpuId::card(0)]);
}

#[test]
fn memory_that_is_not_needed_is_taken_before_a_model_is_unloaded() {
    let mut ledger = Ledger::default();
    let model = request("a", Some(30 * GIB));
    let added = PlacementRequest {
        role: ProcessRole::Additional,
        ..request("b", Some(50 * GIB))
    };
    reserve(&mut ledger, &model, &[0], EntryState::Ready);
    reserve(&mut ledger, &added, &[1], EntryState::Ready);
    let blocked = ledger.place(
        &memory(&[50 * GIB, 30 * GIB]),
        &request("c", Some(60 * GIB)),
    );
    assert!(
        matches!(blocked, GpuPlacement::Blocked { unload_on, .. } if unload_on == [GpuId::card(1)])
    );
}

proptest! {
    /// If every child stays within what it was promised, no GPU runs out of memory, whatever the order.
    #[test]
    fn a_gpu_is_never_promised_twice(steps in prop::collection::vec(sim_step(), 1..60)) {
        let mut machine = Machine::default();
        for step in &steps {
            machine.apply(step);
            for index in 0..3 {
                let gpu = GpuId::card(index);
                prop_assert!(machine.promised_on(&gpu) <= 80 * GIB, "{:?}", machine.ledger);
                // A child of unknown size loads alone.
                let loading = machine.ledger.on(&gpu).filter(|entry| {
                    entry.state == EntryState::Loading && entry.promised.is_none()
                });
                let others = machine.ledger.on(&gpu).filter(|entry| {
                    entry.state == EntryState::Loading && entry.promised.is_some()
                });
                let count = loading.count();
                prop_assert!(count == 0 || count == 1 && others.count() == 0);
            }
        }
    }

    /// A request that fits into an empty GPU gets there by unloading what the ledger names, one model after
    /// the other.
    #[test]
    fn unloading_what_is_named_unblocks_a_request(
        steps in prop::collection::vec(sim_step(), 1..40),
        need in 0..80u64,
        gpus_per_child in 1..4usize,
    ) {
        let mut machine = Machine::default();
        for step in &steps {
            machine.apply(step);
        }
        let ids: Vec<EntryId> = machine.ledger.entries().map(|(id, _)| id).collect();
        for id in ids {
            let entry = machine.ledger.get_mut(id).unwrap();
            entry.state = EntryState::Ready;
            entry.evictable = true;
            // A model that is to get more GPUs is waited for.
            entry.is_partial = false;
        }
        let wanted = PlacementRequest {
            gpus_per_child,
            ..request("new", (need > 0).then_some(need * GIB))
        };
        loop {
            let unload_on = match machine.ledger.place(&machine.free(), &wanted) {
                GpuPlacement::Granted(_) => break,
                GpuPlacement::Blocked { unload_on, .. } => unload_on,
                GpuPlacement::Impossible(text) => panic!("{text}"),
            };
            let is_named = |entry: &Entry| entry.gpus.iter().any(|gpu| unload_on.contains(gpu));
            let victim = machine.ledger.entries().find(|(_, entry)| is_named(entry));
            let Some((victim, _)) = victim else {
                panic!("nothing to unload: {:?}", machine.ledger);
            };
            machine.ledger.remove(victim);
            machine.holds.remove(&victim);
        }
    }

    /// Models are unloaded only on GPUs where that can help.
    #[test]
    fn only_gpus_with_an_unloadable_model_are_named(steps in prop::collection::vec(sim_step(), 1..60), need in 1..80u64) {
        let mut machine = Machine::default();
        for step in &steps {
            machine.apply(step);
        }
        let wanted = request("new", Some(need * GIB));
        if let GpuPlacement::Blocked { unload_on, .. } = machine.ledger.place(&machine.free(), &wanted) {
            for gpu in &unload_on {
                let mut on = machine.ledger.on(gpu);
                prop_assert!(on.any(|entry| entry.evictable && entry.state == EntryState::Ready));
            }
        }
    }
}
