"""`spotweave offers`, `clouds sweep` and `record` on an emulated Google Cloud."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import yaml

from deploy.clouds import open_providers
from deploy.config import DeploymentConfig
from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.emulator import GcpEmulator
from deploy.emulator.server import Server
from deploy.model.instances import LaunchRequest
from deploy.providers.base import CapacityError
from deploy.providers.gcp.clients import VARIABLE
from deploy.service import open_store
from envs.multicloud import MultiCloudEnv
from envs.simulation.market.config import MarketConfig, MarketWorldConfig, WorkloadConfig
from tests.deploy.cli.commands import deployment, refusal, spotweave
from tests.deploy.cli.test_clouds import rent
from tests.deploy.providers.gcp.project import IMAGE, PROJECT, TYPE, prices

pytestmark = pytest.mark.real

ZONES = ("us-central1-a", "us-central1-b")
SPOT = dict(zip(ZONES, (0.05, 0.09), strict=True))


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpEmulator]:
    """One project, to which Google's client leads."""
    pools = [
        {"zone": zone, "instance_type": TYPE, "n_vcpus": 4, "spot_usd_hour": usd, "on_demand_usd_hour": 0.19}
        for zone, usd in SPOT.items()
    ]
    content = {"pools": pools, "launch_s": 0, "shutdown_s": 0, "operation_s": 0}
    made = GcpEmulator(GcpEmulatorConfig.model_validate(content))
    server = Server(made)
    server.start()
    monkeypatch.setenv(VARIABLE, server.url)
    yield made
    server.close()


@pytest.fixture
def config(emulator: GcpEmulator, tmp_path: Path) -> Path:
    """The file of a deployment that rents from it."""
    rents = {
        "project": PROJECT,
        "regions": {"us-central1": {"zones": list(ZONES)}},
        "instance_types": {TYPE: {"quota": 5}},
        "image": IMAGE,
        "node": {"scheduler_url": "http://127.0.0.1:8421"},
        "prices_file": str(prices(tmp_path, {zone: [(0.0, usd)] for zone, usd in SPOT.items()})),
    }
    (tmp_path / "gcp.yaml").write_text(yaml.safe_dump(rents))
    return deployment(tmp_path, providers={"gcp": "gcp.yaml"})


def running(emulator: GcpEmulator) -> set[str]:
    """Names of what is rented."""
    with emulator.world.lock:
        emulator.world.settle()
        return {one.instance_id for one in emulator.world.living()}


def test_offers(config: Path) -> None:
    found = spotweave("offers", "--config", config, "--max-price", "0.10", "--json")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)
    assert [(one["zone"], one["market"], one["price_usd_hour"]) for one in rows] == [
        (zone, "spot", usd) for zone, usd in SPOT.items()
    ]
    _, first, *rest = spotweave("offers", "--config", config).stdout.splitlines()
    assert first.split() == [ZONES[0], TYPE, "spot", "-", "0.0500", "0.1900", "100", "%", "-", "yes"]
    assert len(rest) == 3


def test_a_sweep_leaves_nothing_but_what_a_job_needs(config: Path, emulator: GcpEmulator) -> None:
    assert "nothing was served with" in refusal(spotweave("clouds", "sweep", "--config", config))
    needed, cancelled, lost = rent(config)
    before = running(emulator)
    listed = spotweave("clouds", "sweep", "--config", config)
    assert listed.exit_code == 0, listed.output
    assert needed not in listed.stdout
    assert "job cancelled-1 does not need it" in listed.stdout
    assert f"{lost}  " in listed.stdout
    assert "2 would be ended: say so with --yes" in listed.stderr
    assert running(emulator) == before
    swept = spotweave("clouds", "sweep", "--config", config, "--yes")
    assert "2 are being ended" in swept.stderr
    assert running(emulator) == before - {cancelled, lost}
    assert "nothing runs that no job needs" in spotweave("clouds", "sweep", "--config", config).stdout


def test_an_episode_on_what_was_recorded(config: Path, emulator: GcpEmulator, tmp_path: Path) -> None:
    """What the provider said at three moments; at the second it had just been refused in one zone."""
    loaded, now_s = DeploymentConfig.load(config), time.time()
    (provider,) = open_providers(loaded).values()
    with closing(provider), open_store(loaded, now_s) as store:
        closed = f"gcp/{ZONES[1]}/{TYPE}/spot"
        pool = emulator.world.market.find(ZONES[1], TYPE)
        assert pool is not None
        pool.spot_capacity = 0
        with store.transaction():
            store.prices.record(provider.offers(), now_s - 1000.0)
        with pytest.raises(CapacityError):
            provider.launch(LaunchRequest("t", closed, store.deployment_id, "job-1", "main", "n" * 32))
        with store.transaction():
            store.prices.record(provider.offers(), now_s - 400.0)
            store.events.add("job.submitted", now_s, {})
    out = tmp_path / "market"
    done = spotweave("record", "--config", config, "--out", out)
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        [ZONES[0], TYPE, "spot", "0.3", "2", "100.0%"],
        [ZONES[0], TYPE, "on_demand", "0.3", "2", "100.0%"],
        [ZONES[1], TYPE, "spot", "0.3", "3", "60.0%"],
        [ZONES[1], TYPE, "on_demand", "0.3", "2", "100.0%"],
    ]
    env = MultiCloudEnv(MarketWorldConfig(WorkloadConfig(jobs=3), MarketConfig(traces=str(out))))
    _, info = env.reset(seed=1)
    for _ in range(1000):
        # The last valid action is to wait; the one before it rents.
        _, _, ended, cut, info = env.step(int(np.flatnonzero(info["action_mask"])[-2]))
        if ended:
            break
    assert ended
    assert not cut
    env.close()
