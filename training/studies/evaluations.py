"""Episodes that were played are kept, so that no experiment plays them twice and a killed command goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spotweave.envs.simulation.series import Floats
from spotweave.envs.simulation.world import BatchWorld, EpisodeKey
from spotweave.training.evaluation.episodes import EpisodeResult, Progress, Suite, suite_hash
from spotweave.training.files import prepare_directory, write_json

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "envs",
    "agents",
    "training/checkpoint.py",
    "training/evaluation/clairvoyant.py",
    "training/evaluation/episodes.py",
    "training/federated/multi_fedls_tables.py",
    "training/studies/federated/cheapest.py",
    "training/studies/federated/playing.py",
)
"""What a played episode depends on besides its scenario, its policy and its number."""
SUFFIXES = (".py", ".json", ".parquet")


def code_hash(sources: Sequence[str] = SOURCES, root: Path = ROOT) -> str:
    """SHA-256 of every source and data file that decides how an episode, or a training, goes."""
    digest = hashlib.sha256()
    for name in sources:
        path = root / name
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
        if not files:
            raise FileNotFoundError(f"{path} does not exist: the list of sources is not up to date")
        for file in files:
            digest.update(f"{file.relative_to(root)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


class Keeper:
    """Results by (version of the code, what they depend on)."""

    def __init__(self, directory: Path, code: str | None = None) -> None:
        self.directory = prepare_directory(directory)
        self.code = code_hash() if code is None else code

    def keep(self, identity: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` gives, made now or before; `identity` is everything else that it depends on."""
        key = hashlib.sha256(json.dumps({"code": self.code, **identity}, sort_keys=True).encode()).hexdigest()
        file = self.directory / f"{key}.json"
        if file.is_file():
            held: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["result"]
            return held
        result = make()
        write_json(file, {"identity": dict(identity), "result": result})
        return result


@dataclass(frozen=True)
class Played:
    """One policy's episodes on a suite."""

    metrics: Mapping[str, Sequence[float]]  # by name, one value per episode in the suite's order
    decisions: Sequence[int]  # per episode

    def values(self, metric: str) -> Floats:
        """(episodes,) one metric."""
        return np.array(self.metrics[metric], np.float64)


class EvaluationCache(Keeper):
    """Played episodes by (policy, suite with everything random in it, version of the code)."""

    def play(
        self,
        world: BatchWorld,
        world_facts: Mapping[str, object],
        suite: Suite,
        identity: str,
        play: Callable[[], list[EpisodeResult]],
    ) -> Played:
        """A policy's episodes: from the cache, or those that `play` gives, which are kept.

        The policy's identity is a rule's name or the hash of a checkpoint.
        """
        key = {
            "world": world_facts,
            # The hash holds the episodes themselves; the configuration above also has what is not random.
            "suite": suite_hash(world, suite),
            "policy": identity,
        }
        return Played(**self.keep(key, lambda: _columns(world.spec.metrics, play())))

    def keep_each(
        self,
        world: BatchWorld,
        world_facts: Mapping[str, object],
        suite: Suite,
        identity: str,
        play: Callable[[EpisodeKey], EpisodeResult],
        progress: Progress | None = None,
    ) -> Played:
        """As `play`, but each episode is kept by itself: what takes long goes on after it was killed."""
        names = world.spec.metrics

        def keep(key: EpisodeKey) -> dict[str, Any]:
            facts = {"world": world_facts, "episode": world.fingerprint(key), "policy": identity}
            return self.keep(facts, lambda: _columns(names, [play(key)]))

        kept = []
        if progress is not None:
            progress(0, suite.episodes)
        for key in suite.episode_keys():
            kept.append(keep(key))
            if progress is not None:
                progress(len(kept), suite.episodes)
        metrics = {name: [one["metrics"][name][0] for one in kept] for name in names}
        return Played(metrics, [one["decisions"][0] for one in kept])


def _columns(names: Sequence[str], results: Sequence[EpisodeResult]) -> dict[str, Any]:
    return {
        "metrics": {name: [result.metrics[name] for result in results] for name in names},
        "decisions": [result.decisions for result in results],
    }
