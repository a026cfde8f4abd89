"""What goes wrong, and in which order: a plan from a seed."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import NamedTuple

from spotweave.deploy.billing import CHARGES_PER_USD
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobState
from spotweave.deploy.node import procfs
from spotweave.deploy.providers.base import RefusedError
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.chaos.deployment import Deployment, provider_records

TARGET_S = 180.0
"""So long a fault waits for something that it can hit."""
_SETTLE_S = 120.0
_PROVOKE_S = 30.0
_POINTS = (("written", 1), ("written", 2), ("unconfirmed", 1), ("unconfirmed", 2), ("unconfirmed", 3))
"""Between an interruption and the new attempt: STOP is written, then LAUNCH and START, and all are done."""
PROGRAMS = {
    "agent": "spotweave.deploy.providers.local.init",
    "worker": "org.apache.spark.deploy.worker.Worker",
    "master": "org.apache.spark.deploy.master.Master",
    "superlink": "spotweave.deploy.runners.flower.guarded",
    "supernode": "flower-supernode",
}
"""What is killed, by the kind of fault and a part of its command line."""


class Fault(NamedTuple):
    """One fault."""

    # "scheduler" (SIGKILL), "writer" (SIGKILL between an intent and the act, or the act and its
    # confirmation), "instance" (taken without notice), "notice" (with one), or one of `PROGRAMS`
    kind: str
    draw: float  # in [0, 1), which of those that can be hit
    pause_s: float  # from the fault to the next
    notice_s: float  # of an interruption with notice
    point: str  # of a writer's death; see `serve.py`
    after: int  # this many such points


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
    def interrupted() -> str:
        running = deployment.running()
        if running:
            name = running[int(fault.draw * len(running))]
            with suppress(RefusedError):  # it ended meanwhile
                deployment.provider.interrupt(name, notice_s)
                return name if notice_s is None else f"{name} in {notice_s:.1f} s"
        return ""

    return deployment.wait_for(interrupted, "an instance to interrupt", TARGET_S)


def _kill(deployment: Deployment, fault: Fault) -> str:
    def killed() -> str:
        if found := deployment.processes(PROGRAMS[fault.kind]):
            victim = found[int(fault.draw * len(found))]
            if procfs.send(victim.pid, victim.start_ticks, 9):
                return f"{fault.kind} {victim.pid}"
        return ""

    return deployment.wait_for(killed, f"a {fault.kind} to kill", TARGET_S)


# What must hold when all is over, whatever went wrong.


_ENDING_S = 10.0


def check_jobs(deployment: Deployment, submitted: list[str]) -> None:
    """No job is lost, each has succeeded, once."""
    jobs = deployment.jobs()
    assert sorted(jobs) == sorted(submitted)
    assert {job.state for job in jobs.values()} == {JobState.SUCCEEDED}
    events = deployment.store.events.after(0, 1_000_000)
    ends = Counter(event.job_id for event in events if event.kind == "job.succeeded")
    assert ends == dict.fromkeys(submitted, 1)
    # A pass that fails is survived, but nothing that happened here is a reason for one to fail.
    assert "a pass failed" not in deployment.log.read_text(errors="replace")


def check_nothing_runs(deployment: Deployment) -> None:
    """No instance, no intent, no process."""
    assert not deployment.store.intents.pending()
    assert not deployment.store.instances.live()
    reports = deployment.provider.describe(deployment.deployment_id)
    assert {report.state for report in reports} == {InstanceState.TERMINATED}
    # What was killed may still be ending.
    until = time.monotonic() + _ENDING_S
    while deployment.leftovers() and time.monotonic() < until:
        time.sleep(0.2)
    assert deployment.leftovers() == []


def check_bills(deployment: Deployment) -> Fraction:
    """The store's bills are the provider's, instance by instance and job by job. Returns the sum in USD."""
    store, now_s = deployment.store, time.time()
    entries = provider_records(deployment.state / "local", deployment.offers)
    assert all(entry.ended for entry in entries)
    tokens = {
        instance.client_token: instance.instance_id
        for job_id in deployment.jobs()
        for instance in store.instances.of_job(job_id)
    }
    by_job: dict[str, Fraction] = defaultdict(Fraction)
    for entry in entries:
        cost = bill_of(store, tokens[entry.client_token], now_s).cost
        assert Fraction(cost, CHARGES_PER_USD) == entry.micro_usd / 10**6, entry
        by_job[entry.job_id] += entry.micro_usd / 10**6
    assert by_job == {
        job_id: Fraction(store.costs.of_job(job_id, now_s).cost, CHARGES_PER_USD) for job_id in by_job
    }
    total = sum(by_job.values(), Fraction())
    assert Fraction(store.costs.total(now_s).cost, CHARGES_PER_USD) == total
    assert wrong_charges(store) == []
    return total


def check_over(deployment: Deployment, submitted: list[str], within_s: float) -> None:
    """All jobs end within this time, and all of the above holds."""
    deployment.wait_for(deployment.over, "the end of all jobs", within_s)
    print(f"all has ended; {deployment.starts} starts", flush=True)
    check_jobs(deployment, submitted)
    assert deployment.end() == 0
    check_nothing_runs(deployment)
    cost = check_bills(deployment)
    assert cost > 0
    print(f"cost {float(cost):.6f} USD")
