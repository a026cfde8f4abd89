"""Episodes that were played are kept, so that no experiment plays them twice and a killed command goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from envs.simulation.world import BatchWorld
from training.evaluation.episodes import EpisodeResult, Progress, run_suite
from training.evaluation.suite import Suite, suite_hash
from training.files import prepare_directory, write_json

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "envs/simulation",
    "agents",
    "training/evaluation/episodes.py",
    "training/checkpoint.py",
    "training/evaluation/clairvoyant.py",
    "training/adapters/flat_policy.py",
)
"""What a played episode depends on besides the world's configuration and the policy's weights."""


@dataclass(frozen=True)
class Played:
    """One policy's episodes on a suite.

    Attributes:
        metrics: by name, one value per episode in the suite's order.
        decisions: per episode.
    """

    metrics: Mapping[str, Sequence[float]]
    decisions: Sequence[int]

    def values(self, metric: str) -> NDArray[np.float64]:
        """(episodes,) one metric."""
        return np.array(self.metrics[metric], np.float64)


def code_hash(root: Path = ROOT) -> str:
    """A hash of every source that decides how an episode goes."""
    digest = hashlib.sha256()
    for name in SOURCES:
        path = root / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


class EvaluationCache:
    """Played episodes by (policy, suite with everything random in it, version of the code).

    Args:
        directory: where they are kept; it may be deleted at any time.
        code: the version; `code_hash()` if left out.
    """

    def __init__(self, directory: Path, code: str | None = None) -> None:
        self.directory = prepare_directory(directory)
        self.code = code_hash() if code is None else code

    def play(
        self,
        world: BatchWorld,
        world_facts: Mapping[str, object],
        suite: Suite,
        identity: str,
        make_policy: Callable[[], Policy],
        progress: Progress | None = None,
    ) -> Played:
        """The policy's episodes: from the cache, or played now and kept.

        Args:
            world: where to play; results do not depend on its lanes.
            world_facts: its resolved configuration.
            suite: the episodes.
            identity: what the policy is: a rule's name, or the hash of a checkpoint.
            make_policy: called only if there is something to play.
            progress: called after each episode.
        """
        return self.keep(
            world, world_facts, suite, identity, lambda: run_suite(world, make_policy(), suite, progress)
        )

    def keep(
        self,
        world: BatchWorld,
        world_facts: Mapping[str, object],
        suite: Suite,
        identity: str,
        play: Callable[[], Sequence[EpisodeResult]],
    ) -> Played:
        """What `play` gives, from the cache if it was played before.

        Args:
            world: where it plays; only its facts and episodes count here.
            world_facts: its resolved configuration.
            suite: the episodes.
            identity: everything else that the results depend on.
            play: gives the suite's episodes in order.
        """
        key = self._key(world, world_facts, suite, identity)
        file = self.directory / f"{key}.json"
        if file.is_file():
            held = json.loads(file.read_text(encoding="utf-8"))
            return Played(held["metrics"], held["decisions"])
        results = play()
        metrics = {name: [result.metrics[name] for result in results] for name in world.spec.metrics}
        decisions = [result.decisions for result in results]
        write_json(
            file, {"policy": identity, "suite": suite.name, "metrics": metrics, "decisions": decisions}
        )
        return Played(metrics, decisions)

    def _key(self, world: BatchWorld, facts: Mapping[str, object], suite: Suite, identity: str) -> str:
        parts = {
            "code": self.code,
            "world": facts,
            # The hash holds the episodes themselves; the configuration above also has what is not random.
            "suite": suite_hash(world, suite),
            "policy": identity,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
