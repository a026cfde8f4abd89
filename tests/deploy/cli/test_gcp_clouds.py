"""`spotweave clouds check` on an emulated Google Cloud, and what keeps `serve` from starting there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.emulator.gcp.config import GcpEmulatorConfig
from deploy.emulator.gcp.emulator import GcpEmulator
from deploy.emulator.server import Server
from tests.deploy.cli.commands import NO_JAVA, deployment, refusal, spotweave

pytestmark = pytest.mark.real

PROJECT = "spotweave-emulated"
ZONE, TYPE, BUCKET = "us-central1-a", "e2-standard-4", "spotweave-kept"
POOL = {"zone": ZONE, "instance_type": TYPE, "n_vcpus": 4, "spot_usd_hour": 0.05, "on_demand_usd_hour": 0.13}
GPU_POOL = {**POOL, "instance_type": "g2-standard-24", "n_vcpus": 24}
RENTED = {
    "project": PROJECT,
    "regions": {"us-central1": {"zones": [ZONE]}},
    "instance_types": {TYPE: {"quota": 1}},
    "image": f"projects/{PROJECT}/global/images/spotweave",
    "node": {"scheduler_url": "http://127.0.0.1:8421"},
}
Make = Callable[[dict[str, Any], dict[str, Any], str], Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Serves a project, and gives the file of a deployment that rents in it and keeps checkpoints there."""
    with ExitStack() as opened:

        def made(project: dict[str, Any], rented: dict[str, Any], bucket: str) -> Path:
            content = {"pools": [POOL], "buckets": [BUCKET], **project}
            server = Server(GcpEmulator(GcpEmulatorConfig.model_validate(content)))
            server.start()
            opened.callback(server.close)
            monkeypatch.setenv("COMPUTE_EMULATOR_HOST", server.url)
            (tmp_path / "gcp.yaml").write_text(yaml.safe_dump({**RENTED, **rented}))
            checkpoints = {"flower": f"gs://{bucket}/a"}
            return deployment(tmp_path, providers={"gcp": "gcp.yaml"}, runners={"checkpoints": checkpoints})

        yield made


def test_a_project_in_which_all_is_right(make: Make) -> None:
    done = spotweave("clouds", "check", "--config", make({}, {}, BUCKET))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert not [line for line in lines if not line.startswith("ok ")]
    for what in ("prices", "us-central1 project", "permissions", f"{ZONE} {TYPE}", "image", "checkpoints"):
        assert [line for line in lines if line.startswith(f"ok       gcp {what}: ")], what
    assert "gs://spotweave-kept/a: may be listed, written, read and deleted" in done.stdout
    assert "a dated list (https://github.com/Cyclenerd/" in done.stdout


def test_where_permissions_cannot_be_asked_for_the_calls_themselves_tell(make: Make) -> None:
    closed = {"disabled": ["cloudresourcemanager.googleapis.com"]}
    done = spotweave("clouds", "check", "--config", make(closed, {}, BUCKET))
    assert done.exit_code == 0, done.output
    (line,) = [one for one in done.stdout.splitlines() if not one.startswith("ok ")]
    assert line.startswith("unknown  gcp permissions: the API cloudresourcemanager.googleapis.com is not")


OTHER_TYPE = {"instance_types": {"n2-standard-4": {"quota": 1}}}
OTHER_ZONE = {"regions": {"us-central1": {"zones": ["us-central1-z"]}}}


@pytest.mark.parametrize(
    ("project", "rented", "bucket", "what", "words"),
    [
        (
            {},
            {"project": "another-project"},
            BUCKET,
            "us-central1 project",
            "The resource 'projects/another-project' was not found",
        ),
        ({"token": "another"}, {}, BUCKET, "us-central1 project", "they have expired: gcloud auth"),
        (
            {"disabled": ["compute.googleapis.com"]},
            {},
            BUCKET,
            "us-central1 project",
            "is not enabled: gcloud services enable compute.googleapis.com",
        ),
        (
            {"denied": ["compute.instances.delete"]},
            {},
            BUCKET,
            "permissions",
            "may not compute.instances.delete: grant deploy/providers/gcp/role.yaml",
        ),
        ({}, OTHER_ZONE, BUCKET, "us-central1-z", "'us-central1-z'. Unknown zone."),
        ({}, OTHER_TYPE, BUCKET, f"{ZONE} n2-standard-4", "machineTypes/n2-standard-4' was not found"),
        (
            {},
            {"regions": {"us-central1": {"zones": [ZONE], "subnetwork": "none"}}},
            BUCKET,
            "us-central1 subnetwork",
            "subnetworks/none' was not found",
        ),
        ({"images": []}, {}, BUCKET, "image", "global/images/spotweave' was not found"),
        ({"quota_vcpus": 2}, {}, BUCKET, "us-central1 on_demand quota", "too few for e2-standard-4"),
        (
            {"pools": [GPU_POOL], "quotas": {"NVIDIA_L4_GPUS": 1, "PREEMPTIBLE_NVIDIA_L4_GPUS": 0}},
            {"instance_types": {"g2-standard-24": {"quota": 1, "markets": ["spot"]}}},
            BUCKET,
            "us-central1 spot quota",
            "1 (NVIDIA_L4_GPUS): too few for g2-standard-24: ask for more",
        ),
        (
            {},
            {},
            "spotweave-none",
            "checkpoints",
            "gs://spotweave-none/a: there is no such bucket: create it",
        ),
        (
            {"denied": ["storage.objects.create"]},
            {},
            BUCKET,
            "checkpoints",
            "may not storage.objects.create: grant deploy/providers/gcp/checkpoints_role.yaml on the bucket",
        ),
    ],
)
def test_what_is_missing_is_one_line(
    make: Make, project: dict[str, Any], rented: dict[str, Any], bucket: str, what: str, words: str
) -> None:
    config = make(project, rented, bucket)
    checked = spotweave("clouds", "check", "--config", config)
    assert checked.exit_code == 2, checked.output
    (line,) = [one for one in checked.stdout.splitlines() if one.startswith(f"MISSING  gcp {what}: ")]
    assert words in line
    assert line.count(f"{what}: ") == 1


def test_what_is_missing_keeps_serve_from_starting(make: Make) -> None:
    refused = refusal(spotweave("serve", "--config", make({}, {}, "spotweave-none"), env=NO_JAVA))
    assert refused.startswith("error: gcp checkpoints: gs://spotweave-none/a: there is no such bucket")
