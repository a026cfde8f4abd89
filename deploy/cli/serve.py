"""`spotweave serve`: one deployment, until it is told to end."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import FrameType

from deploy import logs
from deploy.config import DeploymentConfig
from deploy.runners.spark.settings import find_spark
from deploy.serving import Serving
from spotweave.mistakes import EXIT_INTERRUPTED, say

_LOOK_S = 1.0


class ServingError(ValueError):
    """The service ended by itself; one line."""


def run(path: Path, *, dry_run: bool, log_format: str, log_level: str) -> None:
    """Serve until SIGINT or SIGTERM.

    `dry_run`: decide and do nothing, whatever the file says. Raises ValueError: one line; nothing was started
    then.
    """
    logs.configure(log_format, log_level)
    config = DeploymentConfig.load(path)
    serving = Serving(config.dry_run() if dry_run else config)
    ending = _until_told()
    try:
        serving.start()
        _greet(serving, path)
        while not ending.wait(_LOOK_S):
            if not serving.alive():
                raise ServingError("the service cannot go on: see its log, and start it again")
    finally:
        say("ending: what runs goes on, and the next serve takes it up")
        serving.stop()


def _until_told() -> threading.Event:
    """Set by the first SIGINT or SIGTERM; a second SIGINT ends the process at once."""
    ending = threading.Event()

    def end(number: int, _frame: FrameType | None) -> None:
        if ending.is_set() and number == signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)
        ending.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    return ending


def _greet(serving: Serving, path: Path) -> None:
    service = serving.service
    policy = service.config.policy
    print(
        f"serving on {serving.url} (deployment {service.store.deployment_id}, policy {policy.market}"
        f"{'' if policy.mode == 'act' else f', {policy.mode}'}, {len(service.offers())} offers)",
        flush=True,
    )
    if serving.lacks_tokens():
        say(
            "warning: there is no access token yet, so every request is refused: "
            f"spotweave token create --config {path} --role admin --name NAME"
        )
    try:
        find_spark()
    except ValueError as error:
        say(f"warning: {error}; until then Spark jobs are refused")
