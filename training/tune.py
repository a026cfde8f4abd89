"""Search settings for agents on validation episodes, then train the best of each with several seeds.

python training/tune.py +experiment=comparators/multicluster [only=[NAME,...]] [workers=2] [out=DIR]

Every agent gets as many candidates of the same budget, its defaults among them. A finished run is left as it
is and an interrupted one is resumed, so the same command goes on. engine=ray ray.address=auto trains on a Ray
cluster, as training/repeat.py does.
"""

from __future__ import annotations

from omegaconf import DictConfig

from training.config import UsageError, resolved, run_command, typed
from training.repeat import run_planned
from training.studies.search import TuneSettings, runs_of_best, searched, validated


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    values = resolved(config)
    if not values["searches"]:
        raise UsageError("nothing to search: give +experiment=comparators/multicluster, or multicloud")
    settings = typed(TuneSettings, values, "")
    found = searched(settings)
    tried = [candidate.run for candidates in found.values() for candidate in candidates]
    code = run_planned(tried, settings)
    if code:
        return code
    runs = []
    for name, candidates in found.items():
        scores = [validated(candidate.run) for candidate in candidates]
        best = candidates[scores.index(max(scores))]
        print(f"{name}: {' '.join(best.words) or 'the defaults'} ({max(scores):.6g} on validation)")
        runs += runs_of_best(settings, name, best)
    return run_planned(runs, settings)


if __name__ == "__main__":
    run_command("tune", main)
