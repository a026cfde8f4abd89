"""The initial mapping that is told when a training with a placed server is submitted."""

from __future__ import annotations

import itertools
import json

import pytest

from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import JobSpec
from spotweave.deploy.server.mapping import initial_mapping
from tests.deploy.scheduler.worlds import offer
from tests.deploy.server.service import Service, encoded

OFFERS = [
    offer("near/fast", "on_demand", region="near", price_usd_hour=1.0, speed=2.0, quota=1),
    offer("near/slow", region="near", price_usd_hour=0.2, speed=1.0, quota=5),
    offer("far/cheap", region="far", price_usd_hour=0.1, speed=0.5, quota=5),
    offer("far/away", region="far", price_usd_hour=0.01, speed=9.0, available=False),
]


def spec_of(**work: object) -> JobSpec:
    clients = [{"name": "a", "epoch_s": 600.0}, {"name": "b", "epoch_s": 300.0, "region": "near"}]
    whole = {"kind": "flower", "app": "app", "rounds": 4, "clients": clients, "server": {}} | work
    return JobSpec.model_validate_json(json.dumps({"name": "fl", "work": whole}))


def cheapest(spec: JobSpec, offers: list[Offer]) -> tuple[float, float]:
    """(USD, seconds) of the best of all mappings, by trying each."""
    best = None
    slowest_s = max(600.0 / one.speed for one in offers)
    dearest = max(one.price_usd_hour for one in offers) * slowest_s / 3600 * 3
    for a, b, server in itertools.product(offers, repeat=3):
        used = [one.offer_id for one in (a, b, server)]
        if b.region != "near" or any(used.count(one.offer_id) > one.quota for one in offers):
            continue
        round_s = max(600.0 / a.speed, 300.0 / b.speed)
        usd = sum(one.price_usd_hour for one in (a, b, server)) * round_s / 3600
        objective = 0.5 * usd / dearest + 0.5 * round_s / slowest_s
        if best is None or objective < best[0]:
            best = objective, 4 * usd, 4 * round_s
    assert best is not None
    return best[1:]


def test_it_is_the_best_of_all_mappings_within_quotas_and_regions() -> None:
    spec = spec_of()
    found = initial_mapping(spec, OFFERS)
    assert found is not None
    usd, seconds = cheapest(spec, OFFERS[:3])
    assert found["usd"] == pytest.approx(usd)
    assert found["total_s"] == pytest.approx(seconds)
    assert found["gap"] == 0
    assert found["clients"] == ["a: near/fast", "b: near/slow"]
    assert found["server"] == "far/cheap"


@pytest.mark.parametrize(
    ("work", "server"), [({"region": "near"}, "near/slow"), ({"memory_gib": 1e5}, None), (None, None)]
)
def test_the_server_goes_where_it_may(work: dict[str, object] | None, server: str | None) -> None:
    found = initial_mapping(spec_of(server=work), OFFERS)
    assert (found is None) == (work is None), "without a place it is no task"
    if found is not None:
        assert found.get("server") == server
        assert ("reason" in found) == (server is None)


def test_limits_that_cannot_be_kept_are_told() -> None:
    found = initial_mapping(spec_of(deadline_s=100.0), OFFERS)
    assert found is not None
    assert "deadline" in str(found["reason"])


def test_it_is_told_when_the_job_is_explained(service: Service) -> None:
    spec = spec_of(clients=[{"name": "a"}]).model_dump(mode="json", exclude_none=True)
    files = {"app/pyproject.toml": encoded(b"[tool.flwr.app]\n")}
    answer = service.submitter.post("/v1/jobs", json={"spec": spec, "files": files})
    assert answer.status_code == 201, answer.text
    explained = service.submitter.get(f"/v1/jobs/{answer.json()['job_id']}/explain").json()
    (mapped,) = [event["data"] for event in explained["events"] if event["kind"] == "job.mapped"]
    assert mapped["server"] in ("spot", "sure")
