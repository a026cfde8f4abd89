"""Job files of people who mean harm, or whose script wrote them; and what jobs put in the place of files."""

from __future__ import annotations

import json
import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BATCH: Mapping[str, Any] = {"kind": "spark-batch", "script": "x.py"}
STREAM: Mapping[str, Any] = {**BATCH, "kind": "spark-streaming", "period_s": 60, "batch_deadline_s": 60}
TRAINING: Mapping[str, Any] = {"kind": "flower", "app": "app", "rounds": 3, "clients": [{"name": "a"}]}
VAST = 10**400
LONG = "x" * 140_000


def _job(work: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    return {"name": "job", "work": dict(work), **parts}


def _clients(*clients: Mapping[str, Any]) -> dict[str, Any]:
    return _job({**TRAINING, "clients": list(clients)})


EXTREME: Mapping[str, Mapping[str, Any]] = {
    "a standard time beyond 32 bits": _job({**BATCH, "standard_s": 1e39}),
    "a standard time near the largest float": _job({**BATCH, "standard_s": 1e308}),
    "the smallest standard time": _job({**BATCH, "standard_s": 5e-324}),
    "a deadline after the end of the universe": _job({**BATCH, "deadline_s": 1e300}),
    "a deadline of no time": _job({**BATCH, "deadline_s": 1e-300}),
    "a negative deadline": _job({**BATCH, "deadline_s": -1.0}),
    "an argument with a zero byte": _job({**BATCH, "args": ["a\0b"]}),
    "an argument beyond what a process takes": _job({**BATCH, "args": [LONG]}),
    "more arguments than a process takes": _job({**BATCH, "args": ["x" * 4000] * 200}),
    "a setting with a zero byte": _job({**BATCH, "conf": {"spark.x": "\0"}}),
    "a setting beyond what a process takes": _job({**BATCH, "conf": {"spark.x": LONG}}),
    "a thousand settings": _job({**BATCH, "conf": {f"spark.{k}": "" for k in range(1000)}}),
    "a script with a zero byte": _job({**BATCH, "script": "x\0.py"}),
    "more batches than a counter holds": _job({**STREAM, "batches": VAST}),
    "batches beyond 64 bits": _job({**STREAM, "batches": 2**63}),
    "the smallest period": _job({**STREAM, "period_s": 5e-324}),
    "an endless period": _job({**STREAM, "period_s": 1e308}),
    "the smallest batch deadline": _job({**STREAM, "batch_deadline_s": 5e-324}),
    "more rounds than a counter holds": _job({**TRAINING, "rounds": VAST}),
    "rounds beyond 64 bits": _job({**TRAINING, "rounds": 10**30}),
    "an endless epoch": _job({**TRAINING, "epoch_s": 1e308}),
    "a client's budget near the largest float": _clients({"name": "a", "budget_usd": 1e308}),
    "a client's configuration with a zero byte": _clients({"name": "a", "config": {"x": "\0"}}),
    "configurations of many megabytes": _clients(
        *({"name": f"c{k}", "config": {"x": "y" * 60_000}} for k in range(100))
    ),
    "a run's configuration beyond what a process takes": _job({**TRAINING, "run_config": {"x": LONG}}),
    "the smallest checkpoint interval": _job(BATCH, profile={"checkpoint_interval_s": 5e-324}),
    "an endless checkpoint": _job(BATCH, profile={"checkpoint_s": 1e308}),
    "a checkpoint larger than any disk": _job(BATCH, profile={"checkpoint_gb": 1e308}),
    "data larger than any disk": _job(BATCH, profile={"data_gb": 1e308}),
    "the smallest reference speed": _job(BATCH, profile={"reference_speed": 5e-324}),
    "an endless reference speed": _job(BATCH, profile={"reference_speed": 1e308}),
    "the smallest sensitivity": _job(BATCH, profile={"sensitivity": 5e-324}),
    "a region with a zero byte": _job(BATCH, profile={"data_region": "us\0"}),
    "a budget near the largest float": _job(BATCH, budget_usd=1e308),
    "the smallest budget": _job(BATCH, budget_usd=5e-324),
    "a budget that is no number": _job(BATCH, budget_usd="nan"),
    "no memory to speak of": _job(BATCH, resources={"memory_gib": 5e-324}),
    "a million instances": _job(BATCH, resources={"instances": 10**6}),
    "more cores than a counter holds": _job(BATCH, resources={"vcpus": VAST}),
    "a GPU with a name of a megabyte": _job(BATCH, resources={"gpu": "x" * 10**6}),
    "a thousand regions": _job(BATCH, places={"regions": [f"r{k}" for k in range(1000)]}),
    "a variable with a zero byte": _job(BATCH, env={"A": "\0"}),
    "a variable beyond what a process takes": _job(BATCH, env={"A": LONG}),
    "a variable of another process": _job(BATCH, env={"A B": "x"}),
    "a thousand variables": _job(BATCH, env={f"A{k}": "" for k in range(1000)}),
    "failures without end": _job(BATCH, max_user_failures=VAST),
    "a name that leads elsewhere": {**_job(BATCH), "name": "../../etc"},
}


Trick = Callable[[Path, Path], object]
"""Puts something in the place of a file; the second path is a secret, to which it may lead."""

TRICKS: Mapping[str, Trick] = {
    "a link": lambda place, secret: place.symlink_to(secret),
    "a second name of a file": lambda place, secret: place.hardlink_to(secret),
    "a link to a folder": lambda place, secret: place.symlink_to(secret.parent),
    "a link to nothing": lambda place, secret: place.symlink_to(place.parent / "nothing"),
    "a link in a circle": lambda place, secret: place.symlink_to(place.name),
    "a link to a device": lambda place, secret: place.symlink_to("/dev/zero"),
    "a link to a process": lambda place, secret: place.symlink_to("/proc/self/environ"),
    "a pipe": lambda place, secret: os.mkfifo(place),
    "a socket": lambda place, secret: os.mknod(place, stat.S_IFSOCK),
    "a folder": lambda place, secret: place.mkdir(),
}


def terabyte(place: Path, secret: Path) -> None:
    """Of nothing, which takes no disk."""
    place.touch()
    os.truncate(place, 1 << 40)


def dig(folder: Path, depth: int) -> None:
    """Folders in each other: deeper than a path may be long, and than Python may recurse."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inside = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = inside
    os.close(here)


def text_of(job: Mapping[str, Any]) -> str:
    """As it comes over the network."""
    return json.dumps(job)


@contextmanager
def memory() -> Iterator[list[int]]:
    """The largest number of bytes that were taken within, once it is over."""
    found: list[int] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
