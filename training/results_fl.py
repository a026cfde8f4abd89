"""Regenerate the tables and pictures of federated work: docs/results/fedcostaware.md and multi-fedls.md.

python training/results_fl.py [--checkpoint NAME] [--only SECTION ...] [--episodes N] [--out DIR] [--check]

What is stored for the same code and settings is not measured again, and every policy's episodes are kept in
results/federated, so that a command that was stopped goes on where it was. With --check nothing is changed,
and exit code 1 says that a page does not hold what is stored next to it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.config import INTERRUPTED, USER_ERROR, UsageError, provenance
from training.files import prepare_directory, write_bytes, write_csv, write_json, write_text
from training.progress import play_progress
from training.studies.federated.contestants import find_learned
from training.studies.federated.playing import METRICS
from training.studies.federated.sections import PAGES, SECTIONS
from training.studies.federated.study import Study
from training.studies.keeping import Keeper
from training.studies.page import filled, marked_experiments

DOCS = Path("docs") / "results"
KEPT = Path("results") / "federated"
DIFFERS = FAILED = 1


def command_of(name: str) -> str:
    """What makes one section."""
    return f"python training/results_fl.py --only {name}"


def settings_of(name: str, study: Study) -> dict[str, Any]:
    """What a section depends on besides the code."""
    section = SECTIONS[name]
    return {
        "code": study.keeper.code,
        "episodes": study.count(section.episodes) if section.episodes else 0,
        "checkpoint": study.learned.sha256 if section.plays_learned and study.learned is not None else None,
    }


def stored(folder: Path, name: str) -> dict[str, Any] | None:
    """A section's document next to its page; None where there is none."""
    file = folder / f"{name}.json"
    if not file.is_file():
        return None
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def measure(name: str, study: Study, out: Path) -> bool:
    """Make one section and store it, unless it is stored; whether it was made.

    Raises:
        WriteError, CheckpointError, UsageError: one line each.
    """
    page = SECTIONS[name].page
    folder = prepare_directory(out / page)
    made_with = settings_of(name, study)
    before = stored(folder, name)
    if before is not None and before["made_with"] == made_with:
        return False
    made = SECTIONS[name].make(study)
    for file, content in made.pop("pictures", {}).items():
        write_bytes(folder / file, content)
    if episodes := made.pop("episodes", None):
        rows = (
            [case, policy, number, *values]
            for case, policy, metrics in episodes
            for number, values in enumerate(zip(*(metrics[metric] for metric in METRICS), strict=True))
        )
        write_csv(folder / f"{name}.csv", ["case", "policy", "episode", *METRICS], rows)
    head = {
        **provenance(),
        "command": command_of(name),
        "page": page,
        "checkpoint": made_with["checkpoint"],
        "made_with": made_with,
    }
    # Last, as it says that all the rest is there.
    write_json(folder / f"{name}.json", {**head, **made})
    return True


def body(folder: Path, name: str) -> str:
    """What belongs between a section's markers."""
    document = stored(folder, name)
    if document is None:
        return f"Not measured yet: `{command_of(name)}`."
    return SECTIONS[name].body(document)


def page_text(page: Path, folder: Path) -> str:
    """The page with all its blocks regenerated from what is stored in a folder.

    Raises:
        UsageError: if a marker is broken, or names no section of this page.
    """
    text = page.read_text(encoding="utf-8")
    wanted = [name for name, section in SECTIONS.items() if section.page == page.stem]
    if sorted(marked_experiments(text)) != sorted(wanted):
        raise UsageError(f"{page} has the markers {', '.join(marked_experiments(text))}: expected {wanted}")
    return filled(text, lambda name: body(folder, name))


def check() -> int:
    """Compare the pages with what is stored next to them; returns the exit code."""
    code = 0
    for name in PAGES:
        page = DOCS / f"{name}.md"
        if page_text(page, DOCS / name) != page.read_text(encoding="utf-8"):
            print(f"{page} does not hold what is stored next to it: run training/results_fl.py")
            code = DIFFERS
    return code


def run(options: Mapping[str, Any]) -> int:
    """Measure what was asked for and fill the pages; returns the exit code."""
    if options["check"]:
        return check()
    if options["episodes"] is not None and options["episodes"] < 2:
        raise UsageError(f"--episodes is {options['episodes']}: an interval needs at least 2")
    out = Path(options["out"])
    learned = find_learned(options["checkpoint"])
    print("learned policy: " + ("none" if learned is None else str(learned.path)), file=sys.stderr)
    with play_progress(lines=True) as progress:
        study = Study(Keeper(prepare_directory(KEPT)), progress, learned, options["episodes"])
        failed = measure_all(options["only"] or SECTIONS, study, out)
    for name in PAGES:
        write_text(out / f"{name}.md", page_text(DOCS / f"{name}.md", out / name))
        print(f"written: {out / f'{name}.md'}")
    if failed:
        print(f"not measured: {' '.join(failed)}", file=sys.stderr)
    return FAILED if failed else 0


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


def parsed(arguments: Sequence[str] | None) -> dict[str, Any]:
    """The options."""
    parser = argparse.ArgumentParser(prog="python training/results_fl.py", description=__doc__)
    parser.add_argument(
        "--checkpoint",
        help="the learned policy: a policy.pt, a run's directory, a released name, or none to leave it out "
        "(default: federated, if it is released)",
    )
    parser.add_argument(
        "--only", action="append", choices=list(SECTIONS), help="only this section; may be repeated"
    )
    parser.add_argument("--episodes", type=int, help="this many of each instead of the published numbers")
    parser.add_argument("--out", default=str(DOCS), help="where pages and files are written (%(default)s)")
    parser.add_argument("--check", action="store_true", help="only say whether pages and files agree")
    return vars(parser.parse_args(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; a user's mistake is one line and exit code 2, Ctrl-C exits with 130."""
    options = parsed(arguments)
    try:
        return run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ValueError, OSError) as error:
        if os.environ.get("SPOTWEAVE_TRACEBACK"):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
