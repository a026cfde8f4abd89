"""Search settings for agents on validation episodes, then train the best of each with several seeds.

python training/tune.py experiment=comparators/multicluster [only=[NAME,...]] [workers=2] [out=DIR]

Every agent gets as many candidates of the same budget, its defaults among them. A finished run is left as it
is and an interrupted one is resumed, so the same command goes on. engine=ray ray.address=auto trains on a Ray
cluster, as training/repeat.py does.
"""

from __future__ import annotations

from omegaconf import DictConfig

from spotweave.training.config import UsageError, resolved, run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    values = resolved(config)
    if not values["searches"]:
        raise UsageError("nothing to search: give experiment=comparators/multicluster, or multicloud")
    from spotweave.training.studies.command import tune

    return tune(values)


if __name__ == "__main__":
    run_command("tune", main)
