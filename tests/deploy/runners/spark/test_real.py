"""The runner with the real Spark: one cluster for all stories, each with nodes of its own."""

from __future__ import annotations

import json
import os
import pwd
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from spotweave.deploy.model.instances import InstanceState, LaunchRequest
from spotweave.deploy.model.jobs import JobSpec, Resources, SparkBatch, TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase, TaskReport
from spotweave.deploy.node import procfs
from spotweave.deploy.providers.local.config import LocalConfig
from spotweave.deploy.providers.local.provider import LocalProvider
from spotweave.deploy.providers.local.records import loopback_address
from spotweave.deploy.runners.spark import settings as spark_settings
from spotweave.deploy.runners.spark.application import Application
from spotweave.deploy.runners.spark.cluster import known_states
from spotweave.deploy.runners.spark.runner import SparkRunner
from spotweave.deploy.runners.spark.settings import SparkHome, SparkSettings, find_spark
from spotweave.deploy.security import trial as module
from spotweave.deploy.security.sandbox import Mode, Sandbox, SandboxError
from spotweave.deploy.security.tokens import AccessTokens
from spotweave.deploy.security.trial import choose
from spotweave.deploy.store.store import Store
from tests.deploy.fake_nvml import install
from tests.deploy.node.agents import ROOT, agents, wait_until
from tests.deploy.runners.patience import PATIENCE_S, insist, left_behind
from tests.deploy.runners.spark.cases import batch, streaming

pytestmark = pytest.mark.real


_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {"spark.driver.extraJavaOptions": _QUICK, "spark.executor.extraJavaOptions": _QUICK}
"""Halves the time that a driver needs on a busy machine."""


TWO_GPUS = Resources(gpus=2)


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkRunner]:
    settings = SparkSettings(
        state=tmp_path_factory.mktemp("spark") / "the state", address=loopback_address(), driver_memory="512m"
    )
    made = SparkRunner(settings)
    try:
        made.start()
        yield made
    finally:
        insist(made.shutdown)
    assert not left_behind(settings.state)


def report(runner: SparkRunner, assignment: Assignment) -> TaskReport:
    (found,) = runner.reports([assignment])
    return found


eventually = partial(wait_until, within_s=PATIENCE_S, every_s=0.3)
"""Looks seldom enough to leave the cores to Spark."""


def wait_for(runner: SparkRunner, assignment: Assignment, phase: Phase) -> TaskReport:
    def reached() -> bool:
        now = report(runner, assignment)
        assert now.phase is phase or not now.phase.ended, now
        return now.phase is phase

    eventually(reached)
    return report(runner, assignment)


def workers(runner: SparkRunner, assignment: Assignment) -> dict[str, str]:
    """States of an attempt's workers by their addresses, as the master sees them."""
    return known_states(assignment.attempt_id, runner._master.view())


def asked(runner: SparkRunner, assignment: Assignment) -> Application:
    """What the driver says of itself."""
    record = runner._attempts.get(assignment).record
    assert record is not None
    found = runner._applications.ask(assignment.attempt_id, runner._settings.address, record.ui_port)
    assert found is not None
    return found


SHUFFLE = """
import os, time
from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
def work(x):
    if x % 50 == 0:
        time.sleep(0.3)
    return x % 4, x

pairs = session.sparkContext.parallelize(range(400), 8).map(work)
sums = pairs.reduceByKey(lambda left, right: left + right, 4)
first = sorted(sums.collect())
open("shuffled", "w").close()
while not os.path.exists("go"):
    time.sleep(0.1)
# The same shuffle again: its files are needed, not its tasks.
assert sorted(sums.map(lambda pair: pair).collect()) == first
open("sums", "w").write(repr(first))
open("looked", "w").close()
while not os.path.exists("end"):
    time.sleep(0.1)
assert session.sparkContext.parallelize(range(10), 2).sum() == 45
"""


@pytest.mark.nightly
def test_a_batch_job_outlives_scheduler_master_and_a_node(runner: SparkRunner, tmp_path: Path) -> None:
    workdir = tmp_path / "shuffle"
    with agents(tmp_path, 3) as (one, two, other):
        # Given a job on two nodes, and a third node whose worker belongs to another attempt,
        assignment = batch(SHUFFLE, workdir, [one.node(), two.node()], conf=QUICK)
        runner.ensure(assignment)
        stranger = replace(assignment, attempt=99, nodes=(other.node(),))
        runner._workers.start(other.node(), stranger.attempt_id, find_spark())
        eventually((workdir / "shuffled").exists)
        eventually(lambda: workers(runner, stranger) == {other.address: "ALIVE"})
        running = wait_for(runner, assignment, Phase.RUNNING)
        # whose executors run on its own nodes only;
        assert set(running.details["executors"].split()) == {one.address, two.address}

        # when the scheduler is replaced, and a node gets its notice and ends,
        again = SparkRunner(runner._settings)
        again.ensure(assignment)
        assert report(again, assignment).phase is Phase.RUNNING
        again.drain(assignment, [one.instance_id], within_s=30.0)
        eventually(lambda: report(again, assignment).details.get("executors") == two.address)
        assert workers(again, assignment)[one.address] == "DECOMMISSIONED"
        one.destroy()
        (workdir / "go").touch()
        eventually((workdir / "looked").exists)

        # then the job goes on where it was: only the four tasks after the shuffle ran again.
        eventually(lambda: asked(again, assignment).tasks_done == 8 + 4 + 4)
        after = asked(again, assignment)
        assert (after.tasks, after.failed_tasks) == (8 + 4 + 4, 0)

        # When the master is killed, its successor takes over what goes on without it,
        master = runner._settings.state / "master" / "process.json"
        os.kill(json.loads(master.read_bytes())["pid"], signal.SIGKILL)
        eventually(lambda: again._master.state() is None)
        # (which each report starts, once the old one's process is gone)
        assert report(again, assignment).phase is Phase.RUNNING
        eventually(
            lambda: report(again, assignment).phase is Phase.RUNNING and again._master.state() == "ALIVE"
        )
        eventually(lambda: workers(again, assignment).get(two.address) == "ALIVE")
        # and the job ends well.
        (workdir / "end").touch()
        assert wait_for(again, assignment, Phase.SUCCEEDED).progress == 1.0
        sums = [(key, sum(range(key, 400, 4))) for key in range(4)]
        assert (workdir / "sums").read_text() == repr(sums)
        insist(lambda: runner.stop(assignment))
        insist(lambda: runner.stop(stranger))


WRONG = """
from pyspark.sql import SparkSession

def parse(x):
    raise ValueError(f"cannot parse {x}")

SparkSession.builder.getOrCreate().sparkContext.parallelize(range(1), 1).map(parse).collect()
"""


def test_an_error_in_a_task_is_the_users_with_its_reason(runner: SparkRunner, tmp_path: Path) -> None:
    workdir = tmp_path / "wrong"
    with agents(tmp_path, 1) as (node,):
        assignment = batch(WRONG, workdir, [node.node()], conf=QUICK)
        runner.ensure(assignment)
        assert wait_for(runner, assignment, Phase.FAILED).message == "ValueError: cannot parse 0"
        insist(lambda: runner.stop(assignment))
        insist(lambda: runner.forget(workdir.name))


GPUS = """
from pyspark import TaskContext
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

def taken(_):
    return TaskContext.get().resources()["gpu"].addresses

four = SparkSession.builder.getOrCreate().sparkContext.parallelize(range(4), 4)
both = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 2)).build
given = four.map(taken).collect()
given_a_stage = four.withResources(both).map(taken).collect()
with open("given", "w") as file:
    print(*(" ".join(one) for one in given), file=file)
with open("given a stage", "w") as file:
    print(*(",".join(sorted(one)) for one in given_a_stage), file=file)
"""


def test_each_task_has_a_gpu_of_its_node(
    runner: SparkRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, 2)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    workdir = tmp_path / "with-gpus"
    with agents(tmp_path, 1) as (node,):
        eventually(lambda: node.client.status().gpus)
        assignment = batch(GPUS, workdir, [node.node(vcpus=2, gpus=2)], conf=QUICK)
        assignment = replace(assignment, spec=assignment.spec.model_copy(update={"resources": TWO_GPUS}))
        runner.ensure(assignment)
        wait_for(runner, assignment, Phase.SUCCEEDED)
        given = (workdir / "given").read_text().split()
        assert len(given) == 4
        assert set(given) <= {"0", "1"}
        # Stage-level scheduling: tasks of a stage that asks for both have both.
        assert (workdir / "given a stage").read_text().split() == ["0,1"] * 4
        insist(lambda: runner.stop(assignment))
        insist(lambda: runner.forget(workdir.name))


STREAM = """
import json, os, time
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

session = SparkSession.builder.getOrCreate()

class Listener(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryIdle(self, event): pass
    def onQueryTerminated(self, event): pass
    def onQueryProgress(self, event):
        told = {"batch": event.progress.batchId, "ms": event.progress.durationMs["triggerExecution"]}
        with open("told", "a") as file:
            file.write(json.dumps(told) + "\\n")

def keep(frame, batch):
    frame.collect()
    if batch % 3 == 2:
        time.sleep(1.2)

session.streams.addListener(Listener())
(session.readStream.format("rate").option("rowsPerSecond", 5).option("numPartitions", 1).load()
    .writeStream.foreachBatch(keep)
    .option("checkpointLocation", os.environ["SPOTWEAVE_CHECKPOINT_DIR"] + "/q")
    .trigger(processingTime=os.environ["SPOTWEAVE_PERIOD_S"] + " seconds").start().awaitTermination())
"""


@pytest.mark.nightly
def test_a_stream_resumes_and_its_misses_are_counted(runner: SparkRunner, tmp_path: Path) -> None:
    workdir = tmp_path / "stream"
    with agents(tmp_path, 2) as (one, two):
        first = streaming(STREAM, workdir, [one.node()], batches=9, conf=QUICK)
        runner.ensure(first)
        eventually(lambda: report(runner, first).executions_done >= 4)
        one.destroy()
        lost = wait_for(runner, first, Phase.LOST)
        assert lost.message == f"all its nodes are gone: {one.instance_id} does not answer"
        second = streaming(STREAM, workdir, [two.node()], attempt=2, batches=9, conf=QUICK)
        again = SparkRunner(runner._settings)
        again.ensure(second)
        assert report(again, second).executions_done == lost.executions_done
        found = wait_for(again, second, Phase.SUCCEEDED)

    # What the job's own listener was told is what was counted, in both attempts together. The listener runs
    # beside the batches: the last ones of an attempt may not reach it, none in between are left out.
    told = [json.loads(line) for line in (workdir / "told").read_text().splitlines()]
    durations = {entry["batch"]: int(entry["ms"]) for entry in told}
    batches = [entry["batch"] for entry in told]
    assert sum(later != earlier + 1 for earlier, later in pairwise(batches)) <= 1
    untold = found.executions_done - len(durations)
    assert found.executions_done >= 9
    assert untold >= 0
    assert 0 <= found.misses - sum(ms > 1000 for ms in durations.values()) <= untold
    assert found.misses >= 2
    insist(lambda: runner.stop(second))
    assert report(runner, second) == found


def test_strangers_cannot_submit(runner: SparkRunner) -> None:
    rest = f"http://{runner._settings.address}:{runner._master._ports()['rest']}"
    answer = httpx.post(f"{rest}/v1/submissions/create", json={}, trust_env=False)
    assert answer.status_code == 403
    decommission = httpx.post(f"{runner._master.web_url}/workers/kill/?host=127.0.0.1", trust_env=False)
    assert decommission.status_code == 405


# Real Spark whose drivers, executors and master are in a sandbox, and a script that wants out of it.


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
        from spotweave.deploy.security.tokens import AccessTokens
        from spotweave.deploy.store.store import Store
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
        spec = JobSpec(name="mine", work=work, env={"REPOSITORY": str(ROOT), "WORD": "a-variable"})
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
