"""Put measured experiments on the page of their study.

python training/publish.py study=liu2022 [check=true]

Copies summaries, episodes and pictures from results/STUDY to docs/results/STUDY and regenerates the
tables of docs/results/STUDY.md. With check=true nothing is changed, and exit code 1 says that page and
summaries differ.
"""

from __future__ import annotations

from omegaconf import DictConfig

from spotweave.mistakes import EXIT_FAILED
from spotweave.training.config import run_command


def main(config: DictConfig) -> int:
    """The command's body; returns the exit code."""
    from spotweave.training.studies.command import DOCS, RESULTS
    from spotweave.training.studies.page import differing, publish

    page = DOCS / f"{config.study}.md"
    if config.check:
        wrong = differing(page)
        for name in wrong:
            print(f"{page}: <!-- {name} --> does not hold what its summary says: run training/publish.py")
        return EXIT_FAILED if wrong else 0
    found = publish(page, RESULTS / str(config.study))
    print(f"{page}: {', '.join(found) or 'nothing new was measured'}")
    return 0


if __name__ == "__main__":
    run_command("publish", main)
