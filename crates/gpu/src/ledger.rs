//! The ledger of GPU memory: which child may use which GPUs, and how much of their memory is promised.
//!
//! Pure: it gets what the driver reports, and decides. A decision reserves the GPUs of all children of a
//! request at once, so that two models never wait for each other's half.
//!
//! The memory that is *available* on a GPU is what the driver says is free, less what children were promised
//! and do not hold yet; and at most what is not promised at all, because it may be unknown what they hold. A
//! GPU whose memory the driver does not know accepts every child.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_core::gpu::{GpuId, GpuMemory, GpuUser, ProcessRole};

/// The GPUs that the ledger is about, with their memory if it is known.
pub(crate) type MemoryByGpu = BTreeMap<GpuId, Option<GpuMemory>>;

/// The memory that a child needs on a GPU, where that is known.
pub(crate) type NeedByGpu = BTreeMap<GpuId, u64>;

/// The reservations of all children.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<EntryId, Entry>,
    next_id: u64,
}

/// The number of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryId(u64);

/// The reservation of one child.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) user: GpuUser,
    pub(crate) model: String,
    pub(crate) gpus: Vec<GpuId>,
    /// The memory that is promised on each of its GPUs; `None` while it is unknown.
    pub(crate) promised: Option<u64>,
    /// The memory that it holds on each of its GPUs, where that is known.
    pub(crate) held: BTreeMap<GpuId, u64>,
    pub(crate) state: EntryState,
    /// Whether its model can be unloaded.
    pub(crate) evictable: bool,
    /// What it is for its model. One that is not needed is ended before a model is unloaded.
    pub(crate) role: ProcessRole,
    /// Whether GPUs for other children of the model will be asked for, when its need is known.
    pub(crate) is_partial: bool,
    /// Whether the memory that it holds has not been read since it is ready.
    pub(crate) is_unread: bool,
}

/// What the child of a reservation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryState {
    /// It has not finished its setup.
    Loading,
    /// It accepts jobs.
    Ready,
    /// It is not needed, and is being ended because a model needs its memory.
    Revoked,
    /// It has exited, and its memory may not be free yet.
    Ending,
}

/// What a model needs for its children.
#[derive(Debug, Clone)]
pub(crate) struct PlacementRequest<'a> {
    pub(crate) user: GpuUser,
    pub(crate) model: &'a str,
    pub(crate) children: usize,
    /// How many children of the same load have GPUs and keep them.
    pub(crate) beside: usize,
    pub(crate) gpus_per_child: usize,
    /// The memory that a child needs if it gets a GPU: cards of another kind may need more.
    pub(crate) needs: NeedByGpu,
    pub(crate) evictable: bool,
    pub(crate) role: ProcessRole,
    /// Whether models are unloaded although processes that were revoked have not finished their jobs.
    pub(crate) is_overdue: bool,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GpuPlacement {
    /// The GPUs of each child; of some children only, if it is not known what they need.
    Granted(Vec<Vec<GpuId>>),
    /// Not now. Unloading a model that uses one of these GPUs may help, unless there are none.
    Blocked {
        unload_on: Vec<GpuId>,
        reason: String,
    },
    /// Never.
    Impossible(String),
}

impl Ledger {
    pub(crate) fn entries(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// Removes a reservation.
    pub(crate) fn remove(&mut self, id: EntryId) {
        self.entries.remove(&id);
    }

    /// Records what was granted.
    pub(crate) fn reserve(
        &mut self,
        request: &PlacementRequest<'_>,
        granted: Vec<Vec<GpuId>>,
    ) -> Vec<EntryId> {
        let is_partial = granted.len() < request.children;
        if !is_partial {
            self.complete(request.user);
        }
        let ids = granted.into_iter().map(|gpus| {
            let promised: Option<Vec<u64>> = gpus.iter().map(|gpu| request.need_on(gpu)).collect();
            let id = EntryId(self.next_id);
            self.next_id += 1;
            let entry = Entry {
                user: request.user,
                model: request.model.to_owned(),
                gpus,
                promised: promised.and_then(|needs| needs.into_iter().max()),
                held: BTreeMap::new(),
                state: EntryState::Loading,
                evictable: request.evictable,
                role: request.role,
                is_partial,
                is_unread: false,
            };
            self.entries.insert(id, entry);
            id
        });
        ids.collect()
    }

    /// No GPUs for other children of the model will be asked for.
    pub(crate) fn complete(&mut self, user: GpuUser) {
        let own = self.entries.values_mut().filter(|entry| entry.user == user);
        own.for_each(|entry| entry.is_partial = false);
    }

    /// Revokes the reservation of a process on one of these GPUs that its model can do without: of a spare
    /// if there is one, else of the child that was added last. Returns whether there is one.
    pub(crate) fn revoke_one(&mut self, gpus: &[GpuId]) -> bool {
        let optional = self.entries.iter_mut().filter(|(_, entry)| {
            let shares = entry.gpus.iter().any(|gpu| gpus.contains(gpu));
            entry.is_revocable() && shares
        });
        let chosen = optional.max_by_key(|(id, entry)| (entry.role, **id));
        let is_found = chosen.is_some();
        if let Some((_, entry)) = chosen {
            entry.state = EntryState::Revoked;
        }
        is_found
    }

    /// Decides where the children of a request go.
    pub(crate) fn place(
        &self,
        memory: &MemoryByGpu,
        request: &PlacementRequest<'_>,
    ) -> GpuPlacement {
        if let Some(refusal) = too_large(memory, request) {
            return GpuPlacement::Impossible(refusal);
        }
        let mut load: BTreeMap<&GpuId, GpuLoad> = memory
            .iter()
            .map(|(gpu, memory)| (gpu, self.load_of(gpu, *memory, request)))
            .collect();
        let mut granted = Vec::new();
        for _ in 0..request.children {
            let Some(gpus) = choose(&load, request) else {
                let mut used = granted.iter().flatten();
                if used.any(|gpu| request.need_on(gpu).is_none()) {
                    break;
                }
                return self.blocked(memory, &load, request);
            };
            for gpu in &gpus {
                load.get_mut(gpu)
                    .expect("it was chosen from the map")
                    .add_child();
            }
            granted.push(gpus);
        }
        GpuPlacement::Granted(granted)
    }

    /// The reservations on a GPU.
    fn on<'a>(&'a self, gpu: &'a GpuId) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .values()
            .filter(|entry| entry.gpus.contains(gpu))
    }

    /// The state of a GPU as a request sees it.
    fn load_of(
        &self,
        gpu: &GpuId,
        memory: Option<GpuMemory>,
        request: &PlacementRequest<'_>,
    ) -> GpuLoad {
        let need = request.need_on(gpu);
        let mut load = GpuLoad {
            need,
            children: 0,
            available: memory.map(|memory| memory.free),
            blocker: None,
            evictable: 0,
            revocable: 0,
        };
        let mut unpromised = memory.map_or(u64::MAX, |memory| memory.total);
        for entry in self.on(gpu) {
            load.children += 1;
            let held = entry.held.get(gpu).copied();
            if let Some(available) = &mut load.available {
                *available = available.saturating_sub(entry.outstanding(held));
            }
            unpromised = unpromised.saturating_sub(entry.size_on(gpu));
            if entry.gives_way() {
                // Unloading a model of unknown size may give everything.
                let size = match held.or(entry.promised) {
                    Some(_) => entry.size_on(gpu),
                    None => u64::MAX,
                };
                load.evictable = load.evictable.saturating_add(size);
                if entry.is_revocable() {
                    load.revocable = load.revocable.saturating_add(size);
                }
            }
            // Without knowledge of the memory there is nothing to wait for.
            if memory.is_some() {
                load.blocker = load.blocker.max(entry.blocks(need, request.user));
            }
        }
        load.available = load.available.map(|available| available.min(unpromised));
        load
    }

    /// Why a request has to wait, and where a model can be unloaded for it.
    fn blocked(
        &self,
        memory: &MemoryByGpu,
        load: &BTreeMap<&GpuId, GpuLoad>,
        request: &PlacementRequest<'_>,
    ) -> GpuPlacement {
        let is_changing = |gpu: &&GpuId| {
            self.on(gpu).any(|entry| match entry.state {
                EntryState::Ready => entry.has_claims(request.user) && !request.is_overdue,
                EntryState::Revoked => !request.is_overdue,
                EntryState::Loading | EntryState::Ending => true,
            })
        };
        let can_unload = |gpu: &&GpuId| self.on(gpu).any(Entry::gives_way);
        let fits = |gpu: &&GpuId| load[*gpu].accepts();
        let mut lacking: Vec<&GpuId> = load.keys().copied().filter(|gpu| !fits(gpu)).collect();
        let reason = describe_wait(load, request);
        // Memory that is about to change is waited for, before a model is unloaded for it.
        let settled = lacking.iter().all(|gpu| !is_changing(gpu));
        let need_on = |gpu: &GpuId| request.need_on(gpu).unwrap_or_default();
        lacking.retain(|gpu| can_unload(gpu) && load[*gpu].reachable() >= need_on(gpu));
        // Where no model has to be unloaded; then the GPU with the most memory, which needs the fewest to be.
        lacking.sort_by_key(|gpu| {
            let load = &load[*gpu];
            let is_unknown = load.need.is_none();
            let available = std::cmp::Reverse(load.available);
            (load.unloads_models(), is_unknown, available)
        });
        lacking.truncate(request.gpus_per_child);
        let waits_for_own = self.entries.values().any(|entry| {
            let is_replaced = entry.model == request.model && entry.user != request.user;
            entry.state != EntryState::Ready || is_replaced || entry.gives_way()
        });
        // Memory of other programs may become free; that of models that stay loaded does not.
        let is_full_of_models = |gpu: &GpuId| {
            let total = memory[gpu].map_or(u64::MAX, |memory| memory.total);
            let ours: u64 = self.on(gpu).map(|entry| entry.size_on(gpu)).sum();
            total.saturating_sub(ours) < need_on(gpu)
        };
        let never_fits = |gpu: &&GpuId| fits(gpu) || is_full_of_models(gpu);
        if lacking.is_empty() && !waits_for_own && load.keys().copied().all(|gpu| never_fits(&gpu))
        {
            return GpuPlacement::Impossible(format!(
                "{reason}, and the other models stay loaded; start the server with --lazy, so that models take turns"
            ));
        }
        let unload_on = if settled { lacking } else { Vec::new() };
        GpuPlacement::Blocked {
            unload_on: unload_on.into_iter().cloned().collect(),
            reason,
        }
    }
}

impl PlacementRequest<'_> {
    /// The memory that a child needs on a GPU, if that is known.
    fn need_on(&self, gpu: &GpuId) -> Option<u64> {
        self.needs.get(gpu).copied()
    }
}

impl Entry {
    /// What it was promised on a GPU and does not hold yet.
    fn outstanding(&self, held: Option<u64>) -> u64 {
        let promised = self.promised.unwrap_or_default();
        match (self.state, held) {
            (EntryState::Ending, _) => 0,
            (_, Some(held)) => promised.saturating_sub(held),
            // What cannot be measured is assumed to be allocated by the setup.
            (EntryState::Ready | EntryState::Revoked, None) => 0,
            (EntryState::Loading, None) => promised,
        }
    }

    /// The memory that it holds or will hold on a GPU.
    fn size_on(&self, gpu: &GpuId) -> u64 {
        let held = self.held.get(gpu).copied().unwrap_or_default();
        held.max(self.promised.unwrap_or_default())
    }

    /// Whether it is ended when a model needs its memory.
    fn gives_way(&self) -> bool {
        let is_unloadable = self.evictable || self.role != ProcessRole::Needed;
        is_unloadable && self.state == EntryState::Ready
    }

    /// Whether it is ended before a model is unloaded.
    fn is_revocable(&self) -> bool {
        self.role != ProcessRole::Needed && self.state == EntryState::Ready
    }

    /// Changes what it is for its model.
    pub(crate) fn set_role(&mut self, role: ProcessRole) {
        // A spare that has become a child goes on: it is taken because another process has ended.
        if self.role == ProcessRole::Spare && self.state == EntryState::Revoked {
            self.state = EntryState::Ready;
        }
        self.role = role;
    }

    /// Whether other children of its model come before those of `user`.
    fn has_claims(&self, user: GpuUser) -> bool {
        self.is_partial && self.user != user
    }

    /// Whether it keeps a child with this need from its GPUs, whatever memory there is.
    fn blocks(&self, need: Option<u64>, user: GpuUser) -> Option<Blocker> {
        match (self.state, need) {
            // It loads alone, so that its memory can be measured.
            (EntryState::Loading, _) if self.promised.is_none() => Some(Blocker::Loading),
            (EntryState::Loading | EntryState::Revoked | EntryState::Ending, None) => {
                Some(Blocker::Loading)
            }
            (EntryState::Ready, None) if self.is_unread || self.has_claims(user) => {
                Some(Blocker::Loading)
            }
            // A child of unknown size may need all the memory.
            (EntryState::Ready, None) if self.gives_way() && self.user != user => {
                Some(Blocker::Unloadable)
            }
            (
                EntryState::Loading | EntryState::Ready | EntryState::Revoked | EntryState::Ending,
                _,
            ) => None,
        }
    }
}

/// Why a GPU accepts no child of unknown size, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blocker {
    /// A model on it could be unloaded.
    Unloadable,
    /// A child on it loads, or has just ended.
    Loading,
}

/// A GPU as a request sees it.
#[derive(Debug, Clone)]
struct GpuLoad {
    /// What a child of the request needs here, if that is known.
    need: Option<u64>,
    children: usize,
    /// `None` if the driver does not know its memory.
    available: Option<u64>,
    blocker: Option<Blocker>,
    /// The memory of processes that can be ended for others.
    evictable: u64,
    /// The part of it that no model needs.
    revocable: u64,
}

impl GpuLoad {
    fn accepts(&self) -> bool {
        let need = self.need.unwrap_or_default();
        self.blocker.is_none() && self.available.is_none_or(|free| free >= need)
    }

    fn add_child(&mut self) {
        self.children += 1;
        if let Some(available) = &mut self.available {
            *available = available.saturating_sub(self.need.unwrap_or_default());
            if self.need.is_none() {
                // Like the children of other requests, the next one waits until this one is measured.
                self.blocker = Some(Blocker::Loading);
            }
        }
    }

    /// Whether models have to be unloaded for a child, beside processes that no model needs.
    fn unloads_models(&self) -> bool {
        match self.need {
            Some(need) => {
                let available = self.available.unwrap_or(u64::MAX);
                available.saturating_add(self.revocable) < need
            }
            None => self.evictable > self.revocable,
        }
    }

    /// The memory that would be available if all models were unloaded that can be.
    fn reachable(&self) -> u64 {
        self.available
            .unwrap_or(u64::MAX)
            .saturating_add(self.evictable)
    }
}

/// The GPUs for one child: those with the fewest children, then those on which its need is known, then those
/// with the most memory.
fn choose(load: &BTreeMap<&GpuId, GpuLoad>, request: &PlacementRequest<'_>) -> Option<Vec<GpuId>> {
    let mut fitting: Vec<(&GpuId, &GpuLoad)> = load
        .iter()
        .filter(|(_, load)| load.accepts())
        .map(|(gpu, load)| (*gpu, load))
        .collect();
    fitting.sort_by_key(|(_, load)| {
        let available = std::cmp::Reverse(load.available);
        (load.children, load.need.is_none(), available)
    });
    let chosen = fitting.get(..request.gpus_per_child)?;
    let mut chosen: Vec<GpuId> = chosen.iter().map(|(gpu, _)| (*gpu).clone()).collect();
    chosen.sort();
    Some(chosen)
}

/// Why a request can never be granted, if so.
fn too_large(memory: &MemoryByGpu, request: &PlacementRequest<'_>) -> Option<String> {
    let need = request.needs.values().copied().max()?;
    let places_on = |(gpu, memory): (&GpuId, &Option<GpuMemory>)| {
        let need = request.need_on(gpu).filter(|need| *need > 0);
        match (need, memory) {
            (Some(need), Some(memory)) => {
                usize::try_from(memory.total / need).unwrap_or(usize::MAX)
            }
            (None, _) | (_, None) => usize::MAX,
        }
    };
    let places: Vec<usize> = memory.iter().map(places_on).collect();
    let gpus_per_child = request.gpus_per_child;
    // The GPUs of one child are different ones.
    let holds = |children: &usize| {
        let used = places.iter().map(|places| *places.min(children));
        used.sum::<usize>() >= children * gpus_per_child
    };
    let wanted = request.children + request.beside;
    let possible = (0..=wanted).rev().find(holds).unwrap_or(0);
    if possible == wanted {
        return None;
    }
    let mut text = format!("each process of {} needs {}", request.model, gib(need));
    if gpus_per_child > 1 {
        write!(text, " on each of {gpus_per_child} GPUs").expect("a String takes it");
    }
    let largest = memory.values().flatten().map(|memory| memory.total).max();
    let largest = gib(largest.unwrap_or_default());
    let gpus = memory.len();
    let large = places.iter().filter(|places| **places > 0).count();
    match (possible, large) {
        (0, 0) if gpus == 1 => write!(text, ", and the GPU has {largest}"),
        (0, 0) => write!(text, ", and the largest GPU has {largest}"),
        (0, _) => write!(text, ", and only {large} of {gpus} GPUs can hold that"),
        _ => write!(
            text,
            ", and the memory of the GPUs is enough for {possible} of {wanted} processes"
        ),
    }
    .expect("a String takes it");
    Some(text)
}

fn describe_wait(load: &BTreeMap<&GpuId, GpuLoad>, request: &PlacementRequest<'_>) -> String {
    let free = load.values().filter_map(|load| load.available).max();
    let free = gib(free.unwrap_or_default());
    match request.needs.values().copied().max() {
        Some(need) => format!(
            "a process of {} needs {} of GPU memory, and at most {free} are free on a GPU",
            request.model,
            gib(need)
        ),
        None => format!(
            "it is not known how much GPU memory {} needs, so it is loaded alone",
            request.model
        ),
    }
}

/// A size in GiB with one decimal place.
pub(crate) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests;
