"""docs/aws.md and the files it names: prices are the catalogue's, the rehearsal's files fit each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.clouds import missing
from deploy.config import DeploymentConfig
from deploy.emulator.aws.app import App
from deploy.emulator.aws.config import AwsEmulatorConfig
from deploy.emulator.aws.emulator import AwsEmulator
from deploy.jobfile import read_files, read_job
from deploy.providers.aws.catalogue import load_catalogue
from tests.deploy.emulator.aws.transport import in_process

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "aws.md").read_text(encoding="utf-8")
CONFIGS = ROOT / "configs" / "deploy"


def test_the_cost_of_the_exercise_is_computed_from_the_list_that_ships() -> None:
    table = GUIDE.partition("### What the exercise costs")[2].partition("## What it needs")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line
    ]
    amounts = [float(row[3]) for row in rows[2:-1]]
    assert float(rows[-1][3].strip("*")) == round(sum(amounts), 3)
    assert f"costs at most {sum(amounts):.2f} USD" in GUIDE
    for kind in ("g4dn.xlarge", "t3.large"):
        (row,) = [row for row in rows if kind in row[0]]
        hours = float(re.sub(r"[^0-9.]", "", row[1]))
        assert float(row[2]) == load_catalogue().usd_hour("us-east-1", kind)
        assert float(row[3]) == round(hours * float(row[2]), 3)


def test_every_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"\]\(\.\./([^)#]+)\)", GUIDE)) | set(
        re.findall(r"(?:configs|examples)/[\w/]+\.yaml", GUIDE)
    )
    assert len(named) > 6
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.real
def test_nothing_is_missing_in_the_emulated_account_of_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    config = AwsEmulatorConfig.load(CONFIGS / "emulator.yaml").model_copy(update={"machines": "none"})
    session = in_process(App(AwsEmulator(config)))
    monkeypatch.setattr("deploy.providers.aws.clients.boto3.Session", lambda profile_name: session)
    assert missing(DeploymentConfig.load(CONFIGS / "demo_aws.yaml")) == ""


def test_the_gpu_job_of_the_exercise_is_one() -> None:
    file = ROOT / "examples" / "federated_gpu.yaml"
    spec = read_job(file)
    assert spec.resources.gpu == "T4"
    assert "federated_mnist/federated_mnist/client_app.py" in read_files(spec, file.parent)
