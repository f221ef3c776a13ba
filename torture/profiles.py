"""What a run is made of: which model, how many of everything, how often what happens."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

Weights = dict[str, float]

#: What clients do.
EVERYTHING: Weights = {
    "wait": 5,
    "later": 5,
    "stream": 4,
    "cancel": 5,
    "drop": 2,
    "replay": 3,
    "duplicate": 1,
    "bad": 2,
    "unknown": 0.5,
    "foreign": 1,
}

#: What jobs do, when nothing is meant to break.
HARMLESS: Weights = {
    "ok": 6,
    "sleep": 4,
    "fail": 3,
    "prints": 4,
    "chunks": 3,
    "chunks_then_fail": 1,
    "file": 1,
    "large": 0.5,
    "late": 1,
}

#: What jobs do when some of them are hostile.
HOSTILE: Weights = HARMLESS | {
    "endless": 1.5,
    "swallow": 1,
    "leave": 0.5,
    "segfault": 0.4,
    "garbage": 0.3,
    "hold_gil": 0.6,
    "flood": 0.5,
    "fork": 0.5,
    "daemon": 0.3,
}

#: What happens to the server and around it.
FAULTS: Weights = {
    "kill_worker": 3,
    "stop_worker": 2,
    "stop_server": 1,
    "hook_error": 1.5,
    "hook_hang": 1.5,
    "hook_refuse": 1.5,
    "hook_slow": 1,
    "hook_redirect": 1,
    "nofile": 1,
    "garbage_bytes": 1,
    "half_requests": 1,
    "idle_connections": 1,
}


#: What webhooks ask to be told; `None` is everything.
FILTERS: tuple[list[str] | None, ...] = (
    None,
    ["completed"],
    ["start", "completed"],
    ["output", "logs"],
    ["logs", "completed"],
    [],
)


@dataclass(frozen=True)
class Profile:
    """One kind of run."""

    name: str
    variant: str = "Sync"
    workers: int = 2
    slots: int = 1
    queue: int = 8
    clients: int = 10
    #: Accounts with tokens; with one there are no tokens.
    tenants: int = 1
    #: How long jobs take.
    seconds: tuple[float, ...] = (0.0, 0.0, 0.02, 0.1, 0.4)
    #: How many of the jobs have a webhook, and what it may ask for.
    hooked: float = 0.6
    filters: tuple[list[str] | None, ...] = FILTERS
    #: How large inputs are beside what they say, and how many such inputs may wait in the server's memory.
    padding: int = 0
    in_memory: int = 1
    #: Pauses of a client between two things it does.
    pause: float = 0.05
    ops: Weights = field(default_factory=lambda: dict(EVERYTHING))
    behaviours: Weights = field(default_factory=lambda: dict(HOSTILE))
    faults: Weights = field(default_factory=lambda: dict(FAULTS))
    #: Pauses between two faults.
    fault_pause: tuple[float, float] = (0.2, 1.5)
    #: How long accepted work may take to be heard of after the load has ended.
    settle: float = 20.0
    #: How long accepted work may go on after SIGTERM, in seconds.
    drain: int = 10
    #: Whether SIGTERM meets a busy server, which is then started again.
    restart: bool = True

    @property
    def streams(self) -> bool:
        """Whether the model answers with server-sent events."""
        return self.variant not in ("Sync", "Checked")

    @property
    def total_slots(self) -> int:
        return self.workers * self.slots


#: The models in the order in which seeds take them.
_FLEET = (
    {"variant": "Sync", "workers": 2, "slots": 1},
    {"variant": "AsyncStream", "workers": 2, "slots": 4, "clients": 16},
    {"variant": "Stream", "workers": 1, "slots": 1, "clients": 6},
    {"variant": "Async", "workers": 2, "slots": 3, "clients": 12, "tenants": 3},
    {"variant": "Checked", "workers": 2, "slots": 1},
)

_CALM = Profile("calm", behaviours=dict(HARMLESS), faults={}, settle=4.0, drain=2, restart=False)

_BASES: dict[str, Profile] = {
    "storm": Profile("storm"),
    "calm": _CALM,
    #: One slot: here the order of starts is the order of acceptance.
    "queue": replace(_CALM, name="queue", workers=1, behaviours={"ok": 2, "sleep": 3, "fail": 2}, clients=8),
    #: Three accounts want the one slot all the time.
    "accounts": replace(
        _CALM,
        name="accounts",
        workers=1,
        tenants=3,
        queue=64,
        clients=24,
        ops={"later": 1},
        behaviours={"sleep": 1},
        seconds=(0.03,),
        settle=10.0,
    ),
    #: Short jobs on several slots: what belongs to whom.
    "crowd": replace(
        _CALM,
        name="crowd",
        variant="AsyncStream",
        workers=1,
        slots=4,
        clients=12,
        pause=0.02,
        ops={"wait": 3, "later": 4, "stream": 3},
        behaviours={"ok": 3, "sleep": 2, "prints": 3, "chunks": 3, "fail": 2},
    ),
    #: Cancels and replays of harmless jobs.
    "fickle": replace(
        _CALM,
        name="fickle",
        ops={"cancel": 4, "replay": 4, "wait": 2, "later": 4, "drop": 1},
        behaviours={"ok": 2, "sleep": 5, "prints": 2},
    ),
    #: A receiver that takes its time: messages queue up.
    "patience": replace(
        _CALM,
        name="patience",
        variant="Stream",
        ops={"later": 3, "wait": 2},
        behaviours={"ok": 1, "chunks": 4},
        hooked=1.0,
        filters=(None,),
        faults={"hook_slow": 1},
        fault_pause=(0.0, 0.05),
    ),
    #: Processes die, of themselves and by force.
    "crash": replace(
        _CALM,
        name="crash",
        behaviours={"ok": 4, "sleep": 2, "leave": 1, "segfault": 1},
        faults={"kill_worker": 1},
        fault_pause=(0.4, 1.0),
    ),
    #: The server itself is killed and started again in the middle of the work of one slot.
    "killed": replace(
        _CALM,
        name="killed",
        workers=1,
        queue=64,
        clients=12,
        pause=0.02,
        seconds=(0.0, 0.02, 0.05, 0.2),
        hooked=0.9,
        filters=(None, ["completed"]),
        ops={"later": 8, "wait": 2, "replay": 2, "cancel": 1},
        behaviours={"ok": 3, "sleep": 4, "prints": 2, "fail": 1},
        faults={"kill_server": 1, "hook_error": 3, "hook_refuse": 1},
        fault_pause=(0.2, 1.0),
        settle=20.0,
    ),
    #: The same with predictions of Replicate's API, of three accounts, whose inputs wait on the disk.
    "killed-line": replace(
        _CALM,
        name="killed-line",
        workers=1,
        tenants=3,
        queue=64,
        clients=12,
        pause=0.1,
        padding=3000,
        in_memory=2,
        seconds=(0.0, 0.02, 0.05, 0.1),
        hooked=0.9,
        filters=(None, ["completed"]),
        ops={"make": 10, "unmake": 3, "hurry": 2, "pages": 2},
        behaviours={"ok": 3, "sleep": 4, "prints": 2, "fail": 1},
        faults={"kill_server": 1, "hook_error": 2, "hook_refuse": 1},
        fault_pause=(0.3, 1.5),
        settle=20.0,
    ),
    #: Processes die while descriptors are short.
    "scarce": replace(
        _CALM,
        name="scarce",
        behaviours={"ok": 4, "sleep": 2, "file": 1, "leave": 1},
        faults={"kill_worker": 1, "nofile": 1},
        fault_pause=(0.8, 2.5),
        settle=20.0,
    ),
}

NAMES = tuple(_BASES)


def profile_of(name: str, seed: int) -> Profile:
    """The profile of this name; a storm takes another model with every seed."""
    base = _BASES[name]
    if name != "storm":
        return base
    return replace(base, **_FLEET[seed % len(_FLEET)])  # type: ignore[arg-type]


def pick(rng: random.Random, weights: Weights) -> str:
    """One of the names, the heavier the likelier."""
    return rng.choices(list(weights), list(weights.values()))[0]
