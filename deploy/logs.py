"""Logs: one line for each thing that happened, JSON or for people, without secrets.

Everything goes the same way: our own loggers (structlog), and those of libraries (logging), such as uvicorn's
and SQLAlchemy's. What the scheduler binds as context (job_id, decision_id) is in every line of that context.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

FORMATS = ("json", "console")
LEVELS = ("debug", "info", "warning", "error")
HIDDEN = "[hidden]"

_SECRET_NAMES = frozenset(
    {"token", "node_token", "access_token", "authorization", "password", "secret", "cookie", "key"}
)
_TOKEN = re.compile(r"spw_([0-9a-f]{12})_[A-Za-z0-9_-]+")
# `secrets.token_urlsafe(32)`, as node tokens are made: 43 characters, hardly ever without all three kinds.
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9_-])(?=[a-z0-9_-]*[A-Z])(?=[A-Z0-9_-]*[a-z])(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{43}"
    r"(?![A-Za-z0-9_-])"
)
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_CHATTY = ("uvicorn", "alembic", "httpx", "httpcore", "sqlalchemy")
"""Libraries that are asked for warnings only, unless everything is."""
_NEVER = ("botocore",)  # below warnings it writes down whole requests, user data encoded among them


def without_secrets(text: str) -> str:
    """A text with access tokens (all but their public ids), node tokens and passwords of URLs hidden."""
    text = _TOKEN.sub(rf"spw_\1_{HIDDEN}", text)
    return _URL_PASSWORD.sub(rf"\1{HIDDEN}@", _RANDOM.sub(HIDDEN, text))


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: nothing secret is in what follows it."""
    return {name: _hidden(name, value) for name, value in event.items()}


def _hidden(name: str, value: object) -> object:
    if name in _SECRET_NAMES and value is not None:
        return HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _hidden(str(key), part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden("", part) for part in value]
    return without_secrets(str(value))


def configure(form: str = "json", level: str = "info", stream: TextIO | None = None) -> None:
    """Say where logs go, once in a process. Raises ValueError if there is no such form or level."""
    if form not in FORMATS:
        raise ValueError(f"logs in the format {form!r}: expected {' or '.join(FORMATS)}")
    if level not in LEVELS:
        raise ValueError(f"logs from the level {level!r} on: expected one of {', '.join(LEVELS)}")
    stream = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = structlog.processors.JSONRenderer(sort_keys=False)
    if form == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), pad_event_to=0)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # Last before it becomes text: nothing can be added after it.
                hide_secrets,
                renderer,
            ],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET if level == "debug" else logging.WARNING)
    for name in _NEVER:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
