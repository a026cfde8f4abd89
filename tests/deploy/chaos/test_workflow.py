"""The example workflows on three real Spark clusters, through lost workers and killed schedulers."""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from deploy.jobfile import read_files, read_job
from deploy.model.jobs import TaskKey
from deploy.node import procfs
from tests.deploy.chaos.checks import check_over
from tests.deploy.chaos.deployment import QUICK, START_S, Deployment
from tests.deploy.node.agents import ROOT

pytestmark = [pytest.mark.real, pytest.mark.nightly]

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
    made = Deployment(tmp_path / "served", OFFERS, {name: data / name for name in CLUSTERS})
    try:
        made.wait_for(made.ready, "the service", START_S)
        yield made
    finally:
        made.destroy()


def submit(clusters: Deployment, example: str, folder: Path, gates: Mapping[str, Path]) -> str:
    """An example, with steps that start sooner on a busy machine.

    Args:
        folder: for a copy of the example's scripts.
        gates: by script: the file for which its steps wait once they run.
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
