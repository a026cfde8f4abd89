"""The provider of examples/package, as a package that somebody installed."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deploy.clouds import count_offers, open_providers
from deploy.config import DeploymentConfig
from deploy.model.instances import InstanceState
from deploy.providers.base import CapacityError, ProviderError, RefusedError
from deploy.yamlfile import ConfigError
from tests.deploy.cli.commands import deployment, spotweave
from tests.deploy.providers.contract import DEPLOYMENT, request

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
    checked = spotweave("clouds", "check", "--config", config)
    assert (checked.exit_code, checked.stdout) == (0, "ok       lab: 1 offers are configured\n")


def test_a_mistyped_key_of_its_file_is_one_line(config: Path, tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("adresses: [10.0.0.1]")
    with pytest.raises(ConfigError, match=r"lab\.yaml: adresses: unknown key"):
        DeploymentConfig.load(config).rented()
