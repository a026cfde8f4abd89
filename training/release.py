"""Release the policy of a finished run.

python training/release.py run=runs/liu2022/rl_lsfc/seed3 name=liu2022/rl_lsfc table="..."

Copies policy.pt to checkpoints/NAME with a card that says how it was made; table= is what the card says was
measured. From then on checkpoint=NAME finds it everywhere. Of policies of several environments,
policies=[A,B,C], one file is made that serves them all.
"""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from spotweave.training.config import UsageError, run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    source = "run" if config.policies is None else "policies"
    for key in (source, "name", "table"):
        if config[key] is None:
            raise UsageError(
                f"{key}= is missing: python training/release.py run=DIR name=NAME table='what was measured'"
            )
    from spotweave.training.releases import join, release

    if source == "policies":
        given = [config.policies] if isinstance(config.policies, str) else list(config.policies)
        folder = join([str(one) for one in given], str(config.name), str(config.table))
    else:
        folder = release(Path(str(config.run)), str(config.name), str(config.table))
    print(f"released: {folder}")
    return 0


if __name__ == "__main__":
    run_command("release", main)
