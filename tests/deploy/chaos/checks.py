"""What must hold when all is over, whatever went wrong."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from fractions import Fraction

from deploy.billing import CHARGES_PER_USD
from deploy.model.instances import InstanceState
from deploy.model.jobs import JobState
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.chaos import ledger
from tests.deploy.chaos.deployment import Deployment

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
    entries = ledger.read(deployment.state / "local", deployment.offers)
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
