"""A real training whose SuperLink and ServerApp are in a sandbox, and a ServerApp that wants out of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.model.tasks import Phase
from deploy.security import sandbox as module
from deploy.security.sandbox import Mode, Sandbox, SandboxError, choose
from deploy.security.tokens import AccessTokens
from deploy.store.store import Store
from tests.deploy.runners.flower.world import MEAN, World, insist, job_spec

pytestmark = [pytest.mark.real, pytest.mark.long]

SPY = """
import json, os
from pathlib import Path

def got(state, pid):
    secrets = [state + "/store.db.key", state + "/store.db", state + "/jobs/other/given",
               state + "/flower/story/job.json", state + "/flower/story/keys", state + "/flower/other/keys",
               f"/proc/{pid}/environ"]
    found = []
    for path in secrets:
        try:
            os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
            found.append(path)
        except OSError:
            pass
    return found

if "SPY" in os.environ:
    Path(os.environ["SPY_OUT"]).write_text(json.dumps(got(os.environ["SPY"], os.environ["SPY_PID"])))
"""


@pytest.fixture(params=[Mode.BUBBLEWRAP, Mode.UID])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    mode: Mode = request.param
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        state = Path(name).resolve() / "state"
        state.mkdir(mode=0o700)
        try:
            module._require(mode, os.geteuid() == 0)
            made = choose(mode, trust=False, state=state, numbers=(61184, 65519), python=sys.executable)
        except SandboxError as error:
            pytest.skip(str(error))
        yield made


def test_a_server_app_gets_at_nothing_but_its_own_and_the_training_ends_well(sandbox: Sandbox) -> None:
    state = sandbox.state
    with Store.open(f"sqlite:///{state}/store.db", time.time()) as store:
        AccessTokens(store)
    for folder in (state / "jobs" / "other", state / "flower" / "other" / "keys"):
        folder.mkdir(parents=True, mode=0o700)
        (folder / "given").write_text("a secret")
    spec = job_spec("mean", 2, {"a": {"target": "1", "examples": "1"}})
    workdir = sandbox.job_folder("story")
    env = {"SPY": str(state), "SPY_PID": str(os.getpid()), "SPY_OUT": str(workdir / "got.json")}
    world = World(state, spec.model_copy(update={"env": env}), MEAN, workdir=workdir, sandbox=sandbox)
    try:
        server = workdir / "mean" / "mean" / "server_app.py"
        server.write_text(SPY + server.read_text())
        world.place_all()
        world.wait_for_phase(Phase.SUCCEEDED)
        assert json.loads((workdir / "got.json").read_text()) == []
        world.stop("client-a")
        insist(lambda: world.runner.forget("story"))
        assert not (state / "flower" / "story").exists()
        assert (workdir / "got.json").stat().st_uid == os.geteuid()
    finally:
        world.close()
