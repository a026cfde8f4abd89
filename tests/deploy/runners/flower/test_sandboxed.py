"""Real trainings whose SuperLink and ServerApp are in a sandbox, or use more than they may."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from deploy.model.tasks import Phase
from deploy.runners.detached import Limits
from deploy.security.sandbox import Mode, SandboxError
from deploy.security.trial import choose
from tests.deploy.runners.flower.test_stories import TWO
from tests.deploy.runners.flower.world import MEAN, job_spec, world

pytestmark = pytest.mark.real


def app_with(folder: Path, code: str) -> Path:
    """The app, with a ServerApp that does something else first."""
    app = folder / "apps" / "mean"
    shutil.copytree(MEAN, app)
    place = app / "mean" / "server_app.py"
    text = place.read_text()
    place.write_text(text.replace("    def evaluate(", f"{code}\n    def evaluate(", 1))
    return app


def test_a_server_app_gets_at_nothing_but_its_jobs_own_and_trains(tmp_path: Path) -> None:
    # Given a deployment's secrets next to the runner's state, and what another job has there,
    try:
        sandbox = choose(Mode.AUTO, trust=False, state=tmp_path, numbers=(61184, 65519))
    except SandboxError as error:
        pytest.skip(str(error))
    secrets = [tmp_path / "store.db.key", tmp_path / "state" / "other" / "keys" / "control.token"]
    for path in secrets:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
        path.chmod(0o600)
    wanted = [
        *map(str, secrets),
        str(tmp_path / "state" / "story" / "job.json"),
        str(tmp_path / "state" / "story" / "process" / "command.json"),
        f"/proc/{os.getpid()}/environ",
    ]
    code = f"""
    import json
    got = []
    for path in {wanted!r}:
        try:
            open(path, "rb").read(1)
            got.append(path)
        except OSError:
            pass
    json.dump(got, open("got.json", "w"))
"""
    # when it trains,
    with world(tmp_path, job_spec("mean", 2, TWO), app_with(tmp_path, code), sandbox=sandbox) as here:
        here.place_all()
        here.wait_for_phase(Phase.SUCCEEDED)
        # then it was stopped by nothing, and has got nothing.
        assert json.loads((here.workdir / "got.json").read_text()) == []
        here.forget()
        assert not (tmp_path / "state" / "story").exists()


def test_a_server_app_over_a_limit_has_failed_with_its_reason(tmp_path: Path) -> None:
    code = """
    import subprocess, time
    many = [subprocess.Popen(["sleep", "600"]) for _ in range(40)]
    time.sleep(600)
"""
    limits = Limits(processes=30)
    with world(tmp_path, job_spec("mean", 2, TWO), app_with(tmp_path, code), limits=limits) as here:
        here.place_all()
        messages = {report.message for report in here.wait_for_phase(Phase.FAILED).values()}
        assert messages == {"it had more than 30 processes (runners.driver_processes_most)"}
