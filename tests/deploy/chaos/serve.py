"""`python -m tests.deploy.chaos.serve TRAP CONFIG`: `spotweave serve` that kills itself where a trap says so.

The trap is a file, {"point": "written" or "unconfirmed", "after": n}. At the n-th such point from then on,
the process ends by SIGKILL:
    written: an intent is in the store, and nothing of it has been done;
    unconfirmed: an intent has been done, and the store does not say so.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import spotweave.deploy.service
from spotweave.cli import main
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.intents import Intent, Intents
from spotweave.deploy.store.store import Store


def _pass(trap: Path, point: str) -> None:
    """Be at a point; perhaps never leave it."""
    try:
        wanted: dict[str, Any] = json.loads(trap.read_bytes())
    except FileNotFoundError:
        return
    if wanted["point"] != point:
        return
    if wanted["after"] > 1:
        trap.write_text(json.dumps({**wanted, "after": wanted["after"] - 1}))
        return
    trap.unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def _set(trap: Path) -> None:
    add, done, transaction = Intents.add, Intents.done, Store.transaction
    here = threading.local()

    def adding(*args: Any, **keywords: Any) -> Intent:
        here.added = True
        return add(*args, **keywords)

    def confirming(*args: Any, **keywords: Any) -> bool:
        _pass(trap, "unconfirmed")
        return done(*args, **keywords)

    @contextmanager
    def committing(store: Store) -> Iterator[None]:
        depth = here.depth = getattr(here, "depth", 0) + 1
        try:
            with transaction(store):
                yield
        finally:
            here.depth = depth - 1
        if depth == 1 and getattr(here, "added", False):
            here.added = False
            _pass(trap, "written")

    Intents.add = adding  # type: ignore[method-assign]
    Intents.done = confirming  # type: ignore[method-assign]
    Store.transaction = committing  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    _set(Path(sys.argv[1]))
    # Many faults hit the same few jobs, as they would not elsewhere: do not wait minutes after each.
    spotweave.deploy.service.SchedulerSettings = functools.partial(  # type: ignore[attr-defined,assignment]
        SchedulerSettings, back_off_s=0.5, back_off_most_s=4.0
    )
    sys.argv[1:] = ["serve", "--config", sys.argv[2], "--log-format", "console"]
    main()
