"""Put every fault of the list into a copy of the sources, one at a time, and say which the tests find.

    python -m tests.mutations [--only WORDS] [--jobs N] [--check]

Exits with 1 if less than 95 % are found, or one does not apply any more; with 2 if there is nothing to try.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.mutants import LIST, ROOT, Mutant, MutantError, load, stale
from tests.mutations.trial import LIMIT_S, Copy, Trial, try_all

BAR = 0.95


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns its exit code."""
    options = _options(arguments)
    try:
        mutants = [one for one in load(options.list) if options.only.lower() in one.name.lower()]
    except MutantError as error:
        return _refuse(str(error))
    if not mutants:
        return _refuse(f"no mutant has {options.only!r} in its name: see {options.list}")
    if options.jobs < 1:
        return _refuse(f"--jobs is {options.jobs}: expected 1 or more")
    wrong = stale(mutants, options.root)
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    if options.check or wrong:
        print(f"{len(mutants)} mutants, {len(wrong)} lines about what does not apply any more")
        return 1 if wrong else 0
    folder = Path(tempfile.mkdtemp(prefix="mutations-"))
    try:
        return _run(options.root, mutants, folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(root: Path, mutants: Sequence[Mutant], folder: Path, options: argparse.Namespace) -> int:
    began = time.monotonic()
    if not options.no_baseline:
        tests = sorted({test for one in mutants for test in one.tests})
        code, output = Copy(root, folder / "sound").test(tests, LIMIT_S * 4)
        if code != 0:
            print(output)
            return _refuse("the tests fail without any mutant: mend that first")
    trials = []
    for trial in try_all(root, mutants, folder, options.jobs, options.limit):
        trials.append(trial)
        print(f"{trial.verdict:8} {trial.seconds:6.1f} s  {trial.mutant.name}", flush=True)
    return _sum_up(trials, time.monotonic() - began)


def _sum_up(trials: Sequence[Trial], seconds: float) -> int:
    missed = [one for one in trials if not one.found]
    for one in missed:
        print(f"\n{one.verdict}: {one.mutant.name} ({one.mutant.file})")
        print(f"    - {one.mutant.old.strip()}\n    + {one.mutant.new.strip()}")
        print(f"    {' '.join(one.mutant.tests)}")
        if one.verdict == "BROKEN":
            print(one.output)
    found = len(trials) - len(missed)
    score = found / len(trials)
    print(f"\n{found} of {len(trials)} found: {score:.1%}, in {seconds / 60:.1f} minutes (bar {BAR:.0%})")
    return 0 if score >= BAR else 1


def _refuse(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="those with these words in their name")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="this many at a time (default 2)")
    parser.add_argument("--check", action="store_true", help="only say which do not apply any more")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without any first")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="for the tests of one")
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE", help="another list")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="other sources")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
