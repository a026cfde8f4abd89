"""What goes wrong, and in which order: a plan from a seed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from deploy.node import procfs
from deploy.providers.base import RefusedError
from tests.deploy.chaos.deployment import Deployment

TARGET_S = 180.0
"""So long a fault waits for something that it can hit."""
_SETTLE_S = 120.0
_PROVOKE_S = 30.0
_POINTS = (("written", 1), ("written", 2), ("unconfirmed", 1), ("unconfirmed", 2), ("unconfirmed", 3))
"""Between an interruption and the new attempt: STOP is written, then LAUNCH and START, and all are done."""
PROGRAMS = {
    "agent": "deploy.providers.local.init",
    "worker": "org.apache.spark.deploy.worker.Worker",
    "master": "org.apache.spark.deploy.master.Master",
    "superlink": "deploy.runners.flower.guarded",
    "supernode": "flower-supernode",
}
"""What is killed, by the kind of fault and a part of its command line."""


class Fault(NamedTuple):
    """One fault.

    Attributes:
        kind: "scheduler" (SIGKILL), "writer" (SIGKILL between an intent and the act, or the act and its
            confirmation), "instance" (taken without notice), "notice" (with one), or one of `PROGRAMS`.
        draw: in [0, 1), which of those that can be hit.
        pause_s: from the fault to the next.
        notice_s: of an interruption with notice.
        point: of a writer's death; see `serve.py`.
        after: this many such points.
    """

    kind: str
    draw: float
    pause_s: float
    notice_s: float
    point: str
    after: int


def plan(seed: int, counts: Mapping[str, int]) -> list[Fault]:
    """This many faults of each kind, in an order and with particulars that depend on the seed alone."""
    rng = random.Random(seed)
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    rng.shuffle(kinds)
    return [
        Fault(kind, rng.random(), rng.uniform(2.0, 7.0), rng.uniform(4.0, 10.0), *rng.choice(_POINTS))
        for kind in kinds
    ]


def strike(deployment: Deployment, fault: Fault) -> str:
    """Let it happen, wait for the service to make a pass after it, and a bit. Returns what was hit."""
    if fault.kind == "scheduler":
        deployment.kill()
        hit = "the service"
    elif fault.kind == "writer":
        deployment.set_trap(fault.point, fault.after)
        hit = f"the writer, {fault.point} {fault.after}, after {_provoke(deployment, fault)}"
    elif fault.kind in ("instance", "notice"):
        hit = _interrupt(deployment, fault, fault.notice_s if fault.kind == "notice" else None)
    else:
        hit = _kill(deployment, fault)
    struck_s = time.time()
    deployment.wait_for(lambda: deployment.passes() > struck_s, "a pass after the fault", _SETTLE_S)
    time.sleep(fault.pause_s)
    return hit


def strike_all(deployment: Deployment, faults: Sequence[Fault]) -> Iterator[int]:
    """One after the other; before each of them gives its number."""
    began = time.monotonic()
    for number, fault in enumerate(faults):
        yield number
        hit = strike(deployment, fault)
        print(f"{time.monotonic() - began:5.0f} s  {number + 1:2} {fault.kind}: {hit}", flush=True)


def _provoke(deployment: Deployment, fault: Fault) -> str:
    """Give the writer something to write until it is dead."""
    hit: list[str] = []
    until = 0.0

    def dead() -> bool:
        nonlocal until
        if time.monotonic() > until and deployment.trap.exists():
            hit.append(_interrupt(deployment, fault, None))
            until = time.monotonic() + _PROVOKE_S
        return not deployment.trap.exists()

    deployment.wait_for(dead, "the writer's death", TARGET_S)
    return " and ".join(hit)


def _interrupt(deployment: Deployment, fault: Fault, notice_s: float | None) -> str:
    hit: list[str] = []

    def interrupted() -> bool:
        running = deployment.running()
        if running:
            name = running[int(fault.draw * len(running))]
            try:
                deployment.provider.interrupt(name, notice_s)
            except RefusedError:
                return False  # it ended meanwhile
            hit.append(name if notice_s is None else f"{name} in {notice_s:.1f} s")
        return bool(hit)

    deployment.wait_for(interrupted, "an instance to interrupt", TARGET_S)
    return hit[0]


def _kill(deployment: Deployment, fault: Fault) -> str:
    hit: list[str] = []

    def killed() -> bool:
        found = deployment.processes(PROGRAMS[fault.kind])
        if found:
            victim = found[int(fault.draw * len(found))]
            if procfs.send(victim.pid, victim.start_ticks, 9):
                hit.append(f"{fault.kind} {victim.pid}")
        return bool(hit)

    deployment.wait_for(killed, f"a {fault.kind} to kill", TARGET_S)
    return hit[0]
