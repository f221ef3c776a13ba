"""Faults of a cluster. Each fault opens and closes a window in the log, with what it concerns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable

from torture.cluster.cluster import Cluster
from torture.cluster.nodes import Node
from torture.cluster.profiles import ClusterProfile
from torture.cluster.proxy import Link
from torture.cluster.stores import RedisServer
from torture.event_log import EventLog
from torture.profiles import Weights, pick
from torture.receiver import Receiver

STORE_FAULTS = {"restart_redis", "fail_over_redis", "restart_postgres"}
#: Faults of the same lane never overlap.
LANES = (
    {"kill_director", "kill_api", "stop_director", "stop_api", "terminate_director", "terminate_api"}
    | {"kill_blocked_api", "kill_blocked_apis", "kill_sending_apis", "strand_jobs"},
    {"cut_link", "block_link", "delay_link", "isolate_director", "isolate_until_rerun"},
    STORE_FAULTS,
    {"hook_error", "hook_refuse", "hook_hang"},
)
#: What a link fault concerns: all links of one process to a store or to the API processes.
CONNECTIONS = ("api-redis", "api-postgres", "director-redis", "director-api")
#: Faults of stores stop all jobs, so the pauses between them are longer by this factor.
STORE_PAUSES = 3
#: Seconds before, while and after the API processes are separated from PostgreSQL in `strand_jobs`:
#: deadlines of five and six seconds pass meanwhile.
STRANDED = (4.5, 3.5, 1.0)
#: The longest time until a job of a director that is cut off runs on another one.
RERUN_LIMIT = 15.0
#: How long to wait for a webhook before the API processes are killed.
SENDING_LIMIT = 4.0
#: Pauses before a killed process is started again.
PAUSES = (0.0, 0.0, 0.5, 5.0)


class ClusterFaults:
    """Injects random faults, decided by the seed."""

    def __init__(
        self, cluster: Cluster, receiver: Receiver, log: EventLog, profile: ClusterProfile, seed: int
    ) -> None:
        self._cluster = cluster
        self._receiver = receiver
        self._log = log
        self._profile = profile
        self._seed = seed
        self._windows = 0

    async def run(self, until: float) -> None:
        """Inject faults until the time `until`; all faults are over when this returns."""
        known = self._profile.faults
        lanes = [{name: known[name] for name in sorted(lane & set(known))} for lane in LANES]
        await asyncio.gather(
            *(self._run_lane(number, lane, until) for number, lane in enumerate(lanes) if lane)
        )

    async def _run_lane(self, number: int, weights: Weights, until: float) -> None:
        rng = random.Random(f"{self._seed}/cluster/{number}")
        while True:
            pause = rng.uniform(*self._profile.fault_pause)
            pause *= STORE_PAUSES if weights.keys() & STORE_FAULTS else 1
            name, fault = pick(rng, weights), random.Random(rng.random())
            if time.monotonic() + pause >= until:
                return
            await asyncio.sleep(pause)
            await getattr(self, name)(fault)

    @contextlib.asynccontextmanager
    async def _window(self, name: str, target: str) -> AsyncIterator[None]:
        self._windows += 1
        number = self._windows
        self._log.write("fault", w=number, name=name, target=target, phase="open")
        try:
            yield
        finally:
            self._log.write("fault", w=number, name=name, target=target, phase="close")

    def _outage(self, rng: random.Random) -> float:
        return rng.uniform(*self._profile.outage)

    async def kill_director(self, rng: random.Random) -> None:
        await self._kill("kill_director", rng.choice(self._cluster.directors), rng)

    async def kill_api(self, rng: random.Random) -> None:
        await self._kill("kill_api", rng.choice(self._cluster.apis), rng)

    async def _kill(self, name: str, node: Node, rng: random.Random) -> None:
        async with self._window(name, node.name):
            await node.kill()
            await asyncio.sleep(rng.choice(PAUSES))
            await self._start(node)

    async def kill_blocked_api(self, rng: random.Random) -> None:
        """Separate an API process from PostgreSQL, kill it, and start it again."""
        await self._kill_blocked(rng.choice(self._cluster.apis), rng.uniform(0.5, 1.5))

    async def kill_blocked_apis(self, rng: random.Random) -> None:
        """The same with all API processes at the same time."""
        await self._kill_all_blocked(rng.uniform(1.3, 1.6))

    async def _kill_all_blocked(self, seconds: float) -> None:
        async with self._window("kill_apis", "api"):
            await asyncio.gather(*(self._kill_blocked(node, seconds) for node in self._cluster.apis))

    async def kill_sending_apis(self, rng: random.Random) -> None:
        """Kill all API processes as soon as a webhook gets no response, and start them again.

        An attempt that has timed out is released, so the kill must follow at once.
        """
        async with contextlib.AsyncExitStack() as windows:
            await windows.enter_async_context(self._window("kill_apis", "api"))
            await windows.enter_async_context(self._window("hook_hang", "receiver"))
            for node in self._cluster.apis:
                await windows.enter_async_context(self._window("kill_api", node.name))
            await self._receiver.set_mode("hang")
            begun = time.monotonic()
            while self._receiver.hung_at < begun and time.monotonic() < begun + SENDING_LIMIT:
                await asyncio.sleep(0.005)
            await asyncio.gather(*(node.kill() for node in self._cluster.apis))
            await self._receiver.set_mode("ok")
            await asyncio.gather(*(self._start(node) for node in self._cluster.apis))

    async def _kill_blocked(self, node: Node, seconds: float) -> None:
        (link,) = self._cluster.links_between(node.name, "postgres")
        async with self._window("block_link", link.name):
            link.block()
            await asyncio.sleep(seconds)
            async with self._window("kill_api", node.name):
                await node.kill()
                link.reset()
                link.heal()
                await self._start(node)

    async def strand_jobs(self, rng: random.Random) -> None:
        """Stop all directors; meanwhile separate the API processes from PostgreSQL, and kill them."""
        cluster = self._cluster
        async with contextlib.AsyncExitStack() as windows:
            for node in cluster.directors:
                await windows.enter_async_context(self._window("stop_director", node.name))
                node.stop()
            try:
                await asyncio.sleep(STRANDED[0])
                await self._kill_all_blocked(STRANDED[1])
                await asyncio.sleep(STRANDED[2])
            finally:
                for node in cluster.directors:
                    node.resume()

    async def terminate_director(self, rng: random.Random) -> None:
        await self._terminate("terminate_director", rng.choice(self._cluster.directors), rng)

    async def terminate_api(self, rng: random.Random) -> None:
        await self._terminate("terminate_api", rng.choice(self._cluster.apis), rng)

    async def _terminate(self, name: str, node: Node, rng: random.Random) -> None:
        async with self._window(name, node.name):
            await node.terminate()
            await asyncio.sleep(rng.choice(PAUSES))
            await self._start(node)

    async def _start(self, node: Node) -> None:
        node.start()
        if node in self._cluster.apis:
            await self._cluster.wait_until_listening(node)

    async def stop_director(self, rng: random.Random) -> None:
        await self._stop("stop_director", rng.choice(self._cluster.directors), rng)

    async def stop_api(self, rng: random.Random) -> None:
        await self._stop("stop_api", rng.choice(self._cluster.apis), rng)

    async def _stop(self, name: str, node: Node, rng: random.Random) -> None:
        async with self._window(name, node.name):
            node.stop()
            try:
                await asyncio.sleep(self._outage(rng))
            finally:
                node.resume()

    def _pick_links(self, rng: random.Random) -> tuple[str, list[Link]]:
        """The links of one process to a store, to all API processes, or to one of them."""
        source, target = rng.choice(CONNECTIONS).split("-")
        number = rng.randrange(len(self._cluster.apis if source == "api" else self._cluster.directors))
        found = self._cluster.links_between(f"{source}{number}", target)
        if len(found) > 1 and rng.random() < 0.3:
            found = [rng.choice(found)]
            return found[0].name, found
        return f"{source}{number}-{target}", found

    async def cut_link(self, rng: random.Random) -> None:
        """Break the connections and refuse new ones."""
        name, links = self._pick_links(rng)
        await self._break_links("cut_link", name, links, Link.cut, self._outage(rng))

    async def block_link(self, rng: random.Random) -> None:
        """Lose everything that is sent. It arrives at the end, or the connections break then."""
        name, links = self._pick_links(rng)
        breaks = rng.random() < 0.5
        async with self._window("block_link", name):
            for link in links:
                link.block()
            try:
                await asyncio.sleep(self._outage(rng))
            finally:
                for link in links:
                    if breaks:
                        link.reset()
                    link.heal()

    async def isolate_director(self, rng: random.Random) -> None:
        """Separate a director from all API processes; what it sends arrives at the end."""
        node = rng.choice(self._cluster.directors)
        links = self._cluster.links_between(node.name, "api")
        await self._break_links("block_link", f"{node.name}-api", links, Link.block, self._outage(rng))

    async def isolate_until_rerun(self, rng: random.Random) -> None:
        """The same until a job of the director runs on another one."""
        node = rng.choice(self._cluster.directors)
        async with self._window("block_link", f"{node.name}-api"):
            links, before = self._cluster.links_between(node.name, "api"), self._count_reruns()
            for link in links:
                link.block()
            until = time.monotonic() + RERUN_LIMIT
            while self._count_reruns() == before and time.monotonic() < until:
                await asyncio.sleep(0.05)
            for link in links:
                link.heal()

    def _count_reruns(self) -> int:
        """The number of executions of jobs that had begun before."""
        journal = self._cluster.journal
        entries = map(json.loads, journal.read_text().splitlines()) if journal.exists() else ()
        begun = [entry["n"] for entry in entries if entry["e"] == "begin"]
        return len(begun) - len(set(begun))

    async def delay_link(self, rng: random.Random) -> None:
        """Deliver everything later."""
        name, links = self._pick_links(rng)
        seconds = rng.choice((0.05, 0.1, 0.3))

        def delay(link: Link) -> None:
            link.delay = seconds

        await self._break_links("delay_link", name, links, delay, self._outage(rng))

    async def _break_links(
        self, fault: str, name: str, links: list[Link], change: Callable[[Link], None], seconds: float
    ) -> None:
        async with self._window(fault, name):
            for link in links:
                change(link)
            try:
                await asyncio.sleep(seconds)
            finally:
                for link in links:
                    link.heal()

    async def restart_redis(self, rng: random.Random) -> None:
        """Restart Redis without its data."""
        async with self._window("restart_redis", "redis"):
            self._cluster.redis.kill()
            await asyncio.sleep(rng.choice((0.0, 0.5, 3.0)))
            await self._cluster.redis.start()

    async def fail_over_redis(self, rng: random.Random) -> None:
        """Promote a replica that has not received the last changes."""
        cluster = self._cluster
        replication = Link("replication", cluster.redis.port)
        await replication.start()
        replica = RedisServer(cluster.scratch)
        await replica.replicate(replication.port)
        async with self._window("fail_over_redis", "redis"):
            replication.block()
            await asyncio.sleep(rng.uniform(0.2, 2.0))
            old, cluster.redis = cluster.redis, replica
            old.kill()
            replication.close()
            await asyncio.to_thread(replica.call, "REPLICAOF", "NO", "ONE")
            cluster.move_redis(replica.port)

    async def restart_postgres(self, rng: random.Random) -> None:
        """Restart PostgreSQL as after a crash."""
        async with self._window("restart_postgres", "postgres"):
            await self._cluster.postgres.shut_down_immediately()
            await asyncio.sleep(rng.choice((0.0, 0.5, 4.0)))
            await self._cluster.postgres.start()

    async def hook_error(self, rng: random.Random) -> None:
        await self._set_receiver_mode("error", rng)

    async def hook_hang(self, rng: random.Random) -> None:
        await self._set_receiver_mode("hang", rng)

    async def hook_refuse(self, rng: random.Random) -> None:
        await self._set_receiver_mode("refuse", rng)

    async def _set_receiver_mode(self, mode: str, rng: random.Random) -> None:
        async with self._window(f"hook_{mode}", "receiver"):
            await self._receiver.set_mode(mode)
            try:
                await asyncio.sleep(rng.uniform(0.5, 3))
            finally:
                await self._receiver.set_mode("ok")
