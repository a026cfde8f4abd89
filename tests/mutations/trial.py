"""Trying mutants: each alone, in a copy of the sources, with the tests that must find it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from tests.mutations.mutants import Mutant

LIMIT_S = 600.0
"""Tests of one mutant that take longer have found it: it hangs."""
_LEFT_OUT = ("runs", "results", "outputs", "build", "dist", "deployments", "__pycache__")
_MARKS = "not long and not (slow and real)"
_PASSED, _FAILED = 0, 1

Verdict = Literal["killed", "hung", "SURVIVED", "BROKEN"]
"""Broken: the tests could not even be collected, which says nothing about them."""


@dataclass(frozen=True)
class Trial:
    """What became of a mutant.

    Attributes:
        mutant: which.
        verdict: whether its tests found it.
        seconds: that they took.
        output: the end of what they printed.
    """

    mutant: Mutant
    verdict: Verdict
    seconds: float
    output: str

    @property
    def found(self) -> bool:
        """Whether a test failed."""
        return self.verdict in ("killed", "hung")


class Copy:
    """A copy of the sources in which one mutant at a time lives."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self.folder = folder
        self._writes = 0
        shutil.copytree(root, folder, ignore=_left_out, symlinks=True)

    def test(self, tests: Collection[str], limit_s: float = LIMIT_S) -> tuple[int | None, str]:
        """Run tests here, up to the first that fails.

        Returns:
            The exit code of pytest, None if it took too long; and the end of what it printed.
        """
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", _MARKS, *tests]
        environment = {
            **os.environ,
            # Before the working tree, which an editable installation names.
            "PYTHONPATH": str(self.folder),
            "OMP_NUM_THREADS": "1",
            "NUMBA_CACHE_DIR": str(self.folder / ".numba"),
        }
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                return None, output[-4000:]
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, output[-4000:]

    def try_out(self, mutant: Mutant, limit_s: float = LIMIT_S) -> Trial:
        """Put a mutant in, run its tests, and take it out again."""
        text = mutant.applied(self._root)
        started = time.monotonic()
        self._write(mutant.file, text)
        try:
            code, output = self.test(mutant.tests, limit_s)
        finally:
            self._write(mutant.file, (self._root / mutant.file).read_text(encoding="utf-8"))
        verdict: Verdict = "BROKEN"
        if code is None:
            verdict = "hung"
        elif code in (_PASSED, _FAILED):
            verdict = "killed" if code == _FAILED else "SURVIVED"
        return Trial(mutant, verdict, time.monotonic() - started, output)

    def _write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.write_text(text, encoding="utf-8")
        # Python takes compiled code for that of a source of the same second and length.
        self._writes += 1
        moment = time.time() - 1_000_000 + 2 * self._writes
        os.utime(path, (moment, moment))


def try_all(
    root: Path, mutants: Sequence[Mutant], folder: Path, jobs: int, limit_s: float = LIMIT_S
) -> Iterator[Trial]:
    """Try mutants, this many at a time; each as it is done.

    Args:
        root: of the sources, which stay as they are.
        mutants: that apply there.
        folder: an empty one for copies.
        jobs: at a time.
        limit_s: for the tests of one.
    """
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(min(jobs, len(mutants))):
        copies.put(Copy(root, folder / f"copy-{number}"))

    def one(mutant: Mutant) -> Trial:
        copy = copies.get()
        try:
            return copy.try_out(mutant, limit_s)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        left = {pool.submit(one, mutant) for mutant in mutants}
        try:
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            for each in left:
                each.cancel()


def _left_out(_folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name in _LEFT_OUT or (name.startswith(".") and name != ".gitignore")}
