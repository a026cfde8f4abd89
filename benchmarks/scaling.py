"""What a second worker brings where many episodes are played, and what a task costs on top of its work.

Both are counted in CPU seconds, because by the clock a shared machine measures its other users. A suite
lasts as long as its busiest worker and the process that collects: its critical path. The work of all, which
is that of one worker, is of the same rounds: minutes later a shared machine is faster or slower.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Generic

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.measurement import Measurement, at_most, cpu_s, run_alone
from spotweave.agents.named import named_rule
from spotweave.envs.bags_episodes import BagsConfig, build_bags
from spotweave.training.engine import Engine, Given, LocalEngine, RayEngine, Result
from spotweave.training.evaluation.episodes import Suite, SuitePlayer

ROUNDS = 6
MESSAGES = 300
SPEEDUP_BAR, OVERHEAD_BAR_PERCENT = 1.8, 3.0
EPISODES, LANES = 256, 16
ENGINES: dict[str, Callable[[int], Engine]] = {"local": LocalEngine, "ray": partial(RayEngine, None)}


@dataclass(frozen=True)
class Timed(Generic[Given, Result]):
    """A work that also tells its process and its CPU seconds."""

    work: Callable[[Given], Result]

    def __call__(self, task: Given) -> tuple[Result, int, float]:
        """The result, the process and its seconds."""
        started = time.process_time()
        result = self.work(task)
        return result, os.getpid(), time.process_time() - started


class TimedEngine(Engine):
    """Another engine, whose CPU seconds are kept: the sum of each worker, and the longest task."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.worker_s: defaultdict[int, float] = defaultdict(float)
        self.task_s = 0.0

    def map(
        self,
        work: Callable[[Given], Result],
        tasks: Sequence[Given],
        arrived: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """As the other engine's."""
        timed = self.engine.map(Timed(work), tasks, arrived)
        for _, pid, seconds in timed:
            self.worker_s[pid] += seconds
        self.task_s = max(seconds for _, _, seconds in timed)
        return [result for result, _, _ in timed]

    def _submit(self, pickled: bytes, task: bytes) -> Future[bytes]:
        return self.engine._submit(pickled, task)

    def close(self) -> None:
        """The other is closed by who opened it."""


def measure(*, smallest: bool = False) -> Iterator[Measurement]:
    """Suites of bags on two workers of either engine, and what messages cost."""
    for name in ENGINES:
        measured = run_alone("benchmarks.scaling", name, smallest)
        one, two = measured["work_s"], measured["critical_s"]
        note = f"CPU seconds of a suite's work and of its critical path, {one:.2f} and {two:.2f}"
        yield Measurement(f"{name} engine, 2 workers for 1", one / two, "times", SPEEDUP_BAR, note=note)
        note = "CPU of all processes, 64 variants of 1,000 weights there and 64 rows of metrics back"
        yield Measurement(f"{name} engine, a message", measured["message_ms"], "ms", note=note)
        note = "its part in the process that collects"
        yield Measurement(f"{name} engine, sending", measured["sending_ms"], "ms", note=note)
        share = 100 * measured["message_ms"] / 1000 / measured["task_s"]
        note = f"of a task of {measured['task_s']:.2f} CPU seconds"
        yield at_most(f"{name} engine, overhead", share, "%", OVERHEAD_BAR_PERCENT, note=note)


def alone(name: str, smallest: bool) -> dict[str, float]:
    """What is measured of one engine, in a process of its own."""
    with ENGINES[name](2) as engine:
        found = _rounds(engine, smallest)
        found["message_ms"], found["sending_ms"] = _messages(engine, smallest)
    return found


def _rounds(opened: Engine, smallest: bool) -> dict[str, float]:
    """CPU seconds of the mean suite, its critical path and its longest task, after a suite that compiles."""
    engine = TimedEngine(opened)
    player = SuitePlayer([partial(build_bags, BagsConfig(job="J60"))], 2 if smallest else LANES)
    suite = Suite("bags", "train", seed=0, episodes=8 if smallest else EPISODES)
    rule = named_rule("bag_cost")
    rounds = []
    for _ in range(1 + (1 if smallest else ROUNDS)):
        engine.worker_s.clear()
        started = time.process_time()
        player.play(engine, [(0, rule)], suite)
        own_s, workers_s = time.process_time() - started, engine.worker_s.values()
        rounds.append((own_s + sum(workers_s), own_s + max(workers_s), engine.task_s))
    means = np.mean(rounds[1:], axis=0).tolist()
    return dict(zip(("work_s", "critical_s", "task_s"), means, strict=True))


def answer(variants: NDArray[np.float32]) -> list[dict[str, float]]:
    """As much as the task of a suite answers, without its work."""
    return [{str(metric): 0.5 for metric in range(12)} for _ in variants]


def _messages(engine: Engine, smallest: bool) -> tuple[float, float]:
    """CPU milliseconds of a task that comes to nothing: of all processes, and of this one alone."""
    count = 10 if smallest else MESSAGES
    variants = np.zeros((64, 1000), np.float32)
    engine.map(answer, [variants] * 10)
    this = psutil.Process()
    processes = (this, *this.children(recursive=True))
    all_s, own_s = cpu_s(*processes), time.process_time()
    engine.map(answer, [variants] * count)
    return 1000 * (cpu_s(*processes) - all_s) / count, 1000 * (time.process_time() - own_s) / count
