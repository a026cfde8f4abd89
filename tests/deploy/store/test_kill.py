"""A writing process that is killed leaves whole transactions, all that it was told are there, and no lock."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from deploy.store.store import Store
from tests.deploy.store.cases import add_job
from tests.deploy.store.conftest import Place

ROOT = Path(__file__).resolve().parents[3]


def start(place: Place, when: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.deploy.store.writer", place.url, str(place.key_file), str(when)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def whole(store: Store) -> int:
    """How many of the writer's transactions are there; each must be there whole."""
    with store.snapshot():
        jobs = [job.job_id[1:] for job in store.jobs.live()]
        assert [task.key.job_id[1:] for task in store.tasks.waiting()] == jobs
        assert [one.instance_id[1:] for one in store.instances.live()] == jobs
        assert sorted(intent.target[1:] for intent in store.intents.pending()) == sorted(jobs)
        events = [event.instance_id or "" for event in store.events.after(0, 100_000)]
        assert sorted(name[1:] for name in events) == sorted(jobs)
    return len(jobs)


def killed(writer: subprocess.Popen[str]) -> int:
    """Wait for its end. Returns how many transactions it was told are committed."""
    assert writer.stdout is not None
    with writer:
        try:
            told = writer.stdout.read().split()
        finally:
            writer.kill()
    assert writer.returncode == -9
    return len(told)


@pytest.mark.real
@pytest.mark.parametrize("offset", [2, 5, 8, 11, 14])
def test_a_kill_between_statements_leaves_whole_transactions(place: Place, offset: int) -> None:
    """The 30th statement or so is in the third transaction; offsets go from its begin to its commit."""
    told = killed(start(place, 30 + offset))
    assert told > 0
    with place.open() as store:
        there = whole(store)
        assert there in (told, told + 1), "a commit may have ended before it could be told"
        lead = store.lead()
        add_job(store, "after")
        lead.release()


@pytest.mark.real
def test_a_kill_at_any_moment_and_again(place: Place) -> None:
    """Three writers after each other, each killed while it writes; nothing that was told is ever lost."""
    told = 0
    for patience in (3, 7, 12):
        writer = start(place, 0)
        assert writer.stdout is not None
        lines: list[str] = []

        def read(writer: subprocess.Popen[str] = writer, lines: list[str] = lines) -> None:
            assert writer.stdout is not None
            lines.extend(writer.stdout)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            while len(lines) < patience and writer.poll() is None:
                time.sleep(0.001)
        finally:
            writer.kill()
            writer.wait()
            reader.join()
            writer.stdout.close()
        assert writer.returncode == -9
        told += len(lines)
        with place.open() as store:
            there = whole(store)
        assert told <= there <= told + 1
        told = there
