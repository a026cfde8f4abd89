"""A real bag to its end on the local provider, through interruptions and a killed scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.chaos.checks import check_over
from tests.deploy.chaos.deployment import Deployment

pytestmark = pytest.mark.real

JOBS = Path(__file__).parent / "jobs"
STEPS = 4
TASKS = ("a", "b", "c")
END_S = 240.0


def bag_spec(ledger: Path, gate: Path) -> dict[str, Any]:
    words = [str(STEPS), str(ledger), str(gate)]
    tasks = [{"name": one, "command": ["python", "steps.py", one, *words], "minutes": 0.2} for one in TASKS]
    checkpoint = ["sh", "-c", 'cp steps "$SPOTWEAVE_CHECKPOINT_DIR"/']
    work = {"kind": "bag", "tasks": tasks, "deadline_s": 3600.0, "checkpoint": checkpoint}
    return {"name": "bag", "work": work, "resources": {"memory_gib": 1.0}, "places": {"markets": ["spot"]}}


def test_bag(deployment: Deployment, tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger.txt", tmp_path / "gate"
    job_id = deployment.submit(bag_spec(ledger, gate), JOBS, ["steps.py"])

    def lines() -> list[str]:
        return ledger.read_text().splitlines() if ledger.exists() else []

    def saved() -> set[str]:
        return {task.key.task for task in deployment.store.tasks.of_job(job_id) if task.saved > 0}

    # Each does two steps and then waits for the gate.
    deployment.wait_for(lambda: len(lines()) == 2 * len(TASKS), "two steps of each", END_S)
    (victim,) = (one for one in deployment.store.instances.of_job(job_id) if one.key.task == "b")
    assert victim.provider_id is not None
    deployment.provider.interrupt(victim.provider_id, 8.0)
    deployment.wait_for(lambda: saved() == {"b"}, "the checkpoint that the notice asks for", END_S)
    deployment.kill()

    def again() -> bool:
        task = next(one for one in deployment.store.tasks.of_job(job_id) if one.key.task == "b")
        return task.attempt >= 2 and task.phase == "running"

    deployment.wait_for(again, "the second attempt", END_S)
    gate.touch()
    check_over(deployment, [job_id], END_S)
    # Every step of every task was done exactly once: the second attempt went on with the third.
    assert sorted(lines()) == sorted(f"{name} {step}" for name in TASKS for step in range(STEPS))
    workdir = Path(deployment.jobs()[job_id].workdir)
    assert (workdir / "logs" / "a-1.log").read_text() == f"a begins with 0\na has done {STEPS}\n"
    logs = sorted(path.name for path in (workdir / "logs").glob("b-*.log"))
    assert (workdir / "logs" / logs[-1]).read_text() == f"b begins with 2\nb has done {STEPS}\n"
    assert not list((deployment.state / "bag" / "checkpoints").rglob("*.tar"))
