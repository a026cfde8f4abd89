"""Why a driver failed: one line for people, and whether it was the cluster's fault."""

from __future__ import annotations

import re

LONGEST = 300

_NO_MASTER = "All masters are unresponsive"
_INFRASTRUCTURE = (
    _NO_MASTER,
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailedException",
    "Connection refused",
    "Connection reset",
    "Master removed our application",
    "Remote RPC client disassociated",
    "SparkContext was shut down",
    "cancelled because SparkContext",
    "BlockMissingException",
    "Could not find CoarseGrainedScheduler",
    "Worker Decommission",
)
_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(: .*)?$")
_LOG_LINE = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARN|ERROR|DEBUG) ")


def last_error(log: str) -> str:
    """The cause of a failure in what a driver printed; "" if it does not say.

    The innermost exception of Python is the user's own, also where it reached the driver wrapped into several
    of Java's; else the last exception or error that is named.
    """
    return _short(_whole_error(log))


def _whole_error(log: str) -> str:
    lines = log.splitlines()
    for start in reversed([at for at, line in enumerate(lines) if line.strip().endswith(_TRACEBACK)]):
        found = _python_error(lines, start)
        if found:
            return found
    for line in reversed(lines):
        text = _LOG_LINE.sub("", line).strip()
        if re.search(r"\b(Error|ERROR)\b|Exception: |Exception in thread|can't open file|No such file", line):
            return text.removeprefix('Exception in thread "main" ')
    return ""


def _python_error(lines: list[str], start: int) -> str:
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if not line or line[0].isspace() or _LOG_LINE.match(line):
            continue
        if not _ERROR.match(line):
            return ""
        # Py4J names the Java exception in the next line.
        if line.startswith("py4j.") and at + 1 < len(lines) and lines[at + 1].startswith(": "):
            return lines[at + 1][2:]
        return line
    return ""


def by_cluster(log: str, nodes_lost: bool) -> bool:
    """Whether a failed driver failed because of the cluster, by what it printed.

    Args:
        log: the end of what it printed.
        nodes_lost: whether any of its nodes is gone. Without that, a lost executor is the job's own doing
            (out of memory, a crash in native code), and trying again would fail again.
    """
    if _NO_MASTER in log:
        return True
    if not nodes_lost:
        return False
    error = _whole_error(log)
    return not error or (any(sign in log for sign in _INFRASTRUCTURE) and not _is_users(error))


def _is_users(error: str) -> bool:
    """Whether the exception is one that nodes do not cause."""
    kind = error.partition(":")[0]
    java = kind.startswith(("java.", "org.apache.", "scala.", "py4j."))
    plain = kind in {
        "ConnectionRefusedError",
        "ConnectionResetError",
        "EOFError",
        "BrokenPipeError",
        "SystemExit",
    }
    return not java and not plain and not any(sign in error for sign in _INFRASTRUCTURE)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
