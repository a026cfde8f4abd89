"""The provider of examples/package, as a package that somebody installed."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotweave.deploy.clouds import count_offers, open_providers
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.providers.base import CapacityError, Provider, ProviderError, RefusedError
from spotweave.deploy.providers.offers import Availability
from spotweave.deploy.yamlfile import ConfigError
from tests.deploy.cli.commands import deployment, out, spotweave
from tests.deploy.emulated import read_models_once
from tests.deploy.emulator.aws.conftest import TYPE as AWS_TYPE
from tests.deploy.emulator.aws.conftest import Cloud
from tests.deploy.providers.contract import DEPLOYMENT, ProviderContract, World, request
from tests.deploy.providers.gcp.project import SPOT_USD, TYPE, ZONES, Project

LAB = Path(__file__).parents[3] / "examples" / "package" / "my_package" / "lab.py"
OFFER = "lab/lab/machine/owned"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a deployment that rents from the example's provider; a machine is a file with what it was told."""
    packages = tmp_path / "packages"
    info = packages / "spotweave_lab-1.0.dist-info"
    info.mkdir(parents=True)
    shutil.copy(LAB, packages / "spotweave_lab.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: spotweave-lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[spotweave.providers]\nlab = spotweave_lab:LabConfig\n")
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "spotweave_lab", raising=False)
    machines = {
        "addresses": ["10.0.0.1", "10.0.0.2"],
        "on": ["sh", "-c", f"cat > {tmp_path}/{{address}}"],
        "off": ["rm", f"{tmp_path}/{{address}}"],
    }
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(machines))
    return deployment(tmp_path, providers={"lab": "lab.yaml"})


def test_what_is_rented_is_switched_on_and_off_and_survives_a_restart(config: Path, tmp_path: Path) -> None:
    loaded = DeploymentConfig.load(config)
    assert count_offers(loaded) == {"lab": 1}
    asked = request(OFFER)
    with closing(open_providers(loaded)["lab"]) as provider:
        first = provider.launch(asked)
    told = json.loads((tmp_path / "10.0.0.1").read_text())
    assert (told["instance_id"], told["token"]) == (first.instance_id, asked.node_token)
    again = open_providers(loaded)["lab"]
    assert again.launch(asked) == first
    assert again.describe(DEPLOYMENT) == [first]
    assert again.describe("another") == []
    second = again.launch(request(OFFER))
    assert second.address == "10.0.0.2"
    assert not again.offers()[0].available
    with pytest.raises(CapacityError):
        again.launch(request(OFFER))
    with pytest.raises(RefusedError):
        again.launch(request("lab/other"))
    again.terminate([first.instance_id, "never-was"])
    assert not (tmp_path / "10.0.0.1").exists()
    assert (tmp_path / "10.0.0.2").exists()
    states = {one.instance_id: one.state for one in again.describe(DEPLOYMENT)}
    assert states == {first.instance_id: InstanceState.TERMINATED, second.instance_id: InstanceState.RUNNING}
    assert again.launch(replace(asked)).state is InstanceState.TERMINATED
    (tmp_path / "10.0.0.2").unlink()
    with pytest.raises(ProviderError, match=r"rm failed for 10\.0\.0\.2"):
        again.terminate([second.instance_id])


def test_the_commands_know_it(config: Path) -> None:
    (row,) = json.loads(spotweave("offers", "--config", config, "--json").stdout)
    assert (row["offer_id"], row["provider"], row["quota"]) == (OFFER, "lab", 2)
    assert out(spotweave("clouds", "check", "--config", config)) == "ok       lab: 1 offers are configured\n"


def test_a_mistyped_key_of_its_file_is_one_line(config: Path, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("adresses: [10.0.0.1]")
    with pytest.raises(ConfigError, match=r"lab\.yaml: adresses: unknown key"):
        DeploymentConfig.load(config).rented()


# The providers of the clouds keep what every provider keeps, in emulated clouds.


class Emulated:
    """The closed offer's price is above the configured limit."""

    cloud: Cloud | Project
    open_offer: str
    closed_offer: str
    price_usd_hour: float

    def settle(self) -> None:
        self.cloud.emulator.advance(30.0)

    def interrupt(self, instance_id: str) -> None:
        world: Any = self.cloud.emulator.world
        with world.lock:
            world.interrupt(world.instances[instance_id], 0.0)


class AwsWorld(Emulated):
    open_offer, closed_offer = (f"aws/us-east-1{zone}/{AWS_TYPE}/spot" for zone in "ab")
    price_usd_hour = 0.2

    def __init__(self, folder: Path) -> None:
        self.cloud = self._account = Cloud(folder, shutdown_s=0)
        self._states = (folder / str(number) for number in itertools.count())

    def provider(self) -> Provider:
        # Its own memory: nothing but EC2 tells a new provider what there is.
        limited = {AWS_TYPE: {"quota": 2, "max_price_usd_hour": 0.25}}
        return self._account.provider(instance_types=limited, state=next(self._states))


class GcpWorld(Emulated):
    open_offer, closed_offer = (f"gcp/{zone}/{TYPE}/spot" for zone in ZONES)
    price_usd_hour = SPOT_USD

    def __init__(self, folder: Path) -> None:
        limited = {TYPE: {"quota": 2, "max_price_usd_hour": 0.08}}
        self.cloud = self._project = Project(
            folder, rented={"instance_types": limited, "when_preempted": "delete"}
        )

    def provider(self) -> Provider:
        return self._project.provider()


class TestClouds(ProviderContract):
    @pytest.fixture(params=[AwsWorld, GcpWorld])
    def world(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[World]:
        read_models_once(monkeypatch)
        world = request.param(tmp_path)
        yield world
        world.cloud.emulator.close()


# The record of refusals: cool-downs that double, shares and spells by hand.


DAY_S = 86_400.0


def test_a_refusing_offer_is_left_alone_twice_as_long_each_time(tmp_path: Path) -> None:
    record = Availability(tmp_path / "a.json", 100.0, 350.0)
    assert record.left_alone("x", 0.0) == ""
    assert record.down("x", 1000.0, "no room") == 1100.0
    assert record.left_alone("x", 1099.0) == "left alone until 00:18:20 UTC: no room"
    assert record.left_alone("x", 1100.0) == ""
    assert record.down("x", 2000.0, "no room") == 2200.0
    assert record.down("x", 3000.0, "no room") == 3350.0
    record.up("x", 3100.0)
    assert record.left_alone("x", 3100.0) == ""
    assert record.down("x", 4000.0, "no room") == 4100.0


def test_shares_and_spells_are_those_of_the_record() -> None:
    record = Availability(None, 100.0, 100.0)
    history = record.history("x", 0.0)
    assert (history.up_ratio, history.spell_s, history.mean_up_s) == (1.0, 0.0, 0.0)
    record.down("x", 300.0, "no room")
    record.down("x", 500.0, "no room")
    # Up 0-300, down 300-400, up 400-500, down 500-600, up 600-1000.
    history = record.history("x", 1000.0)
    assert history.up_ratio == pytest.approx(0.8)
    assert history.spell_s == pytest.approx(400.0)
    assert history.mean_up_s == pytest.approx(200.0)
    assert record.history("x", 550.0).spell_s == pytest.approx(50.0)
    # The share is one of the latest day; after two it is whole again.
    assert record.history("x", 2 * DAY_S).up_ratio == 1.0


def test_spells_of_long_ago_are_forgotten() -> None:
    record = Availability(None, 100.0, 100.0)
    record.history("x", 0.0)
    record.down("x", 1000.0, "no room")
    assert record.history("x", 1050.0).mean_up_s == pytest.approx(1000.0)
    record.down("x", 9 * DAY_S, "no room")
    # The first one is out, and the record begins where it ended.
    assert record.history("x", 9 * DAY_S + 50).mean_up_s == pytest.approx(9 * DAY_S - 1100.0)


def test_it_survives_a_restart_and_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state" / "a.json"
    Availability(path, 100.0, 350.0).down("x", 1000.0, "no room")
    again = Availability(path, 100.0, 350.0)
    assert again.left_alone("x", 1050.0) == "left alone until 00:18:20 UTC: no room"
    assert again.down("x", 2000.0, "no room") == 2200.0
    path.write_text("{")
    with pytest.raises(ProviderError, match=str(path)):
        Availability(path, 100.0, 350.0)
