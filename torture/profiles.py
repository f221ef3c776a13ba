"""The kinds of runs: model, number of clients, and how often each action and fault happens."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

Weights = dict[str, float]

#: Actions of clients and their weights.
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

#: Behaviours of jobs that do not break anything.
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

#: Behaviours of jobs, some of them hostile.
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

#: Faults of the server and its environment.
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


#: Event filters of webhooks; `None` means every event.
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
    #: The number of accounts; with one account the server has no tokens.
    accounts: int = 1
    #: Durations of jobs.
    seconds: tuple[float, ...] = (0.0, 0.0, 0.02, 0.1, 0.4)
    #: The share of jobs with a webhook, and their event filters.
    webhook_share: float = 0.6
    filters: tuple[list[str] | None, ...] = FILTERS
    #: Additional bytes in each input, and how many waiting inputs fit into the server's memory.
    padding: int = 0
    inputs_in_memory: int = 1
    #: The average pause of a client between two actions.
    pause: float = 0.05
    ops: Weights = field(default_factory=lambda: dict(EVERYTHING))
    behaviours: Weights = field(default_factory=lambda: dict(HOSTILE))
    faults: Weights = field(default_factory=lambda: dict(FAULTS))
    #: The range of pauses between two faults.
    fault_pause: tuple[float, float] = (0.2, 1.5)
    #: The path of Cog's API.
    cog_root: str = ""
    #: Seconds until every accepted job must have ended after the load.
    settle: float = 20.0
    #: The drain timeout after SIGTERM, in seconds.
    drain: int = 10
    #: Whether SIGTERM is sent to a busy server, which is then started again.
    restart: bool = True

    @property
    def streams(self) -> bool:
        """Whether the model supports server-sent events."""
        return self.variant not in ("Sync", "Checked")

    @property
    def total_slots(self) -> int:
        return self.workers * self.slots


#: The variants of the storm; the seed selects one.
_STORM_VARIANTS = (
    {"variant": "Sync", "workers": 2, "slots": 1},
    {"variant": "AsyncStream", "workers": 2, "slots": 4, "clients": 16},
    {"variant": "Stream", "workers": 1, "slots": 1, "clients": 6},
    {"variant": "Async", "workers": 2, "slots": 3, "clients": 12, "accounts": 3},
    {"variant": "Checked", "workers": 2, "slots": 1},
)

_CALM = Profile("calm", behaviours=dict(HARMLESS), faults={}, settle=4.0, drain=2, restart=False)

_BASES: dict[str, Profile] = {
    "storm": Profile("storm"),
    "calm": _CALM,
    #: One slot: jobs start in the order of acceptance.
    "queue": replace(_CALM, name="queue", workers=1, behaviours={"ok": 2, "sleep": 3, "fail": 2}, clients=8),
    #: Three accounts compete for one slot all the time.
    "accounts": replace(
        _CALM,
        name="accounts",
        workers=1,
        accounts=3,
        queue=64,
        clients=24,
        ops={"later": 1},
        behaviours={"sleep": 1},
        seconds=(0.03,),
        settle=10.0,
    ),
    #: Short jobs on several slots: outputs and logs must not mix.
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
    #: A slow receiver: messages queue up.
    "patience": replace(
        _CALM,
        name="patience",
        variant="Stream",
        ops={"later": 3, "wait": 2},
        behaviours={"ok": 1, "chunks": 4},
        webhook_share=1.0,
        filters=(None,),
        faults={"hook_slow": 1},
        fault_pause=(0.0, 0.05),
    ),
    #: Children crash and are killed.
    "crash": replace(
        _CALM,
        name="crash",
        behaviours={"ok": 4, "sleep": 2, "leave": 1, "segfault": 1},
        faults={"kill_worker": 1},
        fault_pause=(0.4, 1.0),
    ),
    #: The server itself is killed and started again while jobs run on one slot.
    "killed": replace(
        _CALM,
        name="killed",
        workers=1,
        queue=64,
        clients=12,
        pause=0.02,
        seconds=(0.0, 0.02, 0.05, 0.2),
        webhook_share=0.9,
        filters=(None, ["completed"]),
        ops={"later": 8, "wait": 2, "replay": 2, "cancel": 1},
        behaviours={"ok": 3, "sleep": 4, "prints": 2, "fail": 1},
        faults={"kill_server": 1, "hook_error": 3, "hook_refuse": 1},
        fault_pause=(0.2, 1.0),
        settle=20.0,
    ),
    #: The same with predictions of the Replicate API by three accounts, whose inputs wait on disk.
    "killed-replicate": replace(
        _CALM,
        name="killed-replicate",
        workers=1,
        accounts=3,
        queue=64,
        clients=12,
        pause=0.1,
        padding=3000,
        inputs_in_memory=2,
        seconds=(0.0, 0.02, 0.05, 0.1),
        webhook_share=0.9,
        filters=(None, ["completed"]),
        ops={"replicate_create": 10, "replicate_cancel": 3, "replicate_deadline": 2, "replicate_list": 2},
        behaviours={"ok": 3, "sleep": 4, "prints": 2, "fail": 1},
        faults={"kill_server": 1, "hook_error": 2, "hook_refuse": 1},
        fault_pause=(0.3, 1.5),
        settle=20.0,
    ),
    #: Children die while file descriptors run short.
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
    """The profile with this name; the variant of a storm depends on the seed."""
    base = _BASES[name]
    if name != "storm":
        return base
    return replace(base, **_STORM_VARIANTS[seed % len(_STORM_VARIANTS)])  # type: ignore[arg-type]


def pick(rng: random.Random, weights: Weights) -> str:
    """A random name, by weight."""
    return rng.choices(list(weights), list(weights.values()))[0]
