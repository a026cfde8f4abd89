"""Whose fault it was: the user's ServerApp, or what it ran on."""

from __future__ import annotations

from deploy.fl.checkpoints import LINK_LOST, Status

_RAISED = "ServerApp failed with exception: "
MAX_FRUITLESS = 4
"""This many runs in a row may be lost before a round ends; then it is taken for the app's own fault."""


def server_failure(details: str, status: Status | None, run: int) -> str:
    """The user's error in one line if a run that has failed did so by an exception of its own, else "".

    Args:
        details: what Flower says of the run.
        status: what the ServerApp said last, if it uses `deploy.fl`.
        run: number of the run.
    """
    if status is not None and status.run == run and status.error:
        return status.error
    text = " ".join(details.split())
    if not text.startswith(_RAISED) or LINK_LOST in text:
        return ""
    return f"the ServerApp failed: {text.removeprefix(_RAISED)}"[:300]


def last_exception(log: str) -> str:
    """The last exception of a log in one line ("ModuleNotFoundError: No module named 'x'"), "" for none."""
    found = ""
    inside = False
    for line in log.splitlines():
        if line.startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and line and not line[0].isspace():
            inside = False
            kind = line.partition(":")[0]
            if kind.replace(".", "").replace("_", "").isalnum():
                found = line
    return " ".join(found.split())[:300]
