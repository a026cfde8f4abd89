"""Jobs, offers and reports that store tests are made of."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sqlalchemy import text

from spotweave.deploy.model.instances import InstanceReport, InstanceState, Offer
from spotweave.deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, SparkBatch, TaskKey
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from tests.deploy.store.conftest import NOW, Place

BATCH = JobSpec(name="wordcount", work=SparkBatch(script="count.py", args=("ä€", "b"), deadline_s=900.0))
FEDERATED = JobSpec(
    name="digits",
    work=Flower(app="app", rounds=3, clients=(FlowerClient(name="one"), FlowerClient(name="two"))),
)
SPOT = Offer(
    offer_id="aws/us-east-1a/m5.large/spot",
    provider="aws",
    region="us-east-1",
    zone="us-east-1a",
    instance_type="m5.large",
    market="spot",
    vcpus=2,
    memory_gib=8.0,
    gpu=None,
    speed=1.0,
    price_usd_hour=0.036,
    on_demand_usd_hour=0.096,
    available=True,
    quota=10,
    free_first_s=3600.0,
    notice_s=120.0,
)
ON_DEMAND = replace(
    SPOT,
    offer_id="aws/us-east-1/m5.large/od",
    zone="",
    market="on_demand",
    price_usd_hour=0.096,
    free_first_s=0.0,
)


def a_job(job_id: str = "j1", spec: JobSpec = BATCH, **changes: Any) -> Job:
    facts = {"state": JobState.PENDING, "submitted_s": NOW, "workdir": f"/srv/{job_id}", "submitter": "ana"}
    return Job(**{"job_id": job_id, "spec": spec, **facts, **changes})


def add_job(store: Store, job_id: str = "j1", spec: JobSpec = BATCH, **changes: Any) -> Job:
    with store.transaction():
        return store.jobs.add(a_job(job_id, spec, **changes))


def request(
    store: Store,
    instance_id: str = "i1",
    offer: Offer = SPOT,
    job_id: str = "j1",
    now_s: float = NOW,
    task: str = "main",
) -> Instance:
    key, token, secret = TaskKey(job_id, task), f"token-{instance_id}", f"secret of {instance_id}"
    with store.transaction():
        return store.instances.request(
            instance_id, offer, key, client_token=token, node_token=secret, now_s=now_s
        )


def report(
    store: Store,
    instance_id: str = "i1",
    state: InstanceState = InstanceState.LAUNCHING,
    launched_s: float = NOW,
    now_s: float = NOW,
    **changes: Any,
) -> Instance:
    names = {"instance_id": f"aws-{instance_id}", "client_token": f"token-{instance_id}"}
    facts = {"offer_id": SPOT.offer_id, "address": "127.0.1.1", "node_port": 7000}
    told = InstanceReport(**{**names, **facts, "state": state, "launched_s": launched_s, **changes})
    with store.transaction():
        return store.instances.report(instance_id, told, now_s)


def rent(
    store: Store, instance_id: str = "i1", offer: Offer = SPOT, job_id: str = "j1", **told: Any
) -> Instance:
    """An instance that was asked for, and what is told of it; for a job that is added if there is none."""
    if not store.jobs.named([job_id]):
        add_job(store, job_id)
    request(store, instance_id, offer, job_id)
    return report(store, instance_id, **told)


def price(store: Store, price_usd_hour: float, now_s: float, available: bool = True) -> int:
    with store.transaction():
        offers = [replace(SPOT, price_usd_hour=price_usd_hour, available=available), ON_DEMAND]
        return store.prices.record(offers, now_s)


def execute(place: Place, statement: str) -> None:
    """A statement of SQL, by nobody whom the store knows."""
    database = Database(place.url)
    with database.transaction() as connection:
        connection.execute(text(statement))
    database.close()


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What these return, each in a thread of its own. Raises what one of them raises."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result() for one in [threads.submit(call) for call in calls]]
