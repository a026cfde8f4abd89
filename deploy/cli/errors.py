"""What a command says when it cannot do what it was asked to, and its exit code."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from deploy.security.untrusted import harmless

EXIT_FAILED = 1
"""A job that was waited for did not succeed."""
EXIT_USER = 2
"""What was asked for is not possible, or the service refuses it."""
EXIT_INTERRUPTED = 130
"""By SIGINT."""

NEEDED = (
    "alembic",
    "cryptography",
    "fastapi",
    "httpx",
    "prometheus_client",
    "sqlalchemy",
    "structlog",
    "uvicorn",
)
"""Packages of the extra `deploy`."""

_P = ParamSpec("_P")


def say(line: str) -> None:
    """One line to a person, besides what a command prints."""
    # Text and newline at once, or a line of the log may come between them.
    sys.stderr.write(harmless(" ".join(line.split())) + "\n")
    sys.stderr.flush()


def reporting_errors(command: Callable[_P, None]) -> Callable[_P, None]:
    """Wrap a command: mistakes of a person are one line, without a traceback, and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> None:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            say(f"error: this command needs {missing[0]} and more: pip install 'spotweave[deploy]'")
            raise typer.Exit(EXIT_USER)
        try:
            command(*args, **kwargs)
        except ValueError as error:
            if os.environ.get("SPOTWEAVE_TRACEBACK"):
                raise
            say(f"error: {error}")
            raise typer.Exit(EXIT_USER) from error
        except BrokenPipeError as error:
            # Whoever reads (head, less) has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(EXIT_INTERRUPTED) from error

    return wrapped
