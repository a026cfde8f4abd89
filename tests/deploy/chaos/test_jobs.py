"""Real jobs of every kind to their end, through faults of everything that they run on."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from spotweave.deploy.fl import checkpoints
from spotweave.deploy.fl.checkpoints import Status
from spotweave.deploy.jobfile import read_files, read_job
from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.node import procfs
from tests.deploy.chaos.deployment import QUICK, Deployment, serving
from tests.deploy.chaos.faults import Fault, check_over, plan, strike_all
from tests.deploy.node.agents import ROOT

CLUSTERS = ("north", "south", "center")
END_S = 540.0
EXECUTOR = {"instance_type": "executor", "market": "on_demand", "vcpus": 1, "memory_gib": 1.5, "quota": 2}
PAID = {"price_usd_hour": 0.03, "billing_minimum_s": 1, "launch_s": 0.5}
OFFERS = [{**EXECUTOR, **PAID, "region": cluster} for cluster in CLUSTERS]
CONF = {**QUICK, "spark.default.parallelism": "2"}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Deployment]:
    data = tmp_path / "data"
    make = ROOT / "examples" / "workflows" / "make_data.py"
    subprocess.run([sys.executable, str(make), str(data)], check=True)
    (tmp_path / "served").mkdir()
    with serving(tmp_path / "served", OFFERS, {name: data / name for name in CLUSTERS}) as made:
        yield made


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with serving(tmp_path) as made:
        yield made


def planned(counts: Mapping[str, int]) -> list[Fault]:
    """So many faults of each kind; others by SPOTWEAVE_CHAOS_SEED, several times as many by _TIMES."""
    seed = int(os.environ.get("SPOTWEAVE_CHAOS_SEED", "7"))
    times = int(os.environ.get("SPOTWEAVE_CHAOS_TIMES", "1"))
    print(f"seed {seed}")
    return plan(seed, {kind: times * count for kind, count in counts.items()})


def submit(clusters: Deployment, example: str, folder: Path, gates: Mapping[str, Path]) -> str:
    """An example, its scripts copied to `folder`, with steps that start sooner on a busy machine.

    `gates` are by script: the file for which its steps wait once they run.
    """
    file = ROOT / "examples" / f"{example}.yaml"
    job = read_job(file)
    spec = job.model_dump(mode="json")
    for step in spec["work"]["steps"]:
        step["conf"] = CONF
    shutil.copytree(ROOT / "examples" / "workflows", folder / "workflows")
    for script, gate in gates.items():
        copy = folder / "workflows" / script
        session = "    session = SparkSession.builder.getOrCreate()\n"
        before, found, after = copy.read_text().partition(session)
        assert found
        waits = f"    while not __import__('pathlib').Path({str(gate)!r}).exists():\n"
        copy.write_text(f"{before}{found}{waits}        __import__('time').sleep(0.2)\n{after}")
    return clusters.submit(spec, folder, list(read_files(job, folder)))


def ran_in(clusters: Deployment, job_id: str) -> dict[str, set[str]]:
    """By step: where it was ever put."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in clusters.store.instances.of_job(job_id):
        found[one.key.task].add(one.offer.region)
    return found


def lines(clusters: Deployment, job_id: str, cluster: str, name: str) -> list[str]:
    folder = Path(clusters.jobs()[job_id].workdir) / "workspace" / f"at-{cluster}" / "files" / name
    return [line for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def texts(folder: Path) -> str:
    return " ".join(path.read_text() for path in sorted(folder.glob("*/texts/*.txt")))


def running(clusters: Deployment, job_id: str, *steps: str) -> bool:
    tasks = clusters.store.tasks.named([TaskKey(job_id, step) for step in steps])
    return all(task.phase == "running" for task in tasks.values())


@pytest.mark.real
@pytest.mark.nightly
def test_words_are_counted_on_three_clusters_at_once(clusters: Deployment, tmp_path: Path) -> None:
    gates = {"count_words.py": tmp_path / "counts", "add_counts.py": tmp_path / "sum"}
    job_id = submit(clusters, "wordcount_three_clusters", tmp_path / "example", gates)
    counts = [f"count-{name}" for name in CLUSTERS]
    clusters.wait_for(lambda: running(clusters, job_id, *counts), "all steps that count", END_S)
    clusters.kill()
    # A cluster loses its only executor; the others go on.
    victim = next(one for one in clusters.store.instances.of_job(job_id) if one.key.task == "count-south")
    if victim.ended_s is None and victim.provider_id is not None:
        clusters.provider.interrupt(victim.provider_id, None)
    gates["count_words.py"].touch()
    clusters.wait_for(lambda: running(clusters, job_id, "add"), "the final step", END_S)
    # And the one of all other Spark jobs.
    assert len(clusters.processes("deploy.master.Master")) == len(CLUSTERS) + 1
    gates["add_counts.py"].touch()
    check_over(clusters, [job_id], END_S)

    first = {one.key.task: one for one in reversed(clusters.store.instances.of_job(job_id))}
    ends = [first[step].ended_s for step in counts]
    assert max(first[step].ready_s or math.inf for step in counts) < min(end or 0.0 for end in ends)
    where = ran_in(clusters, job_id)
    assert where == {**{f"count-{name}": {name} for name in CLUSTERS}, "add": {"center"}}
    # As one cluster with all the texts would have it.
    expected = Counter(re.findall("[a-z]+", texts(tmp_path / "data").lower()))
    found = [line.split(",") for line in lines(clusters, job_id, "center", "totals")]
    assert {word: int(number) for word, number in found} == expected
    assert [word for word, _ in found] == sorted(expected, key=lambda word: (-expected[word], word))


@pytest.mark.real
@pytest.mark.nightly
def test_private_positions_stay_and_their_centers_are_found(clusters: Deployment, tmp_path: Path) -> None:
    gates = {"accumulate.py": tmp_path / "accumulated", "join.py": tmp_path / "joined"}
    job_id = submit(clusters, "gis", tmp_path / "example", gates)
    private_runs = partial(running, clusters, job_id, "accumulate-private")
    clusters.wait_for(private_runs, "the step on private data", END_S)
    # Its worker dies, and the scheduler: the positions stay where they are all the same.
    for worker in clusters.processes(f"attempt-{job_id}-accumulate-private"):
        procfs.send(worker.pid, worker.start_ticks, signal.SIGKILL)
    clusters.kill()
    gates["accumulate.py"].touch()
    clusters.wait_for(lambda: running(clusters, job_id, "join"), "the final step", END_S)
    clusters.kill()
    gates["join.py"].touch()
    check_over(clusters, [job_id], END_S)

    where = ran_in(clusters, job_id)
    assert where["accumulate-private"] == where["mean"] == {"north"}
    assert where["median"] == where["join"] == {"center"}
    private = (tmp_path / "data" / "north" / "positions.csv").read_text().splitlines()
    folder = Path(clusters.jobs()[job_id].workdir)
    kept = [path for path in folder.rglob("*") if path.is_file() and "at-north" not in path.parts]
    assert kept
    assert not [path for path in kept if private[0].encode() in path.read_bytes()]
    positions = (tmp_path / "data" / "center" / "positions.csv").read_text().splitlines()
    _check_centers(lines(clusters, job_id, "center", "centers"), positions)


def _check_centers(centers: list[str], positions: list[str]) -> None:
    """Against all positions at once: Eq. 3.5, and Eq. 3.6 by another solver."""
    points = defaultdict(list)
    for line in positions:
        user, lon, lat = line.split(",")
        points[user].append((float(lon), float(lat)))
    assert len(centers) == len(points)
    for line in centers:
        user, *found = line.split(",")
        here = np.array(points[user])
        mean, median = np.reshape([float(one) for one in found], (2, 2))
        assert mean == pytest.approx(here.mean(axis=0), abs=1e-6)

        def together(place: NDArray[np.float64], here: NDArray[np.float64] = here) -> float:
            return float(np.hypot(*(here - place).T).sum())

        best = minimize(together, here.mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-7}).fun
        assert together(median) <= best + 1e-4


# A real bag to its end on the local provider, through interruptions and a killed scheduler.


JOBS = Path(__file__).parent / "jobs"
STEPS = 4
TASKS = ("a", "b", "c")
BAG_END_S = 240.0


def bag_spec(ledger: Path, gate: Path) -> dict[str, Any]:
    words = [str(STEPS), str(ledger), str(gate)]
    tasks = [{"name": one, "command": ["python", "steps.py", one, *words], "minutes": 0.2} for one in TASKS]
    checkpoint = ["sh", "-c", 'cp steps "$SPOTWEAVE_CHECKPOINT_DIR"/']
    work = {"kind": "bag", "tasks": tasks, "deadline_s": 3600.0, "checkpoint": checkpoint}
    return {"name": "bag", "work": work, "resources": {"memory_gib": 1.0}, "places": {"markets": ["spot"]}}


@pytest.mark.real
def test_bag(deployment: Deployment, tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger.txt", tmp_path / "gate"
    job_id = deployment.submit(bag_spec(ledger, gate), JOBS, ["steps.py"])

    def lines() -> list[str]:
        return ledger.read_text().splitlines() if ledger.exists() else []

    def saved() -> set[str]:
        return {task.key.task for task in deployment.store.tasks.of_job(job_id) if task.saved > 0}

    # Each does two steps and then waits for the gate.
    deployment.wait_for(lambda: len(lines()) == 2 * len(TASKS), "two steps of each", BAG_END_S)
    (victim,) = (one for one in deployment.store.instances.of_job(job_id) if one.key.task == "b")
    assert victim.provider_id is not None
    deployment.provider.interrupt(victim.provider_id, 8.0)
    deployment.wait_for(lambda: saved() == {"b"}, "the checkpoint that the notice asks for", BAG_END_S)
    deployment.kill()

    def again() -> bool:
        task = next(one for one in deployment.store.tasks.of_job(job_id) if one.key.task == "b")
        return task.attempt >= 2 and task.phase == "running"

    deployment.wait_for(again, "the second attempt", BAG_END_S)
    gate.touch()
    check_over(deployment, [job_id], BAG_END_S)
    # Every step of every task was done exactly once: the second attempt went on with the third.
    assert sorted(lines()) == sorted(f"{name} {step}" for name in TASKS for step in range(STEPS))
    workdir = Path(deployment.jobs()[job_id].workdir)
    assert (workdir / "logs" / "a-1.log").read_text() == f"a begins with 0\na has done {STEPS}\n"
    logs = sorted(path.name for path in (workdir / "logs").glob("b-*.log"))
    assert (workdir / "logs" / logs[-1]).read_text() == f"b begins with 2\nb has done {STEPS}\n"
    assert not list((deployment.state / "bag" / "checkpoints").rglob("*.tar"))


# A real federated training to its end, through faults of everything that it runs on.


FLOWER_FAULTS = {
    "scheduler": 3,
    "writer": 3,
    "instance": 2,
    "notice": 2,
    "agent": 1,
    "superlink": 3,
    "supernode": 1,
}
ROUNDS = 4
LEARNED_S = 600.0


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


@pytest.mark.real
@pytest.mark.nightly
def test_flower(deployment: Deployment, tmp_path: Path) -> None:
    faults = planned(FLOWER_FAULTS)
    ledger, gate = tmp_path / "done.txt", tmp_path / "gate"
    make_app(tmp_path)
    names = [str(path.relative_to(tmp_path)) for path in (tmp_path / "digits").rglob("*") if path.is_file()]
    job_id = deployment.submit(spec(ledger, gate), tmp_path, names)
    for _ in strike_all(deployment, faults):
        pass
    gate.touch()
    check_over(deployment, [job_id], LEARNED_S)
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


# Real Spark jobs to their end, through faults of everything that they run on.


SPARK_FAULTS = {"scheduler": 3, "writer": 3, "instance": 2, "notice": 3, "agent": 1, "worker": 2, "master": 1}
SPARK_CONF = {**QUICK, "spark.sql.shuffle.partitions": "1"}
SPARK_TASKS = 24
BATCHES = 30


def batch_spec(name: str, ledger: Path, *args: str, instances: int = 1) -> dict[str, Any]:
    work = {
        "kind": "spark-batch",
        "script": "batch.py",
        "args": [str(SPARK_TASKS), "0.4", *args],
        "conf": SPARK_CONF,
    }
    return {"name": name, "work": work, "resources": {"instances": instances}, "env": {"LEDGER": str(ledger)}}


def stream_spec(ledger: Path) -> dict[str, Any]:
    work = {"kind": "spark-streaming", "script": "stream.py", "conf": SPARK_CONF, "batches": BATCHES}
    work |= {"period_s": 1.0, "batch_deadline_s": 1.0}
    return {"name": "stream", "work": work, "env": {"LEDGER": str(ledger)}}


@pytest.mark.real
@pytest.mark.nightly
def test_spark(deployment: Deployment, tmp_path: Path) -> None:
    faults = planned(SPARK_FAULTS)
    ledger, rows, gate = tmp_path / "batches.txt", tmp_path / "rows.jsonl", tmp_path / "gate"
    later = {
        0: batch_spec("first", ledger),
        1: batch_spec("wide", ledger, instances=2),
        # One lasts until all faults are over, so that there is always something to hit.
        4: batch_spec("last", ledger, str(gate)),
        8: batch_spec("second", ledger),
    }
    submitted = [deployment.submit(stream_spec(rows), JOBS, ["stream.py"])]
    for number in strike_all(deployment, faults):
        if number in later:
            submitted.append(deployment.submit(later[number], JOBS, ["batch.py"]))
    gate.touch()
    check_over(deployment, submitted, LEARNED_S)
    check_batches(deployment, ledger)
    check_stream(rows)


def check_batches(deployment: Deployment, ledger: Path) -> None:
    """Every batch job is done, with the right result, and begun again only where an attempt was taken off.

    An attempt may be taken off after it said "done": it is not over before its process is.
    """
    jobs = {job_id: job for job_id, job in deployment.jobs().items() if job.spec.name != "stream"}
    taken_off = {
        (event.job_id, event.data["attempt"])
        for event in deployment.store.events.after(0, 1_000_000)
        if event.kind == "task.requeued"
    }
    begun, done = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for job_id, attempt, what in map(str.split, ledger.read_text().splitlines()):
        {"begun": begun, "done": done}[what][job_id].append(int(attempt))
    sums = [(k, sum(range(k, SPARK_TASKS, 3))) for k in range(3)]
    for job_id, job in jobs.items():
        *earlier, last = begun[job_id]
        assert [*earlier, last] == sorted({*earlier, last})
        assert {(job_id, attempt) for attempt in earlier} <= taken_off
        assert done[job_id] == sorted({*done[job_id]})
        assert last == done[job_id][-1]
        assert (Path(job.workdir) / "sums").read_text() == repr(sums)


def check_stream(rows: Path) -> None:
    """Every row came; a batch that was repeated was the same batch."""
    kept: dict[int, list[int]] = {}
    for line in rows.read_text().splitlines():
        entry = json.loads(line)
        assert kept.setdefault(entry["batch"], entry["values"]) == entry["values"]
    assert sorted(kept) == list(range(len(kept)))
    assert len(kept) >= BATCHES
    values = [value for batch in sorted(kept) for value in kept[batch]]
    assert values == list(range(len(values)))
