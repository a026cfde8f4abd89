"""A real federated training to its end, through faults of everything that it runs on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.fl import checkpoints
from deploy.fl.checkpoints import Status
from tests.deploy.chaos.checks import check_over
from tests.deploy.chaos.deployment import Deployment
from tests.deploy.chaos.faults import plan, strike_all
from tests.deploy.node.agents import ROOT

pytestmark = [pytest.mark.real, pytest.mark.nightly]

JOBS = Path(__file__).parent / "jobs"
COUNTS = {"scheduler": 3, "writer": 3, "instance": 2, "notice": 2, "agent": 1, "superlink": 3, "supernode": 1}
ROUNDS = 4
END_S = 600.0


def make_app(folder: Path) -> None:
    """The example, with a ServerApp that says when it is done."""
    app = folder / "digits"
    shutil.copytree(ROOT / "examples/federated_mnist", app, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(JOBS / "marked.py", app / "federated_mnist")
    before, found, after = (app / "pyproject.toml").read_text().partition("federated_mnist.server_app:app")
    assert found
    (app / "pyproject.toml").write_text(f"{before}federated_mnist.marked:app{after}")


def spec(ledger: Path, gate: Path) -> dict[str, Any]:
    clients = [{"name": name, "config": {"partition": str(k)}} for k, name in enumerate("abc")]
    work = {"kind": "flower", "app": "digits", "rounds": ROUNDS, "epoch_s": 10.0, "clients": clients}
    work["run_config"] = {"local-epochs": "2"}
    env = {"LEDGER": str(ledger), "GATE": str(gate), "GATED_ROUND": str(ROUNDS - 1)}
    return {"name": "digits", "work": work, "env": env}


def test_flower(deployment: Deployment, seed: int, times: int, tmp_path: Path) -> None:
    faults = plan(seed, {kind: times * count for kind, count in COUNTS.items()})
    ledger, gate = tmp_path / "done.txt", tmp_path / "gate"
    make_app(tmp_path)
    names = [str(path.relative_to(tmp_path)) for path in (tmp_path / "digits").rglob("*") if path.is_file()]
    job_id = deployment.submit(spec(ledger, gate), tmp_path, names)
    for _ in strike_all(deployment, faults):
        pass
    gate.touch()
    check_over(deployment, [job_id], END_S)
    check_training(Path(deployment.jobs()[job_id].workdir), ledger)


def check_training(workdir: Path, ledger: Path) -> None:
    """One run came to its end, every round has its metrics, and the network has learned."""
    assert ledger.read_text() == "done\n"
    status = Status.load(workdir / "flower/status.json")
    assert status is not None
    assert status.finished
    assert sorted(status.history) == list(range(1, ROUNDS + 1))
    final = checkpoints.load(workdir / "flower/checkpoints")
    assert final is not None
    assert final.round == ROUNDS
    assert status.history[ROUNDS]["accuracy"] > 0.7
