"""Numbers of users and groups that no account has, lent to jobs: one for each name until it is given back."""

from __future__ import annotations

import fcntl
import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deploy.node import procfs
from spotweave.files import write_private


class IdentitiesError(Exception):
    """No number is free; one line."""


class Identities:
    """Safe to use from several threads and processes; what is lent survives a restart.

    Args:
        folder: of its own; made with mode 0700.
        numbers: that may be lent. The one that was given back longest ago is lent next.
    """

    def __init__(self, folder: Path, numbers: range) -> None:
        self._folder = folder
        self._file = folder / "ids.json"
        self._numbers = numbers

    def lend(self, name: str) -> int:
        """The number of a name, now and until `give_back`. Raises IdentitiesError, OSError."""
        with self._held() as (lent, latest):
            if name in lent:
                return lent[name]
            # Another deployment of this machine may lend from the same range.
            taken = set(lent.values()) | _borne()
            draw = random.SystemRandom().randrange(len(self._numbers))
            start = self._numbers.index(latest) + 1 if latest in self._numbers else draw
            for step in range(len(self._numbers)):
                number = self._numbers[(start + step) % len(self._numbers)]
                if number not in taken:
                    lent[name] = number
                    write_private(self._file, json.dumps({"lent": lent, "latest": number}))
                    return number
        raise IdentitiesError(
            f"all {len(self._numbers)} ids of runners.sandbox_ids are taken: give a wider range"
        )

    def give_back(self, name: str) -> None:
        """Nothing runs, and no file is left, under its number. Raises OSError."""
        with self._held() as (lent, latest):
            if lent.pop(name, None) is not None:
                write_private(self._file, json.dumps({"lent": lent, "latest": latest}))

    @contextmanager
    def _held(self) -> Iterator[tuple[dict[str, int], int]]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                found: dict[str, Any] = json.loads(self._file.read_bytes())
            except FileNotFoundError:
                found = {"lent": {}, "latest": -1}
            yield found["lent"], found["latest"]
        finally:
            os.close(handle)


def _borne() -> set[int]:
    """Users and groups of everything that runs."""
    found: set[int] = set()
    for process in procfs.scan():
        found |= procfs.groups(process.pid)
        with suppress(OSError):
            found.add(os.stat(f"/proc/{process.pid}").st_uid)
    return found
