"""docs/aws.md, docs/gcp.md and the files they name fit each other; what they rent is emulated and listed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from spotweave.deploy import demo
from spotweave.deploy.clouds import missing, transfers_of
from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.demo import JOBS, DemoConfig, paced
from spotweave.deploy.emulator.aws.emulator import AwsEmulator
from spotweave.deploy.emulator.aws.wire import AwsEmulatorConfig
from spotweave.deploy.emulator.gcp.compute import _ROUTES
from spotweave.deploy.emulator.gcp.emulator import GcpEmulator
from spotweave.deploy.emulator.gcp.world import GcpEmulatorConfig
from spotweave.deploy.jobfile import read_job
from spotweave.deploy.model.jobs import Flower
from spotweave.deploy.objects.gcs import check_bucket
from spotweave.deploy.objects.location import Bucket, parse
from spotweave.deploy.providers.aws.catalogue import load_catalogue
from spotweave.deploy.providers.gcp.check import check
from spotweave.deploy.providers.gcp.config import GcpConfig
from spotweave.deploy.providers.gcp.prices import load_prices
from spotweave.deploy.providers.local.config import LocalConfig
from tests.deploy.cli.commands import refusal, spotweave
from tests.deploy.emulator.transport import InProcess, in_process

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs" / "deploy"


def guide(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def example() -> GcpConfig:
    """The file that people begin with, without the certificate that is theirs."""
    loaded = GcpConfig.load(CONFIGS / "gcp_offers.yaml")
    return loaded.model_copy(update={"node": loaded.node.model_copy(update={"ca_file": None})})


@pytest.mark.parametrize(("name", "made"), [("aws", set()), ("gcp", {"examples/federated_l4.yaml"})])
def test_every_file_that_a_guide_names_is_there_or_made_by_it(name: str, made: set[str]) -> None:
    text = guide(name)
    named = set(re.findall(r"\]\(\.\./([^)#]+)\)", text))
    named |= set(re.findall(r"(?:configs|deploy|examples)/\S+\.yaml", text)) - made
    assert len(named) > 6
    assert [one for one in sorted(named) if not (ROOT / one).exists()] == []


@pytest.mark.parametrize(
    ("name", "tool", "made"),
    [("aws", "aws", "bucket: s3://spotweave-told"), ("gcp", "gcloud", "bucket: gs://spotweave-mine")],
)
def test_a_setup_script_runs_to_its_end_and_prints_what_a_deployment_needs(
    name: str, tool: str, made: str, tmp_path: Path
) -> None:
    for program in (tool, "curl"):
        (tmp_path / program).write_text("#!/bin/sh\necho told\n")
        (tmp_path / program).chmod(0o755)
    script = ROOT / "deploy" / "providers" / name / "setup.sh"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PROJECT": "mine"}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == made
    (tmp_path / tool).write_text("#!/bin/sh\nexit 3\n")
    assert subprocess.run(["bash", script], env=environment, capture_output=True, timeout=60).returncode == 3


def test_the_script_of_the_image_installs_what_there_is_where_nodes_look_for_it() -> None:
    script = ROOT / "deploy" / "providers" / "image.sh"
    assert subprocess.run(["bash", "-n", script], timeout=60).returncode == 0
    refused = subprocess.run(["bash", script], env={}, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, refused.stderr[:26]) == (2, "image.sh: SOURCE is empty:")
    text = script.read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"/opt/spotweave-source\[([a-z,]+)\]", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (modules,) = re.findall(r"-c 'import ([^']+)'", text)
    here = set(modules.split(", ")) - {"pynvml"}  # of the extra `gpu`, which tests go without
    assert [name for name in here if find_spec(name) is None] == []
    assert f"{example().node.python} -c" in text
    assert f"Key=spotweave,Value={project['version']}}}" in guide("aws")
    assert f"--labels spotweave={project['version'].replace('.', '-')}" in guide("gcp")


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_the_cost_of_the_exercise_is_computed_from_the_list_that_ships(name: str) -> None:
    text = guide(name)
    table = text.partition("### What the exercise costs")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    amounts = [float(row[3]) for row in rows[2:-1]]
    assert float(rows[-1][3].strip("*")) == round(sum(amounts), 3)
    assert f"costs at most {sum(amounts):.2f} USD" in text
    for kind, usd in _listed_usd_hour(name).items():
        (row,) = [row for row in rows if kind in row[0]]
        assert float(row[2]) == usd
        hours = float(re.sub(r"[^0-9. ]", "", row[1]).split()[0])
        whole = hours * float(row[2])
        # Google's prices of disks and addresses are rounded themselves.
        assert float(row[3]) == (round(whole, 3) if name == "aws" else pytest.approx(whole, abs=0.0006))


def _listed_usd_hour(name: str) -> dict[str, float | None]:
    """What the catalogue of a cloud says of the rows of its table."""
    if name == "aws":
        return {kind: load_catalogue().usd_hour("us-east-1", kind) for kind in ("g4dn.xlarge", "t3.large")}
    region = load_prices(None).regions["us-central1"]
    listed = {kind: region.types[kind][-1].on_demand_usd_hour for kind in ("g2-standard-4", "e2-standard-2")}
    disks = round(50 * region.disk_usd_gib_month["pd-balanced"] / 720, 4)
    return {**listed, "disks": disks, "addresses": 0.005}


@pytest.mark.real
def test_nothing_is_missing_in_the_emulated_account_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    config = AwsEmulatorConfig.load(CONFIGS / "emulator.yaml").model_copy(update={"machines": "none"})
    session = in_process(AwsEmulator(config))
    monkeypatch.setattr("spotweave.deploy.providers.aws.clients.boto3.Session", lambda profile_name: session)
    assert missing(DeploymentConfig.load(CONFIGS / "demo_aws.yaml")) == ""


def test_the_deployment_of_the_exercise_can_be_loaded() -> None:
    config = DeploymentConfig.load(CONFIGS / "gcp.yaml")
    assert config.runners.checkpoints.flower == "gs://spotweave-your-project/checkpoints"
    for kind in ("g2-standard-4", "a2-highgpu-1g"):
        assert f"gcp/us-central1-a/{kind}/spot" in example().places()


def granted(role: str) -> set[str]:
    """Permissions of a role that the guide creates."""
    content = yaml.safe_load((ROOT / "deploy" / "providers" / "gcp" / role).read_text())
    return set(content["includedPermissions"])


def test_the_role_has_what_the_provider_asks_for_and_nothing_that_ends_more() -> None:
    role = granted("role.yaml")
    asked = {permission.format(what="instances") for _, _, _, permission in _ROUTES}
    assert asked <= role
    assert not [one for one in role if one.endswith((".setIamPolicy", ".*")) or "delete" in one.lower()][1:]


@pytest.mark.parametrize("name", ["demo_gcp", "demo_clouds"])
def test_what_a_demo_rents_is_emulated_at_the_prices_of_its_list(name: str, tmp_path: Path) -> None:
    config = DeploymentConfig.load(CONFIGS / f"{name}.yaml")
    rented = config.rented()["gcp"]
    assert isinstance(rented, GcpConfig)
    loaded = GcpEmulatorConfig.load(CONFIGS / config.emulators["gcp"])
    emulator = GcpEmulator(loaded.model_copy(update={"machines": "none", "state": tmp_path}))
    found = list(check(rented, InProcess(emulator)))
    if name == "demo_gcp":
        bucket = parse(config.runners.checkpoints.flower or "")
        assert isinstance(bucket, Bucket)
        found += check_bucket(InProcess(emulator), bucket)
    assert [one for one in found if one.verdict != "right"] == []
    for place in rented.places().values():
        pool = emulator.world.market.find(place.zone, place.instance_type)
        assert pool is not None
        listed = rented.prices().steps(place)[-1][1]
        market_usd = emulator.world.market.price(pool, emulator.world.clock.now())
        assert listed == (market_usd if place.market == "spot" else pool.on_demand_usd_hour)


def test_what_leaves_a_cloud_costs_what_its_sender_takes() -> None:
    transfers = transfers_of(DeploymentConfig.load(CONFIGS / "demo_clouds.yaml"))
    assert transfers.usd_gb["us-east-1", "us-central1"] == 0.09
    assert transfers.usd_gb["us-central1", "us-east-1"] == 0.12
    assert transfers.usd_gb["us-central1", "us-east1"] == 0.02


def test_the_training_of_the_demo_has_clients_in_both_clouds() -> None:
    rented = DeploymentConfig.load(CONFIGS / "demo_clouds.yaml").rented()
    work = read_job(ROOT / "examples" / "federated_clouds.yaml").work
    assert isinstance(work, Flower)
    where = [
        name for client in work.clients for name in rented if rented[name].looks_after(client.region or "")
    ]
    assert where == ["aws", "gcp", "gcp"]


def test_prices_that_ship_are_those_of_the_source() -> None:
    """n1-standard-4 in us-central1 costs 0.19 USD an hour on demand, with one T4 at 0.35 it is 0.54."""
    prices = load_prices(None)
    places = example().places()
    (_, usd) = prices.steps(places[f"gcp/us-central1-a/{T4}/on_demand"])[-1]
    assert usd == pytest.approx(0.54, abs=0.001)
    assert prices.hardware(T4).gpu == "T4"
    assert prices.hardware("a2-ultragpu-1g").gpu == "A100-80GB"


T4 = "n1-standard-4+1xnvidia-tesla-t4"
OTHER_ZONE = {"us-east1": {"zones": ["us-west1-a"]}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"regions": OTHER_ZONE}, "zone us-west1-a is not in the region us-east1"),
        ({"instance_types": {"n9-odd-4": {"quota": 1}}}, "no machine type n9-odd-4"),
        ({"instance_types": {T4: {"quota": 1}}}, "no price of nvidia-tesla-t4"),
        ({"labels": {"spotweave-job": "x"}}, "label spotweave-job"),
    ],
)
def test_bad_input_is_one_line_that_names_it(changes: dict[str, Any], words: str) -> None:
    content = yaml.safe_load((CONFIGS / "gcp_offers.yaml").read_text())
    del content["node"]["ca_file"]
    with pytest.raises(ValueError, match=words):
        GcpConfig.model_validate({**content, **changes, "folder": CONFIGS}).places()


# The demo, as `make demo` runs it: real jobs, recorded interruptions, a report, nothing left behind.


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The demo's deployment with a state folder of its own, on a port that is free."""
    content = yaml.safe_load((CONFIGS / "demo.yaml").read_text(encoding="utf-8"))
    content["state"] = str(tmp_path / "state")
    content["http"]["port"] = 0
    content["providers"]["local"] = str(CONFIGS / content["providers"]["local"])
    path = tmp_path / "demo.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes whose command line or current folder lies in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if str(folder) in words or process.cwd().startswith(str(folder)):
                found.append(words)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_on_a_slow_machine_clock_and_deadlines_are_as_much_longer(config: Path) -> None:
    usual = DemoConfig.load(config)
    slow = usual.model_copy(update={"pace": 2.5})
    (before,), (after,) = usual.rented().values(), slow.rented().values()
    assert isinstance(before, LocalConfig)
    assert isinstance(after, LocalConfig)
    assert (before.time_factor, after.time_factor) == (120.0, 48.0)
    assert (before.offers[0].notice_s, after.offers[0].notice_s) == (12.0, 30.0)
    changed = {}
    for file in JOBS:
        spec = read_job(file)
        work, longer = spec.work.model_dump(), paced(spec, 2.5).work.model_dump()
        parts = {"tasks", "steps"} & work.keys()
        changed[spec.name] = {
            name: longer[name] / work[name] for name in work.keys() - parts if longer[name] != work[name]
        }
        for name in parts:
            minutes = [(a["minutes"], b["minutes"]) for a, b in zip(work[name], longer[name], strict=True)]
            assert minutes
            assert all(b == 2.5 * a for a, b in minutes)
    assert changed == {
        "wordcount": {"standard_s": 2.5, "deadline_s": 2.5},
        "pi": {"standard_s": 2.5, "deadline_s": 2.5},
        "streaming": {"period_s": 2.5, "batch_deadline_s": 2.5},
        "federated-mnist": {"epoch_s": 2.5},
        "primes": {"deadline_s": 2.5},
        "wordcount-steps": {"deadline_s": 2.5},
    }


def test_mistakes_and_a_slow_machine_are_one_line_before_anything_starts_or_is_deleted(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        return refusal(spotweave("demo", "--config", config, *words))

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(demo, "slowness", lambda: 9.0)
    assert "this machine is 9 times as slow as two idle cores" in refused()
    assert "no-such-job.yaml" in refused("no-such-job.yaml")
    assert not (tmp_path / "state").exists()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "store.db").write_bytes(b"books")
    assert "is not a demo's" in refused("--within", "900")
    assert (tmp_path / "state" / "store.db").read_bytes() == b"books"


@pytest.mark.real
@pytest.mark.nightly
def test_every_job_ends_well_and_nothing_is_left(config: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    # On a machine that others use too it may take longer than the promised ten minutes.
    command = [sys.executable, "-m", "spotweave.cli", "demo", "--config", str(config), "--within", "1500"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    report = ended.stdout.splitlines()
    for job in ("wordcount", "pi", "streaming", "federated-mnist", "primes", "wordcount-steps"):
        row = [line for line in report if re.match(rf"{job}-[0-9a-f]{{10}} ", line)]
        assert len(row) == 1, report
        assert " succeeded " in row[0]
    assert "USD for the same instances on demand." in report[-1]
    # Every zone of the recording fails within four minutes: something was rented there.
    assert any("instance.noticed" in line for line in report), report
    assert processes_of(state) == []
