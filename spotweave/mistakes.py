"""What a command says when it cannot do what it was asked to, and its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EXIT_FAILED = 1  # it was done, and what came of it is not right: a job failed, a page differs
EXIT_USER = 2  # what was asked for is not possible, or the service refuses it
EXIT_INTERRUPTED = 130  # by SIGINT


_PICTURES = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_OBEYED = (
    _PICTURES
    # C1, which some terminals take for escape sequences, and what changes the direction of text.
    | dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
    | {code: code for code in (0x09, 0x0A)}
)


def harmless(text: str) -> str:
    """A stranger's text in which a terminal finds nothing to obey: control characters become pictures (␛).

    Line feeds and tabs stay; carriage returns become line feeds.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_OBEYED)


def some_of(names: Sequence[str], most: int) -> str:
    """The first of these names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def say(line: str) -> None:
    """One line to a person, besides what a command prints."""
    # Text and newline at once, or a line of the log may come between them.
    sys.stderr.write(harmless(" ".join(line.split())) + "\n")
    sys.stderr.flush()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Of a command: a user's mistake is one line on standard error, without a traceback, and exit code 2.

    `SPOTWEAVE_TRACEBACK=1` shows where it was raised.

    Raises:
        SystemExit: also after Ctrl-C, and when nobody reads what is printed any more.
    """
    try:
        yield
    except BrokenPipeError:
        # Whoever reads (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (ValueError, OSError) as error:
        if os.environ.get("SPOTWEAVE_TRACEBACK"):
            raise
        say(f"error: {error}")
        sys.exit(EXIT_USER)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
