"""The published list: faults in code that money, jobs and machines depend on, and who finds them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")


class MutantError(ValueError):
    """The list cannot be used as it stands; one line."""


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        name: what is wrong then, in words; unique.
        file: where, from the root of the repository.
        old: text that occurs there exactly once.
        new: what stands there instead.
        tests: files or ids of tests of which one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, root: Path) -> str:
        """The file's text with the fault.

        Raises:
            MutantError: if it does not apply any more.
        """
        try:
            text = (root / self.file).read_text(encoding="utf-8")
        except OSError as error:
            raise MutantError(f"{self.name!r}: cannot read {self.file}: {error.strerror}") from error
        if (found := text.count(self.old)) != 1:
            raise MutantError(
                f"{self.name!r}: its old text occurs {found} times in {self.file}, expected once: write it "
                "as the file has it now"
            )
        return text.replace(self.old, self.new)

    def missing_tests(self, root: Path) -> list[str]:
        """Those of its tests that are not there any more."""
        missing = []
        for test in self.tests:
            file, _, name = test.partition("::")
            path, name = root / file, name.partition("[")[0]
            if not path.exists() or (name and f"def {name}(" not in path.read_text("utf-8")):
                missing.append(test)
        return missing


def load(path: Path = LIST) -> Sequence[Mutant]:
    """All of a list.

    Raises:
        MutantError: if it is not one.
    """
    try:
        found = [
            Mutant(**{**one, "tests": tuple(one["tests"])})
            for one in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
        ]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise MutantError(f"{path} is no list of mutants: {error}") from error
    names = [one.name for one in found]
    if double := {name for name in names if names.count(name) > 1}:
        raise MutantError(f"two mutants are called {min(double)!r}: give each a name of its own")
    return found


def stale(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """Why some of them do not apply any more, a line for each."""
    lines = []
    for one in mutants:
        try:
            one.applied(root)
        except MutantError as error:
            lines.append(str(error))
        lines += [f"{one.name!r}: there is no test {test}" for test in one.missing_tests(root)]
        if one.old == one.new or not one.tests:
            lines.append(f"{one.name!r}: expected another text and at least one test")
    return lines
