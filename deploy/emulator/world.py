"""The emulated account: its instances, and what time does to them."""

from __future__ import annotations

import heapq
import math
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from deploy.emulator.config import EmulatorConfig, bucket_of
from deploy.emulator.events import EVENT_LEAD_S, REBALANCE, STATE_CHANGE, WARNING, Events
from deploy.emulator.faults import Faults
from deploy.emulator.market import Market, Pool
from deploy.emulator.records import Instance, SpotRequest, Stretch
from deploy.model.clock import Clock
from deploy.providers.local.records import Fate

KEPT_S = 3600.0
"""Terminated instances are described for so long."""
_RESUME_EVERY_S = 60.0


class Machines(Protocol):
    """What really runs of an instance."""

    def start(self, instance: Instance) -> None:
        """It is `running` now."""

    def fate(self, instance: Instance) -> None:
        """Its fate has changed."""

    def stop(self, instance: Instance) -> None:
        """Nothing of it runs any more when this returns."""

    def address(self, taken: set[str]) -> str:
        """A private address for one more."""

    def close(self) -> None:
        """End everything."""


class World:
    """Not for several threads: hold `lock`, then `settle`, then look or act.

    Attributes:
        instances: all that ever were, in the order of their launch.
        requests: spot requests.
        interruptions: instances taken away by the market so far.
    """

    def __init__(self, config: EmulatorConfig, clock: Clock, market: Market, machines: Machines) -> None:
        self.config, self.clock, self.market, self.machines = config, clock, market, machines
        self.lock = threading.RLock()
        self.faults = Faults(config.faults, config.seed)
        self.events = Events(config.seed)
        self.instances: dict[str, Instance] = {}
        self.requests: dict[str, SpotRequest] = {}
        self.interruptions = 0
        self._living: dict[str, Instance] = {}
        self._shown: dict[str, Instance] = {}
        # No id comes twice, also not after another start; in virtual time runs repeat exactly.
        self._random = random.Random(f"ids {config.seed} {clock.now()}")
        self._due: list[tuple[float, int, Instance, int, Callable[[Instance, float], None]]] = []
        self._planned = 0

    def new_id(self, prefix: str) -> str:
        """`i-0123456789abcdef0`."""
        return f"{prefix}-{self._random.getrandbits(68):017x}"

    def now_s(self) -> float:
        """Whole epoch seconds: what AWS shows has no finer time."""
        return math.floor(self.clock.now())

    def living(self) -> list[Instance]:
        """All that are not terminated."""
        return list(self._living.values())

    def described(self, region: str) -> list[Instance]:
        """What DescribeInstances may show now."""
        now_s = self.now_s()
        for name, one in list(self._shown.items()):
            if one.ended_s is not None and one.ended_s <= now_s - KEPT_S:
                del self._shown[name]
        return [one for one in self._shown.values() if one.region == region and one.first_seen_s <= now_s]

    def used(self, pool: Pool, *, spot: bool) -> int:
        """Instances that take its capacity."""
        return sum(one.occupies and one.pool is pool and one.spot is spot for one in self._living.values())

    def used_vcpus(self, region: str, instance_type: str, *, spot: bool) -> int:
        """Virtual cores that count against the limit of this type."""
        bucket = bucket_of(instance_type)
        return sum(
            one.pool.vcpus
            for one in self._living.values()
            if one.occupies
            and one.region == region
            and one.spot is spot
            and bucket_of(one.pool.instance_type) == bucket
        )

    # Life.

    def add(self, instance: Instance) -> None:
        """Launch it now."""
        for shelf in (self.instances, self._living, self._shown):
            shelf[instance.instance_id] = instance
        if instance.request is not None:
            self.requests[instance.request.request_id] = instance.request
        self._begin(instance, instance.launched_s)

    def settle(self) -> None:
        """Do what was planned until now, in the order of time."""
        now_s = self.clock.now()
        while self._due and self._due[0][0] <= now_s:
            at_s, _, instance, generation, act = heapq.heappop(self._due)
            if instance.generation == generation:
                act(instance, at_s)

    def next_s(self) -> float | None:
        """When something happens next; None: nothing will by itself."""
        while self._due and self._due[0][2].generation != self._due[0][3]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def terminate(self, instance: Instance) -> None:
        """The user ends it."""
        if instance.state in ("shutting-down", "terminated"):
            return
        now_s = self.now_s()
        self._end(instance, now_s, "terminated", by_provider=False)

    def stop(self, instance: Instance) -> None:
        """The user stops it."""
        if instance.state in ("stopping", "stopped"):
            return
        self._end(instance, self.now_s(), "stopped", by_provider=False)

    def start(self, instance: Instance) -> None:
        """The user starts it again."""
        self._void(instance)
        instance.launched_s = self.now_s()
        self._begin(instance, instance.launched_s)

    def interrupt(self, instance: Instance, notice_s: float) -> None:
        """Take it away as the market would, after this many seconds."""
        now_s = self.now_s()
        generation = instance.generation
        self._foretell(instance, Fate(rebalance_s=now_s, notice_s=now_s, kill_s=now_s + notice_s))
        assert generation == instance.generation
        self.settle()

    def _plan(self, instance: Instance, at_s: float, act: Callable[[Instance, float], None]) -> None:
        self._planned += 1
        heapq.heappush(self._due, (at_s, self._planned, instance, instance.generation, act))

    def _void(self, instance: Instance) -> None:
        """Forget what was planned for it."""
        instance.generation += 1

    def _begin(self, instance: Instance, at_s: float) -> None:
        instance.reason, instance.transition = None, ""
        instance.stretches.append(Stretch(at_s))
        self._turn(instance, "pending", at_s)
        self._plan(instance, at_s + self.config.launch_s, self._run)
        if instance.spot:
            self._foretell(instance, self._fate(instance, at_s))

    def _fate(self, instance: Instance, at_s: float) -> Fate:
        """When the market takes it away."""
        end_s = self.market.ends_s(instance.pool, at_s, instance.max_usd_hour)
        if end_s is None:
            return Fate()
        kill_s = float(math.floor(end_s))
        if self.faults.strikes("notice missed", self.faults.config.notice_missed):
            return Fate(kill_s=kill_s)
        # Hibernation begins at once: its notice says "now".
        lead_s = 0.0 if instance.behaviour == "hibernate" else self.config.notice_s
        notice_s = max(at_s, kill_s - lead_s)
        return Fate(
            rebalance_s=max(at_s, notice_s - self.config.rebalance_s), notice_s=notice_s, kill_s=kill_s
        )

    def _foretell(self, instance: Instance, fate: Fate) -> None:
        instance.fate = fate
        for at_s, act in (
            (fate.rebalance_s, self._recommend),
            (fate.notice_s, self._warn),
            (fate.kill_s, self._take),
        ):
            if at_s is not None:
                self._plan(instance, at_s, act)
        self.machines.fate(instance)

    def _run(self, instance: Instance, at_s: float) -> None:
        if instance.dies:
            instance.reason = ("Server.InternalError", "Server.InternalError: Internal error on launch")
            instance.transition = "Server.InternalError"
            # AWS takes no money for what never ran.
            instance.stretches.pop()
            self._finish(instance, at_s, "terminated")
            return
        instance.running_s = at_s
        self._turn(instance, "running", at_s)
        self.machines.start(instance)

    def _recommend(self, instance: Instance, at_s: float) -> None:
        self._tell(instance, REBALANCE, at_s, {})

    def _warn(self, instance: Instance, at_s: float) -> None:
        if instance.request is not None:
            instance.request.status = (
                "marked-for-termination" if instance.behaviour == "terminate" else "marked-for-stop"
            )
            instance.request.updated_s = at_s
        # Of the end an event says no more than its own time, from which it is 120 s: so it is dated back
        # where the notice is shorter here.
        kill_s = instance.fate.kill_s
        dated_s = at_s if kill_s is None or instance.behaviour == "hibernate" else kill_s - EVENT_LEAD_S
        self._tell(instance, WARNING, dated_s, {"instance-action": instance.behaviour})

    def _take(self, instance: Instance, at_s: float) -> None:
        self.interruptions += 1
        final = "terminated" if instance.behaviour == "terminate" else "stopped"
        self._end(instance, at_s, final, by_provider=True)

    def _end(self, instance: Instance, at_s: float, final: str, *, by_provider: bool) -> None:
        """Stop paying for it; what runs of it ends."""
        was = instance.state
        self._void(instance)
        instance.fate = Fate()
        if was in ("pending", "running"):
            stretch = instance.stretches[-1]
            stretch.end_s, stretch.by_provider = at_s, by_provider
            self.machines.stop(instance)
        instance.transition = f"{'Service' if by_provider else 'User'} initiated ({_gmt(at_s)})"
        if not by_provider:
            code = "Client.UserInitiatedShutdown"
            instance.reason = (code, f"{code}: User initiated shutdown")
        elif final == "terminated":
            instance.reason = (
                "Server.SpotInstanceTermination",
                "Server.SpotInstanceTermination: Spot instance termination",
            )
        else:
            instance.reason = (
                "Server.SpotInstanceShutdown",
                "Server.SpotInstanceShutdown: Spot instance shutdown",
            )
        self._close_request(instance, at_s, final, by_provider=by_provider)
        if final == "terminated":
            instance.ended_s = at_s
        self._turn(instance, "shutting-down" if final == "terminated" else "stopping", at_s)
        done = self._terminated if final == "terminated" else self._stopped
        self._plan(instance, at_s + self.config.shutdown_s, done)
        if final == "stopped" and by_provider:
            self._plan(instance, at_s + self.config.shutdown_s + _RESUME_EVERY_S, self._resume)
        self.settle_volumes(instance, at_s, final)

    def settle_volumes(self, instance: Instance, at_s: float, final: str) -> None:
        """Disks of a terminated instance are deleted, or left."""
        if final != "terminated":
            return
        for volume in instance.volumes:
            volume.instance_id = None
            if volume.delete_on_termination:
                volume.deleted_s = at_s

    def _close_request(self, instance: Instance, at_s: float, final: str, *, by_provider: bool) -> None:
        request = instance.request
        if request is None:
            return
        what = "terminated" if final == "terminated" else "stopped"
        if not by_provider:
            why = "by-user"
        elif self.market.price(instance.pool, at_s) > instance.max_usd_hour:
            why = "by-price"
        else:
            why = "no-capacity"
        request.status, request.updated_s = f"instance-{what}-{why}", at_s
        if final == "terminated":
            request.state = "closed"
        elif by_provider:
            request.state = "open"
        else:
            request.state = "disabled"

    def _terminated(self, instance: Instance, at_s: float) -> None:
        self._finish(instance, at_s, "terminated")

    def _stopped(self, instance: Instance, at_s: float) -> None:
        self._turn(instance, "stopped", at_s)

    def _finish(self, instance: Instance, at_s: float, state: str) -> None:
        self._void(instance)
        if instance.ended_s is None:
            instance.ended_s = at_s
            self.settle_volumes(instance, at_s, state)
            if instance.request is not None:
                instance.request.state, instance.request.updated_s = "closed", at_s
                instance.request.status = "instance-terminated-launch-failed"
        self._living.pop(instance.instance_id, None)
        self._turn(instance, state, at_s)

    def _resume(self, instance: Instance, at_s: float) -> None:
        """EC2 starts again what it stopped, once there is capacity."""
        pool = instance.pool
        request = instance.request
        assert request is not None
        if request.state == "cancelled":
            return
        free = self.market.returns_s(pool, at_s, instance.max_usd_hour)
        if free and self.used(pool, spot=True) < pool.spot_capacity:
            self._void(instance)
            request.state, request.status, request.updated_s = "active", "fulfilled", at_s
            instance.launched_s = float(math.floor(at_s))
            self._begin(instance, instance.launched_s)
        else:
            self._plan(instance, at_s + _RESUME_EVERY_S, self._resume)

    def _turn(self, instance: Instance, state: str, at_s: float) -> None:
        instance.state = state
        self._tell(instance, STATE_CHANGE, at_s, {"state": state})

    def _tell(self, instance: Instance, kind: str, at_s: float, detail: dict[str, str]) -> None:
        self.events.send(instance.region, kind, instance.instance_id, instance.pool.zone, at_s, detail)


def _gmt(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
