"""Two clouds of which one refuses everything: deadlines are kept in the other, moves are told and billed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.billing import Bill, usd
from deploy.model.jobs import JobSpec, JobState, Profile, SparkBatch
from deploy.model.transfers import Transfers
from deploy.scheduler.settings import SchedulerSettings
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.emulator.chaos import HOUR_S, SETTINGS, Account, CloudWorld, agree
from tests.deploy.emulator.traces import START_S, trace
from tests.deploy.emulator.worlds import CLOUDS, AwsWorld, GcpWorld, aws_account, gcp_account
from tests.deploy.scheduler.worlds import batch

DARK_S = HOUR_S
"""After the start one cloud takes back all of its spot capacity, and launches nothing more."""
DATA_GB = 10.0
MOVING_S = 2700.0
"""Spare time: eight offers of the dark cloud refuse, in passes up to a minute apart, and the safety net
gives up spot capacity when a quarter of an hour is left."""
EGRESS_USD_GB = {"aws": 0.09, "gcp": 0.12}
"""What a GB costs that leaves a cloud for the other, by both price lists."""
HOME = {"aws": "us-east-1", "gcp": "us-central1"}
LIT = {"aws": "us-central1", "gcp": "us-east-1"}
"""Where the other cloud's first offer is; all of its offers cost the same."""
REFUSALS = {
    "aws": ("ec2:RunInstances", "InsufficientInstanceCapacity"),
    "gcp": ("compute:instances.create", "ZONE_RESOURCE_POOL_EXHAUSTED"),
}


class TwoClouds(CloudWorld):
    """AWS and Google Cloud. `emulated` names the one that goes dark, which is the cheaper one."""

    zones = (*AwsWorld.zones, *GcpWorld.zones)

    def emulate(self, emulated: dict[str, Any]) -> Sequence[Account]:
        dark = emulated.pop("dark")
        about = {
            name: {
                **emulated,
                **world.quotas,
                "pools": [{**world.pool, **self._pool(zone, name == dark)} for zone in world.zones],
                "launch_s": 25.0,
                "faults": {"error": 0.05, "lost": 0.01, "spells": self._refusals(name) * (name == dark)},
            }
            for name, world in CLOUDS.items()
        }
        return [
            aws_account(self.clock, about["aws"], AwsWorld.zones),
            gcp_account(self.folder, self.clock, about["gcp"], GcpWorld.zones, 100.0),
        ]

    def _pool(self, zone: str, dark: bool) -> dict[str, Any]:
        price, until = (0.05, DARK_S) if dark else (0.2, 100 * HOUR_S)
        rows = [(0, 1, price), (until, 0, price), (101 * HOUR_S, 0, price)]
        return {"zone": zone, "trace": trace(self.folder, zone, rows)}

    def _refusals(self, name: str) -> list[dict[str, Any]]:
        action, answer = REFUSALS[name]
        return [{"start_s": START_S + DARK_S, "actions": [action], "answer": answer}]

    def set_up(self) -> SchedulerSettings:
        transfers = Transfers().joined(*(account.rents.transfers() for account in self.accounts))
        return replace(SETTINGS, transfers=transfers)


def jobs(home: str) -> dict[str, JobSpec]:
    """Of 2 to 3.5 hours, of which one is done when it goes dark; some could do it again from the start."""
    found = {}
    for n in range(4):
        work_s = (2.0 + n / 2) * HOUR_S
        spare_s = MOVING_S + n % 2 * DARK_S
        found[f"job{n}-1"] = batch(
            f"job{n}",
            work_s=work_s,
            deadline_s=work_s + spare_s,
            profile=Profile(data_region=home, data_gb=DATA_GB),
        )
    return found


@pytest.mark.real
@pytest.mark.parametrize("dark", CLOUDS)
def test_a_cloud_that_refuses_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dark: str) -> None:
    world = TwoClouds(tmp_path, {"dark": dark}, monkeypatch)
    store = world.store
    given = jobs(HOME[dark])
    for spec in given.values():
        world.submit(spec)
    world.go(DARK_S - 300)
    assert {one.offer.provider for one in store.instances.live()} == {dark}
    while store.jobs.live():
        world.go(HOUR_S)
    world.go(HOUR_S)
    now_s = world.clock.now()
    egress_usd = DATA_GB * EGRESS_USD_GB[dark]
    for job_id, spec in given.items():
        job = store.jobs.get(job_id)
        assert job.state is JobState.SUCCEEDED, job.reason
        assert isinstance(spec.work, SparkBatch)
        assert spec.work.deadline_s is not None
        assert job.ended_s is not None
        assert job.ended_s - job.submitted_s <= spec.work.deadline_s, job_id
        (moved,) = [
            one
            for one in store.decisions.latest(100, job_id=job_id)
            if one.chosen is not None and not one.chosen.startswith(dark)
        ]
        (taken,) = [one for one in moved.candidates if one.offer_id == moved.chosen]
        assert f"its data move to {LIT[dark]} for {egress_usd:.4f} USD" in taken.reason
        events = store.events.after(0, 1000, job_id=job_id)
        refused = [one.data["error"] for one in events if one.kind == "instance.refused"]
        assert refused
        assert all(REFUSALS[dark][1] in error for error in refused)
        (event,) = [
            one for one in events if one.kind == "task.decided" and one.decision_id == moved.decision_id
        ]
        assert event.data["egress_usd"] == pytest.approx(egress_usd)
        assert float(usd(store.costs.of_job(job_id, now_s).egress)) == pytest.approx(egress_usd)
    assert world.leaked() == []
    assert wrong_charges(store) == []
    for name, account in zip(("aws", "gcp"), world.accounts, strict=True):
        rented = [one for job_id in given for one in store.instances.of_job(job_id)]
        mine = [bill_of(store, one.instance_id, now_s) for one in rented if one.offer.provider == name]
        assert mine
        assert agree(sum(mine, Bill()), account.emulator.ledger())
