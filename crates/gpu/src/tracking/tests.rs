use tidegate_core::gpu::{GpuMemory, GpuProcess, GpuUser, ProcessRole};

use super::*;
use crate::ledger::PlacementRequest;
use crate::visibility::tests::card;

const GIB: u64 = 1 << 30;

/// Card 0 with this much used memory, and the processes if the driver names them.
fn report(used_gib: u64, processes: Option<&[(u32, u64)]>) -> GpuReport {
    let total = 80 * GIB;
    let used = used_gib * GIB;
    let process = |(pid, gib): &(u32, u64)| GpuProcess {
        pid: *pid,
        memory: Some(gib * GIB),
    };
    let gpu = Gpu {
        memory: Some(GpuMemory {
            total,
            free: total - used,
            used,
        }),
        processes: processes.map(|processes| processes.iter().map(process).collect()),
        ..card(0)
    };
    GpuReport {
        gpus: vec![gpu],
        pids_match: true,
        ..GpuReport::default()
    }
}

/// A ledger with a reservation of card 0 whose child has this process id.
fn started(ledger: &mut TrackedLedger, model: &str, pid: u32, now: &GpuReport) -> EntryId {
    let request = PlacementRequest {
        user: GpuUser(0),
        model,
        children: 1,
        beside: 0,
        gpus_per_child: 1,
        needs: BTreeMap::new(),
        evictable: true,
        role: ProcessRole::Needed,
        is_overdue: false,
    };
    let id = ledger.ledger.reserve(&request, vec![vec![GpuId::card(0)]])[0];
    ledger.track(id, "1");
    ledger.started(id, pid, now);
    id
}

fn held(ledger: &TrackedLedger, id: EntryId) -> Option<u64> {
    let held = ledger.ledger.get(id)?.held.get(&GpuId::card(0));
    held.map(|bytes| bytes / GIB)
}

fn known(ledger: &TrackedLedger, model: &str) -> Option<u64> {
    let bytes = ledger.requirements.of_version(model, "1", "card");
    bytes.map(|bytes| bytes / GIB)
}

#[test]
fn the_driver_says_what_a_process_holds() {
    let mut ledger = TrackedLedger::default();
    let own = std::process::id();
    let id = started(&mut ledger, "a", own, &report(5, Some(&[])));
    ledger.observe(&report(20, Some(&[(own, 12), (1, 3)])));
    assert_eq!((held(&ledger, id), known(&ledger, "a")), (Some(12), None));
    ledger.ready(id);
    ledger.observe(&report(20, Some(&[(own, 12)])));
    ledger.observe(&report(18, Some(&[(own, 10)])));
    assert_eq!(
        (held(&ledger, id), known(&ledger, "a")),
        (Some(10), Some(12))
    );
    assert_eq!(ledger.ledger.get(id).unwrap().promised, Some(12 * GIB));
}

#[test]
fn the_allocator_of_a_child_says_what_it_needs() {
    let allocator = |reserved, peak| AllocatorMemory {
        reserved: reserved * GIB,
        peak: peak * GIB,
    };
    let own = std::process::id();
    let holds = |gib| report(20, Some(&[(own, gib)]));
    let mut ledger = TrackedLedger::default();
    let id = started(&mut ledger, "a", own, &report(5, Some(&[])));
    ledger.ready(id);
    ledger.allocated(id, allocator(10, 10));
    ledger.observe(&holds(11));
    assert_eq!(known(&ledger, "a"), Some(11), "1 GiB beside the allocator");
    // A job takes all there is, fails, and frees it; its peak does not count.
    ledger.observe(&holds(79));
    ledger.allocated(id, allocator(10, 10));
    ledger.observe(&holds(11));
    assert_eq!(known(&ledger, "a"), Some(11));
    // A peak between two reports of the driver counts.
    ledger.allocated(id, allocator(12, 30));
    ledger.observe(&holds(13));
    assert_eq!(known(&ledger, "a"), Some(31));
    assert_eq!(held(&ledger, id), Some(13));
}

#[test]
fn a_child_that_is_alone_holds_the_growth_of_its_gpu() {
    let mut ledger = TrackedLedger::default();
    let first = started(&mut ledger, "a", 11, &report(5, None));
    ledger.ready(first);
    ledger.observe(&report(25, None));
    assert_eq!(
        (held(&ledger, first), known(&ledger, "a")),
        (Some(20), Some(20))
    );
    // From now on the growth may be that of the other child.
    let second = started(&mut ledger, "b", 12, &report(25, None));
    ledger.observe(&report(40, None));
    assert_eq!(
        (held(&ledger, first), held(&ledger, second)),
        (Some(20), Some(15))
    );
    let third = started(&mut ledger, "c", 13, &report(40, None));
    ledger.observe(&report(60, None));
    assert_eq!(
        (held(&ledger, second), held(&ledger, third)),
        (Some(15), None)
    );
}

#[test]
fn memory_is_returned_when_the_driver_lists_the_process_no_more() {
    let mut ledger = TrackedLedger::default();
    let own = std::process::id();
    let id = started(&mut ledger, "a", own, &report(0, Some(&[])));
    let full = report(50, Some(&[(own, 50)]));
    ledger.observe(&full);
    ledger.release(id, &full);
    ledger.observe(&full);
    assert!(ledger.ledger.get(id).is_some());
    ledger.observe(&report(0, Some(&[])));
    assert!(ledger.ledger.get(id).is_none());
}

#[test]
fn without_processes_memory_is_returned_when_the_use_has_fallen() {
    let mut ledger = TrackedLedger::default();
    let id = started(&mut ledger, "a", 11, &report(3, None));
    ledger.ready(id);
    ledger.observe(&report(53, None));
    ledger.release(id, &report(53, None));
    assert!(!ledger.is_returned(id, &report(40, None)));
    assert!(ledger.is_returned(id, &report(4, None)));
}

#[test]
fn a_reservation_that_was_never_used_ends_at_once() {
    let mut ledger = TrackedLedger::default();
    let request = PlacementRequest {
        user: GpuUser(0),
        model: "a",
        children: 1,
        beside: 0,
        gpus_per_child: 1,
        needs: BTreeMap::new(),
        evictable: true,
        role: ProcessRole::Needed,
        is_overdue: false,
    };
    let id = ledger.ledger.reserve(&request, vec![vec![GpuId::card(0)]])[0];
    ledger.track(id, "1");
    ledger.release(id, &report(0, None));
    assert!(ledger.ledger.get(id).is_none());
}

#[test]
fn an_error_of_a_process_concerns_a_child_only_if_it_is_alone() {
    let with_errors = |processes: &[(u32, u64)], of_processes| {
        let mut report = report(1, Some(processes));
        report.gpus[0].xids.of_processes = of_processes;
        report.gpus[0].xids.last = Some(13);
        report
    };
    let mut ledger = TrackedLedger::default();
    let id = started(&mut ledger, "a", 7, &report(0, Some(&[])));
    for (processes, of_processes, is_concerned) in [
        // A foreign program is on the GPU.
        (&[(7, 1), (99, 1)][..], 1, false),
        // The same error is not counted again.
        (&[(7, 1)][..], 1, false),
        (&[(7, 1)][..], 2, true),
    ] {
        let report = with_errors(processes, of_processes);
        ledger.observe(&report);
        assert_eq!(ledger.record_errors(&report), is_concerned);
    }
    let error = ledger.end_of(id).unwrap().to_string();
    assert!(
        error.contains("process") && error.contains("Xid 13"),
        "{error}"
    );
}

#[test]
fn an_error_of_the_card_concerns_every_child() {
    let mut failing = report(1, None);
    failing.gpus[0].xids.add(79);
    let mut ledger = TrackedLedger::default();
    let ids = [7, 8].map(|pid| started(&mut ledger, "a", pid, &report(0, None)));
    assert!(ledger.record_errors(&failing));
    assert!(!ledger.record_errors(&failing));
    for id in ids {
        assert!(
            ledger
                .end_of(id)
                .unwrap()
                .to_string()
                .contains("GPU 0 (Xid 79)")
        );
    }
}
