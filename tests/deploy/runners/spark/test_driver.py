"""What jobs may ask for, what their drivers are given, and which of them never start."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotweave.deploy.model.jobs import JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Node, Phase
from spotweave.deploy.runners.spark.attempts import LONGEST, by_cluster, last_error
from spotweave.deploy.runners.spark.cluster import executor_memory_mib
from spotweave.deploy.runners.spark.driver import DriverPlace, check_job, command, configuration, variables
from spotweave.deploy.runners.spark.runner import SparkRunner
from spotweave.deploy.runners.spark.settings import SparkSettings, find_spark, java_version, properties
from tests.deploy.hostile import memory
from tests.deploy.runners.spark.conftest import World


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "job"
    place.mkdir()
    (place / "app.py").touch()
    (tmp_path / "outside.py").touch()
    (place / "link.py").symlink_to(tmp_path / "outside.py")
    (place / "notes.txt").touch()
    (place / "broken.jar").write_text("no jar")
    for name, manifest in (("good.jar", "Main-Class: org.example.Main\n"), ("aimless.jar", "Built-By: me\n")):
        with zipfile.ZipFile(place / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n" + manifest)
    return place


def job(
    script: str = "app.py", conf: dict[str, str] | None = None, py_files: Sequence[str] = (), **rest: Any
) -> JobSpec:
    work = {"kind": "spark-batch", "script": script, "conf": conf or {}, "py_files": tuple(py_files)}
    return JobSpec.model_validate({"name": "a-job", "work": work, **rest})


STREAM = {"kind": "spark-streaming", "script": "app.py", "period_s": 5, "batch_deadline_s": 2.5, "batches": 3}


@pytest.mark.parametrize("script", ["app.py", "./app.py", "good.jar"])
def test_what_can_run_is_not_refused(folder: Path, script: str) -> None:
    check_job(
        job(script, {"spark.sql.shuffle.partitions": "2", "spark.executor.memoryOverhead": "1g"}), folder
    )


def test_files_of_the_job_are_given_to_spark_by_absolute_paths(folder: Path, tmp_path: Path) -> None:
    (folder / "two.zip").touch()
    named = {"spark.files": "notes.txt,s3a://b/c", "spark.archives": "two.zip#x"}
    spec = job(conf={"spark.submit.pyFiles": "two.zip", **named}, py_files=["app.py"])
    check_job(spec, folder)
    conf = configuration(place(spec, folder), SparkSettings(state=tmp_path, address="127.0.0.1"))
    assert conf["spark.submit.pyFiles"] == f"{folder}/app.py,{folder}/two.zip"
    assert conf["spark.files"] == f"{folder}/notes.txt,s3a://b/c"
    assert conf["spark.archives"] == f"{folder}/two.zip#x"


@pytest.mark.parametrize("name", ["wordcount", "streaming", "gpu_inference"])
def test_the_examples_can_run(name: str) -> None:
    examples = Path(__file__).resolve().parents[4] / "examples"
    described = yaml.safe_load((examples / f"{name}.yaml").read_text())
    check_job(JobSpec.model_validate_json(json.dumps(described)), examples)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (job("missing.py"), "script 'missing.py' does not exist"),
        (job("../outside.py"), "lies outside of the job's folder"),
        (job("/etc/passwd"), "lies outside of the job's folder"),
        (job("link.py"), "lies outside of the job's folder"),
        (job("notes.txt"), r"expected a Python file \(.py\) or a jar"),
        (job("broken.jar"), "is no jar with a manifest"),
        (job("aimless.jar"), "names no Main-Class"),
        (job(py_files=["notes.txt"]), r"py_files has 'notes.txt': expected .py, .zip or .egg files"),
        (job(py_files=["../outside.py"]), "file '../outside.py' lies outside of the job's folder"),
        (job(conf={"spark.files": "notes.txt,none.txt"}), "file 'none.txt', .* does not exist"),
        (job(conf={"spark.jars": "/etc/passwd"}), "file '/etc/passwd' lies outside"),
        (job(conf={"master": "local[2]"}), "conf has 'master'"),
        (job(conf={"spark.master": "local[2]"}), "conf sets spark.master"),
        (job(conf={"spark.executor.memory": "64g"}), "conf sets spark.executor.memory"),
        (job(conf={"spark.executor.resource.x.amount": "1"}), "conf sets spark.executor.resource.x.amount"),
        (job(conf={"spark.executor.resource.gpu.amount": "1"}), "and resources asks for no GPU"),
        (
            job(conf={"spark.executor.resource.gpu.amount": "3"}, resources={"gpus": 2}),
            "amount to '3': expected 1 to 2",
        ),
        (
            job(conf={"spark.task.resource.gpu.amount": "0.7"}, resources={"gpus": 1}),
            "amount to '0.7': expected a share of a GPU up to 0.5, or a number from 1 to 1",
        ),
        (job(conf={"spark.authenticate.secret": "x"}), "conf sets spark.authenticate.secret"),
        (job(conf={"spark.authenticate": "false"}), "conf sets spark.authenticate"),
        (job(env={"SPARK_HOME": "/x"}), "env sets SPARK_HOME"),
        (job(env={"SPOTWEAVE_ATTEMPT": "1"}), "env sets SPOTWEAVE_ATTEMPT"),
        (job(resources={"memory_gib": 0.5}), r"resources.memory_gib is 0.5: .* at least 1"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(folder: Path, spec: JobSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        check_job(spec, folder)
    assert "\n" not in str(refusal.value)


def test_a_jar_that_unpacks_to_gigabytes_is_refused_without_unpacking_it(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bomb.jar", "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("META-INF/MANIFEST.MF", bytes(64 << 20))
    with memory() as peak, pytest.raises(ValueError, match="its manifest has more than 64 KiB"):
        check_job(job("bomb.jar"), folder)
    assert peak[0] < 4 << 20


def test_a_jar_with_an_endless_list_of_files_is_refused(folder: Path) -> None:
    with zipfile.ZipFile(folder / "long.jar", "w") as jar:
        for number in range(200):
            jar.writestr(f"{number:03}{'x' * 60_000}", b"")
    with pytest.raises(ValueError, match="list of files may have 8 MiB"):
        check_job(job("long.jar"), folder)


def place(spec: JobSpec, folder: Path, gpus: int = 0) -> DriverPlace:
    node = Node("i-1", "127.0.0.8", 1, "token", 3, 4.25, gpus=gpus)
    return DriverPlace(
        assignment=Assignment(TaskKey("j", "main"), 2, spec, (node,), str(folder)),
        master_url="spark://127.0.0.9:7077",
        secret="hidden",
        ui_port=4040,
        checkpoints="/checkpoints/j",
        events=folder / "the events",
    )


def test_executors_are_tied_to_the_attempts_workers_and_fill_them(folder: Path) -> None:
    settings = SparkSettings(state=folder, address="127.0.0.9")
    spec = job(conf={"spark.sql.ansi.enabled": "true"}, env={"MODE": "x"})
    conf = configuration(place(spec, folder), settings)
    expected = {
        "spark.executor.resource.attempt-j-main-2.amount": "1",
        "spark.executor.cores": "3",
        "spark.executor.memory": "3072m",
        "spark.sql.ansi.enabled": "true",
        "spark.executorEnv.MODE": "x",
        "spark.executorEnv.SPOTWEAVE_ATTEMPT": "2",
        "spark.decommission.enabled": "true",
    }
    assert expected.items() <= conf.items()
    assert "spark.eventLog.enabled" not in conf


@pytest.mark.parametrize(
    ("conf", "executor", "task"),
    [
        ({}, "4", "1"),
        ({"spark.task.resource.gpu.amount": "0.25"}, "4", "0.25"),
        ({"spark.executor.resource.gpu.amount": "2", "spark.task.resource.gpu.amount": "2"}, "2", "2"),
    ],
)
def test_executors_have_their_instances_gpus_and_tasks_one_each(
    folder: Path, conf: dict[str, str], executor: str, task: str
) -> None:
    spec = job(conf=conf, resources={"gpus": 2, "gpu": ("L4",)})
    check_job(spec, folder)
    made = configuration(place(spec, folder, gpus=4), SparkSettings(state=folder))
    assert made["spark.executor.resource.gpu.amount"] == executor
    assert made["spark.task.resource.gpu.amount"] == task


def test_streams_are_told_their_period_and_leave_a_log_of_batches(folder: Path) -> None:
    spec = JobSpec.model_validate({"name": "s", "work": STREAM})
    conf = configuration(place(spec, folder), SparkSettings(state=folder))
    assert conf["spark.eventLog.dir"] == (folder / "the events").as_uri()
    assert conf["spark.sql.streaming.checkpointLocation"] == "/checkpoints/j"
    told = {"SPOTWEAVE_PERIOD_S": "5", "SPOTWEAVE_BATCH_DEADLINE_S": "2.5", "SPOTWEAVE_BATCHES": "3"}
    assert told.items() <= variables(place(spec, folder)).items()


def test_arguments_are_passed_as_they_are_and_secrets_are_not_among_them(folder: Path) -> None:
    spec = JobSpec.model_validate(
        {"name": "j", "work": {"kind": "spark-batch", "script": "app.py", "args": ("--x", "$(id)", "a b")}}
    )
    submit, conf = "/spark/bin/spark-submit", folder / "spark.conf"
    words = [submit, "--properties-file", str(conf), str(folder / "app.py"), "--x", "$(id)", "a b"]
    assert command(submit, conf, spec, folder) == words


@pytest.mark.parametrize(("gib", "mib"), [(1.0, 576), (0.5, 512), (4.25, 3072), (16.0, 12096)])
def test_a_node_keeps_memory_for_what_is_no_heap(gib: float, mib: int) -> None:
    assert executor_memory_mib(gib) == mib


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime', 17),
        ('java version "1.8.0_392"\n', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_javas_version_is_read(told: str, version: int | None) -> None:
    assert java_version(told) == version


def test_without_java_or_with_an_old_one_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="need Java 17 or newer, and there is none on PATH: install one"):
        find_spark()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ValueError, match=r"java is Java 11: install one .* or set JAVA_HOME"):
        find_spark()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="does not run"):
        find_spark()


def test_without_pyspark_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/somewhere/else")
    with pytest.raises(ValueError, match=r"pip install 'spotweave\[spark\]'"):
        find_spark()


def load(text: str) -> dict[str, str]:
    """As java.util.Properties reads it: the key ends at the first separator that is not escaped."""
    found = {}
    for line in text.splitlines():
        parts: list[str] = [""]
        at = 0
        while at < len(line):
            if line[at] == "\\":
                assert line[at + 1] == "u"
                parts[-1] += chr(int(line[at + 2 : at + 6], 16))
                at += 6
            elif len(parts) == 1 and line[at] in "=: \t":
                assert line[at] == "="
                parts.append("")
                at += 1
            else:
                parts[-1] += line[at]
                at += 1
        key, value = (part.encode("utf-16-le", "surrogatepass").decode("utf-16-le") for part in parts)
        found[key] = value
    return found


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
)
def test_any_conf_survives_its_file(values: dict[str, str]) -> None:
    text = properties(values)
    assert text.isascii()
    assert load(text) == values


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"env": {"BIG": "x" * 140_000}}, "'env BIG' has 140004 bytes: a program can be given 131071"),
        ({"env": {"NULL": "a\0b"}}, "'env NULL' holds a zero byte"),
        ({"args": ("fine", "a\0b")}, r"'args\[1\]' holds a zero byte"),
        ({"conf": {"spark.x": "a\0b"}}, "'conf spark.x' holds a zero byte"),
        ({"script": "app\0.py"}, "'script' holds a zero byte"),
        ({"env": {"HALF": "\ud800"}}, "'env HALF' holds half a character"),
        ({"env": {f"V{at}": "x" * 100_000 for at in range(12)}}, "bytes together: a program can be given"),
    ],
)
def test_what_no_program_can_be_given_is_refused_at_once(
    runner: SparkRunner, folder: Path, values: dict[str, Any], reason: str
) -> None:
    spec = job()
    # Not validated: bounds of the model may refuse some of them first.
    env = {"env": values.pop("env")} if "env" in values else {}
    spec = spec.model_copy(update={"work": spec.work.model_copy(update=values), **env})
    with pytest.raises(ValueError, match=reason) as refused:
        runner.check(spec, str(folder))
    assert "\n" not in str(refused.value)


def test_what_was_never_started_is_lost(world: World) -> None:
    assert world.report(world.attempt("")).phase is Phase.LOST
    assert world.runner.reports([]) == ()


# Why drivers fail. The texts are what Spark 4.3 printed, shortened.


IN_SCRIPT = """\
26/11/21 15:38:11 INFO StandaloneAppClient$ClientEndpoint: Executor added: app-1/0
Traceback (most recent call last):
  File "/job/app.py", line 4, in <module>
    main()
  File "/job/app.py", line 2, in main
    raise ValueError("no such column: price")
ValueError: no such column: price
26/11/21 15:38:12 INFO SparkContext: Invoking stop() from shutdown hook
"""
IN_TASK = """\
Traceback (most recent call last):
  File "/job/app.py", line 3, in <module>
    .collect()
  File "/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/protocol.py", line 327, in get_return_value
py4j.protocol.Py4JJavaError: An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed \
4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.2 executor 0): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/job/app.py", line 2, in <lambda>
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
NODE_LOST = """\
26/11/21 15:38:20 ERROR TaskSchedulerImpl: Lost executor 0 on 127.0.0.2: worker lost
Traceback (most recent call last):
  File "/job/app.py", line 3, in <module>
    .collect()
py4j.protocol.Py4JJavaError: An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed \
4 times, most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.2 executor 0): \
ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: \
Remote RPC client disassociated.
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
"""
NO_MASTER = """\
26/11/21 15:38:40 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are \
unresponsive! Giving up.
"""
NO_SCRIPT = "python3: can't open file '/job/app.py': [Errno 2] No such file or directory\n"
NO_CLASS = "Error: Failed to load class org.example.Main.\n26/11/21 15:38:40 INFO ShutdownHookManager: bye\n"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (IN_SCRIPT, "ValueError: no such column: price"),
        (IN_TASK, "ZeroDivisionError: division by zero"),
        (NO_SCRIPT, "python3: can't open file '/job/app.py': [Errno 2] No such file or directory"),
        (NO_CLASS, "Error: Failed to load class org.example.Main."),
        ("26/11/21 15:38:40 INFO ShutdownHookManager: bye\n", ""),
        ("", ""),
    ],
)
def test_the_innermost_cause_is_told_in_one_line(log: str, line: str) -> None:
    assert last_error(log) == line


def test_long_reasons_are_cut() -> None:
    text = last_error("Traceback (most recent call last):\n  File x\nValueError: " + "x" * 1000)
    assert text.startswith("ValueError: xxx")
    assert len(text) == LONGEST


@pytest.mark.parametrize(
    ("log", "if_nodes_stay", "if_nodes_are_lost"),
    [
        *((log, False, False) for log in (IN_SCRIPT, IN_TASK, NO_SCRIPT, NODE_LOST + IN_SCRIPT)),
        (NODE_LOST, False, True),
        ("", False, True),
        (NO_MASTER, True, True),
    ],
)
def test_when_it_is_the_clusters_fault(log: str, if_nodes_stay: bool, if_nodes_are_lost: bool) -> None:
    assert by_cluster(log, nodes_lost=False) is if_nodes_stay
    assert by_cluster(log, nodes_lost=True) is if_nodes_are_lost
