"""Regenerate the tables and pictures of federated work: docs/results/fedcostaware.md and multi-fedls.md.

python training/results_fl.py [only=[SECTION,...]] [checkpoint=NAME] [episodes=N] [out=DIR] [check=true]

What is stored for the same code and settings is not measured again, and every policy's episodes are kept in
results/federated, so that a command that was stopped goes on where it was. With check=true nothing is
changed, and exit code 1 says that a page does not hold what is stored next to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from omegaconf import DictConfig
from pydantic import Field

from spotweave.mistakes import EXIT_FAILED
from spotweave.training.config import UsageError, provenance, resolved, run_command, typed
from spotweave.training.files import prepare_directory, write_bytes, write_csv, write_json, write_text
from spotweave.training.progress import play_progress
from spotweave.training.studies.evaluations import Keeper
from spotweave.training.studies.federated import brum, sinha
from spotweave.training.studies.federated.markdown import (
    COSTS,
    STATES,
    figures_body,
    mapping_body,
    revocations_body,
    scaling_body,
    sensitivity_body,
    spot_cases_body,
    table_one_body,
    zones_body,
)
from spotweave.training.studies.federated.playing import METRICS, Study, find_learned
from spotweave.training.studies.page import Page, Section

DOCS = Path("docs") / "results"
KEPT = Path("results") / "federated"
COMMAND = "python training/results_fl.py only=[{name}]"
FEDCOSTAWARE, MULTI_FEDLS = "fedcostaware", "multi-fedls"
PAGES = (FEDCOSTAWARE, MULTI_FEDLS)


@dataclass
class ResultsSettings:
    """What `training/results_fl.py` does."""

    out: str  # where pages and files are written
    only: list[str] | None = None  # names of the sections to measure; None: all
    # the learned policy: a policy.pt, a run's directory, a released name, or "none" to leave it out; None:
    # the released `federated`, if there is one
    checkpoint: str | None = None
    # this many of each instead of the published numbers; an interval needs two
    episodes: Annotated[int, Field(ge=2)] | None = None
    check: bool = False  # only say whether pages and files agree


@dataclass(frozen=True)
class StudySection(Section):
    """One block of a page."""

    # plays and computes; besides plain values it may give `episodes`, (case, policy, episodes) for a CSV
    # file, and `pictures`, PNG files by name
    make: Callable[[Study], dict[str, Any]]
    page: str  # the page's name
    plays_learned: bool = False  # whether it depends on the learned policy
    # how many episodes, or sets of runs, it has unless another number is asked for; 0 for none
    episodes: int = 0


SECTIONS: dict[str, StudySection] = {
    sinha.TABLE_ONE: StudySection(sinha.make, table_one_body, FEDCOSTAWARE, True, sinha.EPISODES),
    sinha.SENSITIVITY: StudySection(
        sinha.make_sensitivity, sensitivity_body, FEDCOSTAWARE, True, sinha.EPISODES
    ),
    sinha.STATES: StudySection(
        partial(sinha.make_figures, sinha.STATES), partial(figures_body, STATES), FEDCOSTAWARE, True
    ),
    sinha.COSTS: StudySection(
        partial(sinha.make_figures, sinha.COSTS), partial(figures_body, COSTS), FEDCOSTAWARE, True
    ),
    sinha.ZONES: StudySection(sinha.make_zones, zones_body, FEDCOSTAWARE, True, sinha.ZONE_EPISODES),
    brum.MAPPING: StudySection(brum.make, mapping_body, MULTI_FEDLS),
    brum.SCALING: StudySection(brum.make_scaling, scaling_body, MULTI_FEDLS),
    brum.REVOCATIONS: StudySection(brum.make_revocations, revocations_body, MULTI_FEDLS, episodes=brum.SETS),
    brum.SPOT_CASES: StudySection(
        brum.make_spot_cases, spot_cases_body, MULTI_FEDLS, True, brum.SPOT_EPISODES
    ),
}
"""By name, in the order in which they are made; a name is also the block's marker and its files' name."""


def page_of(path: Path, folder: Path) -> Page:
    """The page, filled with what is stored in a folder."""
    sections = {name: section for name, section in SECTIONS.items() if section.page == path.stem}
    return Page(path, COMMAND, sections, folder)


def measure(name: str, study: Study, out: Path) -> bool:
    """Make one section and store it, unless it is stored; whether it was made."""
    section = SECTIONS[name]
    folder = prepare_directory(out / section.page)
    page = page_of(DOCS / f"{section.page}.md", folder)
    made_with = {
        "code": study.keeper.code,
        "episodes": study.count(section.episodes) if section.episodes else 0,
        "checkpoint": study.learned.sha256 if section.plays_learned and study.learned is not None else None,
    }
    before = page.stored(name)
    if before is not None and before["made_with"] == made_with:
        return False
    made = section.make(study)
    for file, content in made.pop("pictures", {}).items():
        write_bytes(folder / file, content)
    if episodes := made.pop("episodes", None):
        rows = (
            [case, policy, number, *values]
            for case, policy, metrics in episodes
            for number, values in enumerate(zip(*(metrics[metric] for metric in METRICS), strict=True))
        )
        write_csv(page.file(name, "csv"), ["case", "policy", "episode", *METRICS], rows)
    head = {
        **provenance(),
        "command": COMMAND.format(name=name),
        "page": section.page,
        "checkpoint": made_with["checkpoint"],
        "made_with": made_with,
    }
    # Last, as it says that all the rest is there.
    write_json(page.file(name), {**head, **made})
    return True


def check() -> int:
    """Compare the pages with what is stored next to them; returns the exit code."""
    code = 0
    for name in PAGES:
        page = DOCS / f"{name}.md"
        if page_of(page, DOCS / name).text() != page.read_text(encoding="utf-8"):
            print(f"{page} does not hold what is stored next to it: run training/results_fl.py")
            code = EXIT_FAILED
    return code


def measure_all(names: Iterable[str], study: Study, out: Path) -> list[str]:
    """Make every section; one that cannot be measured leaves the others to be made. Returns those."""
    failed = []
    for name in names:
        try:
            made = measure(name, study, out)
        except ValueError as error:
            print(f"error: {name}: {' '.join(str(error).split())}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"{out / SECTIONS[name].page / name}.json: {'measured' if made else 'as it was'}")
    return failed


def main(config: DictConfig) -> int:
    """Measure what was asked for and fill the pages; returns the exit code."""
    settings = typed(ResultsSettings, resolved(config), "")
    names = list(SECTIONS) if settings.only is None else settings.only
    for name in names:
        if name not in SECTIONS:
            raise UsageError(f"only names {name!r}: expected some of {', '.join(SECTIONS)}")
    if settings.check:
        return check()
    out = Path(settings.out)
    learned = find_learned(settings.checkpoint)
    print("learned policy: " + ("none" if learned is None else str(learned.path)), file=sys.stderr)
    with play_progress(lines=True) as progress:
        study = Study(Keeper(prepare_directory(KEPT)), progress, learned, settings.episodes)
        failed = measure_all(names, study, out)
    for page in PAGES:
        write_text(out / f"{page}.md", page_of(DOCS / f"{page}.md", out / page).text())
        print(f"written: {out / f'{page}.md'}")
    if failed:
        print(f"not measured: {' '.join(failed)}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


if __name__ == "__main__":
    run_command("results_fl", main)
