"""The kinds of runs against a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torture.profiles import HARMLESS, Profile, Weights

#: Actions of clients and their weights.
ACTIONS: Weights = {
    "replicate_create": 6,
    "replicate_cancel": 4,
    "replicate_deadline": 3,
    "replicate_list": 2,
    "replicate_wait": 3,
    "replicate_stream": 3,
    "wait": 3,
    "later": 3,
    "stream": 3,
    "cancel": 3,
    "drop": 1,
    "replay": 2,
    "bad": 1,
    "unknown": 0.5,
    "foreign": 1,
}

#: Faults of processes, links, stores and receivers.
FAULTS: Weights = {
    "kill_director": 3,
    "kill_api": 2,
    "stop_director": 2,
    "stop_api": 1,
    "terminate_director": 1.5,
    "terminate_api": 1,
    "cut_link": 2,
    "block_link": 3,
    "delay_link": 1,
    "isolate_director": 1,
    "restart_redis": 1,
    "fail_over_redis": 1,
    "restart_postgres": 1,
    "kill_blocked_api": 1,
    "hook_error": 1,
    "hook_refuse": 1,
    "hook_hang": 1,
}


@dataclass(frozen=True)
class ClusterProfile(Profile):
    """One kind of run against a cluster."""

    apis: int = 2
    directors: int = 2
    #: The length of a lease, in seconds.
    lease: int = 3
    #: Seconds for which a process is stopped or a link is blocked.
    outage: tuple[float, float] = (0.5, 7.0)

    @property
    def total_slots(self) -> int:
        return self.directors * self.workers * self.slots


#: The variants of the model; the seed selects one.
_VARIANTS = (
    {"variant": "Stream", "slots": 1},
    {"variant": "AsyncStream", "slots": 4},
)

_CLUSTER = ClusterProfile(
    "cluster",
    variant="Stream",
    workers=1,
    slots=1,
    clients=14,
    accounts=3,
    seconds=(0.0, 0.02, 0.1, 0.4, 1.5, 3.0, 5.0),
    pause=0.25,
    ops=ACTIONS,
    behaviours={name: HARMLESS[name] for name in ("ok", "sleep", "fail", "prints", "chunks")},
    faults=FAULTS,
    fault_pause=(0.5, 3.0),
    settle=45.0,
    drain=3,
    cog_root="/models/local/model",
)

#: Without faults, and without the restart at the end.
_SHORT = replace(
    _CLUSTER,
    name="cluster-calm",
    variant="AsyncStream",
    slots=2,
    clients=10,
    faults={},
    settle=20.0,
    restart=False,
)

_BASES: dict[str, ClusterProfile] = {
    "cluster": _CLUSTER,
    "cluster-calm": _SHORT,
    #: All API processes are killed while receivers do not respond.
    "cluster-killed": replace(
        _SHORT,
        name="cluster-killed",
        ops={"replicate_create": 1},
        behaviours={"ok": 1},
        webhook_share=1.0,
        filters=(["completed"],),
        faults={"kill_sending_apis": 1},
        fault_pause=(0.5, 1.0),
    ),
    #: More jobs than slots, all of which are canceled while they wait or run.
    "cluster-canceled": replace(
        _SHORT,
        name="cluster-canceled",
        variant="Stream",
        slots=1,
        ops={"cancel": 1},
        behaviours={"sleep": 1},
        seconds=(0.8,),
    ),
    #: Directors are separated from the API until their jobs run on others.
    "cluster-isolated": replace(
        _SHORT,
        name="cluster-isolated",
        ops={"replicate_create": 1},
        behaviours={"sleep": 1},
        seconds=(2.5,),
        faults={"isolate_until_rerun": 1},
        fault_pause=(0.6, 1.0),
    ),
    #: All API processes are separated from PostgreSQL, and then killed.
    "cluster-blocked": replace(
        _SHORT,
        name="cluster-blocked",
        ops={"replicate_create": 1},
        behaviours={"sleep": 1},
        seconds=(0.8,),
        faults={"kill_blocked_apis": 1},
        fault_pause=(1.0, 1.5),
    ),
    #: Redis is restarted without its data.
    "cluster-emptied": replace(
        _SHORT,
        name="cluster-emptied",
        ops={"replicate_create": 1},
        faults={"restart_redis": 1},
        fault_pause=(0.3, 0.5),
    ),
    #: Deadlines pass while no director runs and PostgreSQL cannot be reached.
    "cluster-stranded": replace(
        _SHORT,
        name="cluster-stranded",
        ops={"replicate_deadline": 1},
        faults={"strand_jobs": 1},
        fault_pause=(0.1, 0.2),
    ),
}

CLUSTER_NAMES = tuple(_BASES)


def cluster_profile_of(name: str, seed: int) -> ClusterProfile:
    """The profile with this name; the variant of the model of `cluster` depends on the seed."""
    base = _BASES[name]
    if name != "cluster":
        return base
    return replace(base, **_VARIANTS[seed % len(_VARIANTS)])  # type: ignore[arg-type]
