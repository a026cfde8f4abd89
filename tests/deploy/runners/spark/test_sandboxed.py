"""Real Spark whose drivers, executors and master are in a sandbox, and a script that wants out of it."""

from __future__ import annotations

import json
import os
import pwd
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.model.instances import InstanceState, LaunchRequest
from deploy.model.jobs import JobSpec, SparkBatch, TaskKey
from deploy.model.tasks import Assignment, Node, Phase
from deploy.node import procfs
from deploy.providers.local.config import LocalConfig
from deploy.providers.local.provider import LocalProvider
from deploy.runners.spark import SparkRunner, SparkSettings
from deploy.runners.spark import settings as spark_settings
from deploy.runners.spark.settings import SparkHome
from deploy.security import trial as module
from deploy.security.sandbox import Mode, Sandbox, SandboxError
from deploy.security.tokens import AccessTokens
from deploy.security.trial import choose
from deploy.store.store import Store
from tests.deploy.node.agents import ROOT as REPOSITORY
from tests.deploy.node.agents import loopback_address
from tests.deploy.runners.patience import insist
from tests.deploy.runners.spark.test_real import QUICK, eventually

pytestmark = pytest.mark.real

SCRIPT = """
import json, os, sys, urllib.request
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
state, pid, together, _ = sys.argv[1:]
secrets = [state + "/store.db.key", state + "/store.db", state + "/jobs/other/given",
           state + "/spark/jobs/other/main.1/own/spark.conf", state + "/spark/master/secret",
           state + "/local/instances", f"/proc/{pid}/environ"]

def wanted(_):
    got = []
    for path in secrets:
        try:
            # A folder may be there, with what is one's own in it.
            if not os.path.isdir(path):
                open(path, "rb").read(1)
            elif len(os.listdir(path)) <= 1:
                continue
            got.append(path)
        except OSError:
            pass
    return got

def mint(_):
    sys.path.insert(0, os.environ["REPOSITORY"])
    try:
        from deploy.security.tokens import AccessTokens
        from deploy.store.store import Store
        with Store.open(f"sqlite:///{state}/store.db", 0.0) as store:
            AccessTokens(store)
            return ["opened the store"]
    except Exception as error:
        return []

got = {"driver": wanted(0) + mint(0)}
context = session.sparkContext
about = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/environment"
page = urllib.request.urlopen(about).read().decode()
got["told"] = [word for word in ("a-variable", "a-setting", "an-argument") if word in page]
got["executor"] = session.sparkContext.parallelize([0], 1).flatMap(wanted).collect()
if together == "yes":
    # Executors write where the driver does.
    session.range(10).write.parquet("numbers")
    got["sum"] = session.read.parquet("numbers").groupBy().sum().collect()[0][0]
with open("got.json", "w") as file:
    json.dump(got, file)
"""


@pytest.fixture(params=[Mode.BUBBLEWRAP, Mode.UID])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    mode: Mode = request.param
    numbers, python = (61184, 65519), sys.executable
    if mode is Mode.UID:
        # Java wants a name for its user, and this mode gives none: existing accounts that nothing runs as.
        python = "/usr/bin/python3"
        numbers = _named()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o711)
        state = Path(name).resolve() / "state"
        state.mkdir(mode=0o700)
        try:
            module._require(mode, os.geteuid() == 0)
            made = choose(mode, trust=False, state=state, numbers=numbers, python=python)
        except SandboxError as error:
            pytest.skip(str(error))
        if mode is Mode.UID:
            plain = SparkHome.environment
            monkeypatch.setattr(
                spark_settings.SparkHome,
                "environment",
                lambda self, address: (
                    plain(self, address) | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
                ),
            )
        yield made


def _named() -> tuple[int, int]:
    """A run of ids that all have names, and as whom nothing runs."""
    named = {one.pw_uid for one in pwd.getpwall()}
    used = {os.stat(f"/proc/{one.pid}").st_uid for one in procfs.scan() if Path(f"/proc/{one.pid}").exists()}
    for first in range(2, 100):
        if all(number in named - used for number in range(first, first + 6)):
            return first, first + 5
    pytest.skip("there are no six accounts in a row for a test")


def test_a_script_gets_at_nothing_but_its_own_and_ends_with_its_result(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = sandbox.state
    with Store.open(f"sqlite:///{state}/store.db", time.time()) as store:
        AccessTokens(store)
    for job, content in (("other", "given"), ("mine", "app.py")):
        (state / "jobs" / job).mkdir(parents=True, mode=0o700)
        (state / "jobs" / job / content).write_text(SCRIPT)
    other = state / "spark" / "jobs" / "other" / "main.1" / "own"
    other.mkdir(parents=True, mode=0o700)
    (other / "spark.conf").write_text("secret")
    settings = SparkSettings(
        state=state / "spark", address=loopback_address(), driver_memory="512m", sandbox=sandbox
    )
    runner = SparkRunner(settings)
    offer = {"instance_type": "small", "market": "on_demand", "price_usd_hour": 1.0, "memory_gib": 2.0}
    config = LocalConfig.model_validate({"state": state / "local", "offers": [offer]})
    # In the mode of ids alone the node's Python would have to be one that all may read.
    boxed = sandbox if sandbox.mode is Mode.BUBBLEWRAP else None
    provider = LocalProvider(config, boxed)
    asked = LaunchRequest(
        client_token="one",
        offer_id="local/local/small/on_demand",
        deployment="d",
        job_id="mine",
        task="main",
        node_token="n" * 32,
        max_price_usd_hour=None,
    )
    instance = provider.launch(asked).instance_id
    try:
        eventually(lambda: provider.describe("d")[0].state is InstanceState.RUNNING)
        (report,) = provider.describe("d")
        node = Node(
            instance,
            report.address,
            report.node_port,
            asked.node_token,
            1,
            2.0,
            certificate=report.certificate,
        )
        work = SparkBatch(
            script="app.py",
            args=(str(state), str(os.getpid()), "yes" if boxed else "no", "an-argument"),
            conf={**QUICK, "spark.my.word": "a-setting"},
        )
        spec = JobSpec(name="mine", work=work, env={"REPOSITORY": str(REPOSITORY), "WORD": "a-variable"})
        workdir = sandbox.job_folder("mine")
        assignment = Assignment(TaskKey("mine", "main"), 1, spec, (node,), str(workdir))
        runner.ensure(assignment)
        eventually(lambda: runner.reports([assignment])[0].phase.ended)
        (found,) = runner.reports([assignment])
        log = (workdir / "logs" / "driver-1.log").read_text()
        assert found.phase is Phase.SUCCEEDED, (found, log[-3000:])
        got = json.loads((workdir / "got.json").read_text())
        assert got["driver"] == []
        assert got["told"] == [], "Spark's page, which other jobs reach, hides what a submitter gave"
        if boxed is not None:
            assert got["executor"] == []
            assert got["sum"] == 45
        insist(lambda: runner.stop(assignment))
        insist(lambda: runner.forget("mine"))
        assert not (state / "spark" / "jobs" / "mine").exists()
        assert (workdir / "got.json").stat().st_uid == os.geteuid()
    finally:
        provider.terminate([instance])
        insist(runner.shutdown)
    left = [value for one in procfs.scan() for value in procfs.environment(one.pid).values()]
    assert not any(str(state) in value for value in left)
