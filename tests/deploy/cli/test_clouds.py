"""`spotweave clouds`, `offers` and `record` on emulated clouds, and what keeps `serve` from starting."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from spotweave.deploy.clouds import open_providers
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.emulator.server import Server
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.providers.base import CapacityError
from spotweave.deploy.providers.gcp.clients import VARIABLE
from spotweave.deploy.scheduler.placing import place
from spotweave.deploy.service import open_store
from spotweave.deploy.store.jobs import Job
from spotweave.envs.environments import make
from spotweave.envs.simulation.market.config import MarketConfig, MarketWorldConfig, WorkloadConfig
from tests.deploy.cli.commands import NO_JAVA, deployment, out, refusal, spotweave
from tests.deploy.emulated import Emulated, Make, emulating
from tests.deploy.emulator.aws.conftest import TYPE
from tests.deploy.providers.contract import request
from tests.deploy.providers.gcp.project import TYPE as GCP_TYPE
from tests.deploy.providers.gcp.project import Project
from tests.deploy.scheduler.worlds import batch

pytestmark = pytest.mark.real

BUCKET = "spotweave-kept"
GCP_SPOT = {"us-central1-a": 0.05, "us-central1-b": 0.09}
GCP_ZONE = "us-central1-a"
Changes = dict[str, Any] | None


class Aws:
    """An account to which the SDK leads, and deployments that rent there."""

    name = "aws"
    right = ("credentials", "clock", "permissions", "us-east-1 image", "us-east-1 quotas")
    cheap = (("us-east-1a", "spot", 0.2), ("us-east-1b", "spot", 0.3))
    shown = f"us-east-1a {TYPE} spot T4 0.2000 0.5260 100 % - yes"

    def __init__(self, make: Make) -> None:
        self._make = make

    def deployment(self, account: Changes = None, rented: Changes = None, bucket: str = "") -> Path:
        self.made: Emulated = self._make(**{"buckets": [BUCKET], **(account or {})})
        self.emulator = self.made.emulator
        runners = {"checkpoints": {"flower": f"s3://{bucket}/a"}} if bucket else {}
        rents = {"instance_types": {TYPE: {"quota": 5}}, **(rented or {})}
        return self.made.deployment(rents, runners={"trust_submitters": True, **runners})


class Gcp:
    """A project to which Google's client leads, and deployments that rent there."""

    name = "gcp"
    right = ("prices", "us-central1 project", "permissions", f"{GCP_ZONE} {GCP_TYPE}", "image")
    cheap = tuple((zone, "spot", usd) for zone, usd in GCP_SPOT.items())
    shown = f"{GCP_ZONE} {GCP_TYPE} spot - 0.0500 0.1900 100 % - yes"

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, opened: ExitStack) -> None:
        self.folder = folder
        self._patch = patch
        self._opened = opened

    def deployment(self, account: Changes = None, rented: Changes = None, bucket: str = "") -> Path:
        quick = {"clock": "real", "launch_s": 0, "shutdown_s": 0, "operation_s": 0, "buckets": [BUCKET]}
        listed = {zone: [(0.0, usd)] for zone, usd in GCP_SPOT.items()}
        node = {"scheduler_url": "http://127.0.0.1:8421"}
        rents = {"instance_types": {GCP_TYPE: {"quota": 5}}, "node": node, **(rented or {})}
        project = Project(self.folder, listed, rents, **{**quick, **(account or {})})
        self.emulator = project.emulator
        server = Server(self.emulator)
        server.start()
        self._opened.callback(server.close)
        self._patch.setenv(VARIABLE, server.url)
        (self.folder / "gcp.yaml").write_text(yaml.safe_dump(project.content))
        kept = {"checkpoints": {"flower": f"gs://{bucket}/a"}} if bucket else {}
        runners = {"trust_submitters": True, **kept}
        return deployment(self.folder, providers={"gcp": "gcp.yaml"}, runners=runners)


def running(cloud: Any) -> set[str]:
    world = cloud.emulator.world
    with world.lock:
        world.settle()
        return {one.instance_id for one in world.living() if one.occupies}


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    with emulating(tmp_path, monkeypatch) as make:
        yield Aws(make)


@pytest.fixture
def gcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gcp]:
    with ExitStack() as opened:
        yield Gcp(tmp_path, monkeypatch, opened)


@pytest.fixture(params=["aws", "gcp"])
def cloud(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_an_account_in_which_all_is_right(cloud: Any) -> None:
    checked = out(spotweave("clouds", "check", "--config", cloud.deployment(bucket=BUCKET)))
    lines = checked.splitlines()
    assert not [line for line in lines if not line.startswith("ok ")]
    assert f"ok       {cloud.name}: 4 offers are configured" in lines
    for what in (*cloud.right, "checkpoints"):
        assert [line for line in lines if line.startswith(f"ok       {cloud.name} {what}: ")], what
    assert "may be listed, written, read and deleted" in checked
    assert running(cloud) == set()


_NONE = {"standard": 0, "g": 0, "p": 0, "inf": 0}
_POOL = {"spot_usd_hour": 0.2, "on_demand_usd_hour": 0.5}
_GPU_POOL = {"zone": GCP_ZONE, "instance_type": "g2-standard-24", "n_vcpus": 24, **_POOL}
_NO_GPUS = {"NVIDIA_L4_GPUS": 1, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}
_GPU_RENTED = {
    "regions": {"us-central1": {"zones": [GCP_ZONE]}},
    "instance_types": {"g2-standard-24": {"quota": 1, "markets": ["spot"]}},
    "prices_file": None,
}
_OTHER_TYPE = {"instance_types": {"n2-standard-4": {"quota": 1}}, "prices_file": None}
_OTHER_ZONE = {"regions": {"us-central1": {"zones": ["us-central1-z"]}}, "prices_file": None}
_OTHER_NET = {"regions": {"us-central1": {"zones": [GCP_ZONE], "subnetwork": "none"}}}
_PROJECT, _QUOTA = "us-central1 project", "us-central1 spot quota"
_MISSING: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("aws", {"denied": ["ec2:RunInstances"]}, {}, "us-east-1 launch", "may not ec2:RunInstances"),
    ("aws", {"spot_quota": _NONE}, {}, "us-east-1 quotas", "spot: 0 vCPUs allowed"),
    ("aws", {"faults": {"clock_skew_s": 900}}, {}, "credentials", "synchronise it (NTP)"),
    ("aws", {"denied": ["s3:PutObject"]}, {}, "checkpoints", "may not s3:PutObject: attach what spotweave"),
    ("gcp", {}, {"project": "another"}, _PROJECT, "The resource 'projects/another' was not found"),
    ("gcp", {"token": "another"}, {}, _PROJECT, "they have expired: gcloud auth"),
    (
        *("gcp", {"disabled": ["compute.googleapis.com"]}, {}, _PROJECT),
        "is not enabled: gcloud services enable compute.googleapis.com",
    ),
    (
        *("gcp", {"denied": ["compute.instances.delete"]}, {}, "permissions"),
        "may not compute.instances.delete: grant deploy/providers/gcp/role.yaml",
    ),
    ("gcp", {}, _OTHER_ZONE, "us-central1-z", "'us-central1-z'. Unknown zone."),
    ("gcp", {}, _OTHER_TYPE, f"{GCP_ZONE} n2-standard-4", "machineTypes/n2-standard-4' was not found"),
    ("gcp", {}, _OTHER_NET, "us-central1 subnetwork", "subnetworks/none' was not found"),
    ("gcp", {"images": []}, {}, "image", "global/images/spotweave' was not found"),
    ("gcp", {"quota_vcpus": 2}, {}, _QUOTA, f"too few for {GCP_TYPE}"),
    (
        *("gcp", {"pools": [_GPU_POOL], "quotas": _NO_GPUS}, _GPU_RENTED, _QUOTA),
        "1 (NVIDIA_L4_GPUS): too few for g2-standard-24: ask for more",
    ),
    (
        *("gcp", {"denied": ["storage.objects.create"]}, {}, "checkpoints"),
        "may not storage.objects.create: grant deploy/providers/gcp/checkpoints_role.yaml on the bucket",
    ),
]


@pytest.mark.parametrize(("name", "account", "rented", "what", "words"), _MISSING)
def test_what_is_missing_is_one_line_and_keeps_serve_from_starting(
    request: pytest.FixtureRequest,
    name: str,
    account: dict[str, Any],
    rented: dict[str, Any],
    what: str,
    words: str,
) -> None:
    cloud = request.getfixturevalue(name)
    config = cloud.deployment(account, rented, BUCKET)
    checked = spotweave("clouds", "check", "--config", config)
    assert checked.exit_code == 2, checked.output
    (line,) = [one for one in checked.stdout.splitlines() if one.startswith(f"MISSING  {name} {what}: ")]
    assert words in line
    assert line.count(f"{what}: ") == 1
    refused = refusal(spotweave("serve", "--config", config, env=NO_JAVA))
    assert refused.startswith(f"error: {name} {what}: ")
    assert words in refused
    assert running(cloud) == set()


def test_where_permissions_cannot_be_asked_for_the_calls_themselves_tell(gcp: Gcp) -> None:
    config = gcp.deployment({"disabled": ["cloudresourcemanager.googleapis.com"]})
    checked = out(spotweave("clouds", "check", "--config", config))
    (line,) = [one for one in checked.splitlines() if not one.startswith("ok ")]
    assert line.startswith("unknown  gcp permissions: the API cloudresourcemanager.googleapis.com is not")


def test_policies_are_printed_for_the_deployment(aws: Aws, tmp_path: Path) -> None:
    aws.deployment()
    config = aws.made.deployment(
        {"instance_profile": "spark-node"},
        runners={"checkpoints": {"flower": "s3://kept/rounds", "spark": "s3://kept/spark"}},
    )
    printed = out(spotweave("clouds", "policy", "--config", config))
    with open_store(DeploymentConfig.load(config), time.time()) as store:
        deployment_id = store.deployment_id
    parts = json.loads(printed)["Statement"]
    (ends,) = [one for one in parts if "ec2:TerminateInstances" in one["Action"]]
    assert ends["Resource"] == ["arn:aws:ec2:us-east-1:123456789012:instance/*"]
    assert ends["Condition"]["StringEquals"] == {
        "aws:ResourceTag/spotweave:deployment": deployment_id,
        "aws:ResourceAccount": "123456789012",
    }
    assert "arn:aws:s3:::kept/rounds/*" in printed
    other = spotweave("clouds", "policy", "--config", config, "--account", "999999999999", "--role", "node")
    (objects, names) = json.loads(other.stdout)["Statement"]
    assert objects["Resource"] == ["arn:aws:s3:::kept/spark/*"]
    assert names["Condition"]["StringEquals"] == {"aws:ResourceAccount": "999999999999"}
    said = spotweave("clouds", "policy", "--config", config, "--role", "operator").stdout
    assert "servicequotas:GetServiceQuota" in said
    for option, value, words in (
        ("--role", "admin", "'admin': expected scheduler, operator, node"),
        ("--account", "12", "'12': expected 12 digits"),
    ):
        assert words in refusal(spotweave("clouds", "policy", "--config", config, option, value))
    (tmp_path / "local").mkdir()
    local = deployment(tmp_path / "local")
    assert out(spotweave("clouds", "check", "--config", local)) == "ok       local: 2 offers are configured\n"


def test_offers_of_the_clouds_themselves(cloud: Any) -> None:
    config = cloud.deployment({"denied": ["ec2:GetSpotPlacementScores"]} if cloud.name == "aws" else None)
    dearest = str(cloud.cheap[-1][-1] + 0.01)
    found = spotweave("offers", "--config", config, "--max-price", dearest, "--json")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)
    assert tuple((one["zone"], one["market"], one["price_usd_hour"]) for one in rows) == cloud.cheap
    if cloud.name == "aws":
        assert found.stderr.startswith("note: no placement score: ")
        assert len(json.loads(spotweave("offers", "--config", config, "--gpu", "t4", "--json").stdout)) == 4
    table = spotweave("offers", "--config", config)
    _, first, *rest = table.stdout.splitlines()
    assert first.split() == cloud.shown.split()
    assert len(rest) == 3
    if cloud.name == "aws":
        found = spotweave("offers", "--config", cloud.deployment(), "--json")
        scores = {one["zone"]: one["score"] for one in json.loads(found.stdout) if one["market"] == "spot"}
        assert set(scores) == {"us-east-1a", "us-east-1b"}
        assert all(1 <= score <= 10 for score in scores.values())
    none = spotweave("offers", "--config", config, "--gpu", "H100")
    assert none.stdout == "no offer matches\n"


def rent(config: Path) -> tuple[str, str, str]:
    """Ids of an instance that a job needs, one of a cancelled job, and one that the store does not know."""
    loaded = DeploymentConfig.load(config)
    (provider,) = open_providers(loaded).values()
    with closing(provider), open_store(loaded, time.time()) as store:
        offer = next(one for one in provider.offers() if one.market == "spot")
        ids = []
        for name in ("needed", "cancelled"):
            job_id = f"{name}-1"
            with store.transaction():
                store.jobs.add(Job(job_id, batch(name), JobState.PENDING, time.time(), "/", "me"))
                place(store, TaskKey(job_id, "main"), 1, offer, time.time(), None)
            (one,) = store.instances.of_job(job_id)
            asked = request(offer.offer_id, one.client_token, store.deployment_id)
            ids.append(provider.launch(asked).instance_id)
        with store.transaction():
            store.jobs.set_state("cancelled-1", JobState.CANCELLED, time.time(), "")
        ids.append(provider.launch(request(offer.offer_id, "lost", store.deployment_id)).instance_id)
        # Another deployment's is none of our business.
        provider.launch(request(offer.offer_id, "x", "another"))
    return ids[0], ids[1], ids[2]


def test_a_sweep_lists_and_then_ends_what_no_job_needs(cloud: Any) -> None:
    sweep = ("clouds", "sweep", "--config", cloud.deployment())
    assert "nothing was served with" in refusal(spotweave(*sweep))
    needed, cancelled, lost = rent(sweep[-1])
    before = running(cloud)
    listed = spotweave(*sweep)
    assert listed.exit_code == 0, listed.output
    assert needed not in listed.stdout
    assert f"{cancelled}  " in listed.stdout
    assert f"{lost}  " in listed.stdout
    assert "job cancelled-1 does not need it" in listed.stdout
    assert "2 would be ended: say so with --yes" in listed.stderr
    told = [json.loads(line) for line in spotweave(*sweep, "--json").stdout.splitlines()]
    assert {one["instance_id"] for one in told} == {cancelled, lost}
    assert running(cloud) == before
    swept = spotweave(*sweep, "--yes")
    assert "2 are being ended" in swept.stderr
    assert running(cloud) == before - {cancelled, lost}
    assert "nothing runs that no job needs" in spotweave(*sweep).stdout
    with open_store(DeploymentConfig.load(sweep[-1]), time.time()) as store:
        lead = store.lead()
        assert "is being served, and its scheduler ends" in refusal(spotweave(*sweep))
        lead.release()


def test_an_episode_on_what_was_recorded(gcp: Gcp, tmp_path: Path) -> None:
    """What the provider said at three moments; at the second it had just been refused in one zone."""
    config = gcp.deployment()
    loaded, now_s = DeploymentConfig.load(config), time.time()
    open_zone, closed_zone = GCP_SPOT
    (provider,) = open_providers(loaded).values()
    with closing(provider), open_store(loaded, now_s) as store:
        closed = f"gcp/{closed_zone}/{GCP_TYPE}/spot"
        gcp.emulator.world.market.pools[closed_zone, GCP_TYPE].spot_capacity = 0
        with store.transaction():
            store.prices.record(provider.offers(), now_s - 1000.0)
        with pytest.raises(CapacityError):
            provider.launch(request(closed, "t", store.deployment_id))
        with store.transaction():
            store.prices.record(provider.offers(), now_s - 400.0)
            store.events.add("job.submitted", now_s, {})
    market = tmp_path / "market"
    recorded = out(spotweave("record", "--config", config, "--out", market))
    assert [line.split() for line in recorded.splitlines()[1:]] == [
        [open_zone, GCP_TYPE, "spot", "0.3", "2", "100.0%"],
        [open_zone, GCP_TYPE, "on_demand", "0.3", "2", "100.0%"],
        [closed_zone, GCP_TYPE, "spot", "0.3", "3", "60.0%"],
        [closed_zone, GCP_TYPE, "on_demand", "0.3", "2", "100.0%"],
    ]
    play(market)


def play(traces: Path) -> None:
    """An episode that rents whenever it can."""
    env = make("multicloud", MarketWorldConfig(WorkloadConfig(jobs=3), MarketConfig(traces=str(traces))))
    _, info = env.reset(seed=1)
    for _ in range(1000):
        # The last valid action is to wait; the one before it rents.
        _, _, ended, cut, info = env.step(int(np.flatnonzero(info["action_mask"])[-2]))
        if ended:
            break
    assert ended
    assert not cut
    env.close()
